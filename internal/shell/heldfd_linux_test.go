package shell

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A text that is used again holds the next command and nothing of an earlier one,
// whatever their lengths are and whatever a command does to its own; nothing is
// left in it while nobody uses it.
func TestTextsAreUsedAgain(t *testing.T) {
	h, err := NewDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	long := strings.Repeat("echo a long command; ", 1000)
	for _, contents := range []string{"true\n", "echo longer\n", "ls\n", long, "ls\n", long[:4096], "true\n", "a\n", "ls\n"} {
		text, err := h.takeScript(contents)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(text.path); err != nil || string(got) != contents {
			t.Errorf("%.20q is read as %.20q, %v", contents, got, err)
		}
		if contents == "a\n" { // it adds to itself
			if _, err := unix.Pwrite(text.fd, []byte("echo more\n"), 2); err != nil {
				t.Fatal(err)
			}
		}
		path := text.path
		h.returnScript(text)
		if got, err := os.ReadFile(path); err != nil || len(bytes.Trim(got, "\x00")) > 0 {
			t.Errorf("after %.20q there is left %.20q, %v", contents, got, err)
		}
	}
}
