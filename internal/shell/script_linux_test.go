package shell

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A script that is reused holds the next command and nothing of an earlier one,
// whatever their lengths are and whatever a command does to its own script. It is
// empty while it is unused.
func TestScriptsAreReused(t *testing.T) {
	d, err := OpenDriver(DriverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	long := strings.Repeat("echo a long command; ", 1000)
	for _, contents := range []string{"true\n", "echo longer\n", "ls\n", long, "ls\n", long[:4096], "true\n", "a\n", "ls\n"} {
		text, err := d.scripts.write(contents)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(text.path); err != nil || string(got) != contents {
			t.Errorf("%.20q is read as %.20q, %v", contents, got, err)
		}
		if contents == "a\n" { // it appends to its own script
			if _, err := unix.Pwrite(text.fd, []byte("echo more\n"), 2); err != nil {
				t.Fatal(err)
			}
		}
		path := text.path
		d.scripts.wipe(text)
		if got, err := os.ReadFile(path); err != nil || len(bytes.Trim(got, "\x00")) > 0 {
			t.Errorf("%.20q was wiped and left %.20q, %v", contents, got, err)
		}
	}
}
