package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/internal/daemon"
)

func TestRuntimeDirectoryIsFound(t *testing.T) {
	home := t.TempDir()
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	without := filepath.Join(home, ".local", "state", "trl", "trl.sock")
	for name, c := range map[string]struct {
		dir       string
		variables []string
		want      string
	}{
		"exists":               {mine, nil, filepath.Join(mine, "trl", "trl.sock")},
		"does not exist":       {filepath.Join(mine, "no"), nil, without},
		"others can write":     {open, nil, without},
		"the variable is set":  {mine, []string{"XDG_RUNTIME_DIR=/run/other"}, "/run/other/trl/trl.sock"},
		"another place is set": {mine, []string{"TRL_SOCKET=/run/set.sock"}, "/run/set.sock"},
	} {
		a := &app{environment: daemon.Environment{Home: home, Variables: c.variables}}
		a.findRuntimeDir(t.Context(), c.dir)
		if got, err := a.socketPath(); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
