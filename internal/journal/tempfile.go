package journal

import "os"

// openUnlinked returns a new file in dir that has no name there: it disappears
// with its last descriptor, even if the daemon is killed.
func openUnlinked(dir string) (*os.File, error) {
	if f := openTmpfile(dir); f != nil {
		return f, nil
	}
	return createUnlinked(dir)
}

// createUnlinked creates a file with a name and removes the name.
func createUnlinked(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "trl-journal-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
