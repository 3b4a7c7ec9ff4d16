package release_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// tree returns everything below a directory: by name, its mode and contents,
// without times.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(content)
			what += fmt.Sprintf(" %d %s", len(content), hex.EncodeToString(sum[:]))
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			what += " to " + target
		}
		below, err := filepath.Rel(dir, name)
		files[below] = what
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
