package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEachSocketHasItsOwnLog(t *testing.T) {
	env := Environment{Home: "/home/a"}
	seen := map[string]string{}
	for _, socket := range []string{
		"/run/user/1000/trl/trl.sock", "/home/a/.local/state/trl/trl.sock", "/a-b/c", "/a/b-c", "/ä", "/ö",
		"/" + strings.Repeat("x", 300), "/y" + strings.Repeat("x", 300),
	} {
		path := env.LogFile(socket)
		if other, ok := seen[path]; ok {
			t.Errorf("%s and %s share %s", socket, other, path)
		}
		seen[path] = socket
		if dir, name := filepath.Split(path); dir != "/home/a/.local/state/trl/" || len(name) > 255 ||
			!regexp.MustCompile(`^daemon-[a-zA-Z0-9._-]+\.log$`).MatchString(name) {
			t.Errorf("%s logs to %s", socket, path)
		}
		later := Environment{Home: "/home/a", Variables: []string{"XDG_RUNTIME_DIR=/run/user/1000"}}
		if later.LogFile(socket) != path {
			t.Errorf("the log of %s depends on the default socket", socket)
		}
	}
}

// openLog opens path as `trl serve --detach` does.
func openLog(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	log := &boundedLog{file: openLog(t, path), path: path, max: 30}
	holder := openLog(t, path) // has the file open too
	write := func(w interface{ Write([]byte) (int, error) }, line string) {
		t.Helper()
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	write(log, "0123456789\n")
	write(holder, "from holder\n")
	if _, err := os.Stat(path + OldLog); err == nil {
		t.Error("rotated too early")
	}
	write(log, "abcdefghij\n")
	write(holder, "more\n")
	if got := contentOf(t, path); got != "abcdefghij\nmore\n" {
		t.Errorf("the log has %q", got)
	}
	if got := contentOf(t, path+OldLog); got != "0123456789\nfrom holder\n" {
		t.Errorf("the old log has %q", got)
	}
	for range 20 {
		write(log, "abcdefghij\n")
	}
	for _, name := range []string{path, path + OldLog} {
		if size := len(contentOf(t, name)); size > 30 {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	// Without a place for the copy the bound still holds.
	if err := os.Remove(path + OldLog); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+OldLog, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+OldLog, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		write(log, "abcdefghij\n")
	}
	if size := len(contentOf(t, path)); size > 30 {
		t.Errorf("the log has %d bytes without a copy", size)
	}
}

// A file that the user redirected stderr to is not the daemon's to cut.
func TestForeignLogIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine.log")
	log := &boundedLog{file: openLog(t, mine), path: filepath.Join(dir, "daemon.log"), max: 10}
	for range 3 {
		if _, err := log.Write([]byte("0123456789\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := contentOf(t, mine); got != strings.Repeat("0123456789\n", 3) {
		t.Errorf("it has %q", got)
	}
}
