package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// The digest that a delivery has noted is that of the program only if it was written
// after it, next to it and by the same user.
func TestDigestOfADeliveredProgram(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	// write writes a file later than all others, by the clock of the file system.
	var last time.Time
	write := func(path, text string) {
		trltest.Eventually(t, "the clock of the file system", func() bool {
			if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path + ".new")
			if err != nil {
				t.Fatal(err)
			}
			later := changed(info).After(last)
			if later {
				last = changed(info)
			}
			return later
		})
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		dir     string
		deliver func(dir string)
		want    string
	}{
		"delivered": {".trl-place-k7-x", func(dir string) {
			write(filepath.Join(dir, "trl"), "program")
			write(filepath.Join(dir, "digest"), digest+"\n")
		}, digest},
		"a later program": {".trl-place-k7-x", func(dir string) {
			write(filepath.Join(dir, "digest"), digest+"\n")
			write(filepath.Join(dir, "trl"), "program")
		}, ""},
		"no digest": {".trl-place-k7-x", func(dir string) { write(filepath.Join(dir, "trl"), "program") }, ""},
		"another note": {".trl-place-k7-x", func(dir string) {
			write(filepath.Join(dir, "trl"), "program")
			write(filepath.Join(dir, "digest"), "short")
		}, ""},
		"elsewhere": {"bin", func(dir string) {
			write(filepath.Join(dir, "trl"), "program")
			write(filepath.Join(dir, "digest"), digest+"\n")
		}, ""},
		"written by others": {".trl-place-k7-x", func(dir string) {
			write(filepath.Join(dir, "trl"), "program")
			write(filepath.Join(dir, "digest"), digest+"\n")
			if err := os.Chmod(filepath.Join(dir, "digest"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), tc.dir)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			tc.deliver(dir)
			program := filepath.Join(dir, "trl")
			if got := digestNextTo(program, program); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if got := digestNextTo(program, "/proc/self/exe"); got != "" {
				t.Errorf("of a program that does not run: %q", got)
			}
		})
	}
}
