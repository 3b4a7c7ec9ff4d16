package locate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/locate"
)

// TestTheSocketIsThatOfTheDaemon compares what a client finds with the settings
// that a daemon of the same user has.
func TestTheSocketIsThatOfTheDaemon(t *testing.T) {
	home := t.TempDir()
	config := filepath.Join(home, ".config", "trl", "config.toml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(home, "other.toml")
	if err := os.WriteFile(other, []byte("socket = \"/other.sock\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		variables []string
		config    string
		root      bool
		homeless  bool
		want      string
	}{
		"home":            {want: filepath.Join(home, ".local", "state", "trl", "trl.sock")},
		"no home":         {homeless: true, want: "/run/trl/trl.sock"},
		"runtime":         {variables: []string{"XDG_RUNTIME_DIR=/run/user/7"}, want: "/run/user/7/trl/trl.sock"},
		"relative":        {variables: []string{"XDG_RUNTIME_DIR=run"}, want: filepath.Join(home, ".local", "state", "trl", "trl.sock")},
		"variable":        {variables: []string{"TRL_SOCKET=/v.sock"}, config: "socket = \"/c.sock\"\n", want: "/v.sock"},
		"empty variable":  {variables: []string{"TRL_SOCKET="}, config: "socket = \"/c.sock\"\n", want: "/c.sock"},
		"file":            {config: "max_sessions = 7\nsocket = \"/c.sock\"\n", want: "/c.sock"},
		"other file":      {variables: []string{"TRL_CONFIG=" + other}, config: "socket = \"/c.sock\"\n", want: "/other.sock"},
		"file without it": {config: "max_sessions = 7\n", variables: []string{"XDG_RUNTIME_DIR=/r"}, want: "/r/trl/trl.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(config, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			env := daemon.Environment{Variables: c.variables, Root: c.root, Home: home}
			user := locate.User{Getenv: getenv(c.variables), Root: c.root, Home: home}
			if c.homeless {
				env.Home, user.Home = "", ""
			}
			settings, err := daemon.Load(daemon.Sources{Environment: env})
			if err != nil {
				t.Fatal(err)
			}
			address, token, err := user.Daemon()
			if err != nil || address != "unix:"+c.want || token != "" {
				t.Errorf("a client finds %q, token %q, error %v; want %s", address, token, err, c.want)
			}
			if settings.Socket != c.want {
				t.Errorf("the daemon serves on %s, want %s", settings.Socket, c.want)
			}
		})
	}
}

func getenv(variables []string) func(string) string {
	return func(name string) string {
		for _, v := range variables {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestTheAddressComesFirst(t *testing.T) {
	variables := []string{"TRL_ADDRESS=https://far:7", "TRL_TOKEN=t", "TRL_SOCKET=/s"}
	address, token, err := locate.User{Getenv: getenv(variables)}.Daemon()
	if err != nil || address != "https://far:7" || token != "t" {
		t.Errorf("got %q, %q, %v", address, token, err)
	}
}

func TestABadFileIsNoDefault(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.toml")
	if err := os.WriteFile(broken, []byte("socket = \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.toml")
	if err := os.WriteFile(foreign, []byte("socket = \"/s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(foreign, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{broken, foreign, filepath.Join(dir, "missing.toml")} {
		user := locate.User{Getenv: getenv([]string{"TRL_CONFIG=" + name}), Home: dir}
		if address, _, err := user.Daemon(); err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
			t.Errorf("%s: got %q, %v", filepath.Base(name), address, err)
		}
	}
}
