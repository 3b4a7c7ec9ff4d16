package journal

import (
	"os"
	"testing"
)

// A spill file never has a name that could be seen, however it was created, and
// holds what is written to it.
func TestSpillFileHasNoName(t *testing.T) {
	for name, open := range map[string]func(string) (*os.File, error){"open": openUnlinked, "create": createUnlinked} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			names, err := os.ReadDir(dir)
			if err != nil || len(names) > 0 {
				t.Errorf("%v, %v; want none", names, err)
			}
			if _, err := f.WriteAt([]byte("abc"), 5); err != nil {
				t.Error(err)
			}
			var b [3]byte
			if _, err := f.ReadAt(b[:], 5); err != nil || string(b[:]) != "abc" {
				t.Errorf("read %q, %v", b, err)
			}
		})
	}
}
