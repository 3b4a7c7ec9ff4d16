package journal

import "os"

// openUnlinked returns a new file in dir that has no name there: it is gone with
// its last descriptor, also when the daemon is killed.
func openUnlinked(dir string) (*os.File, error) {
	if f := openTmpfile(dir); f != nil {
		return f, nil
	}
	return createUnlinked(dir)
}

// createUnlinked makes a file with a name and takes the name away.
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
