package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// envPrefix begins the name of every variable that is a setting.
const envPrefix = "TRL_"

// configVariable names the configuration file, as --config does.
const configVariable = envPrefix + "CONFIG"

// Variables of those who speak to a daemon, which are no settings of one.
const (
	AddressVariable = envPrefix + "ADDRESS" // where it is
	TokenVariable   = envPrefix + "TOKEN"   // what opens it
)

// Environment is what defaults depend on: the variables of this process, who
// runs it, and where the user is at home.
type Environment struct {
	Variables []string // as of os.Environ
	Root      bool
	Home      string // "" if unknown
}

// SystemEnvironment is that of this process.
func SystemEnvironment() Environment {
	home, _ := os.UserHomeDir() // without one the defaults that need it are left out
	return Environment{Variables: os.Environ(), Root: os.Geteuid() == 0, Home: home}
}

// lookup returns a variable; an empty one is as good as none. Of several with
// one name the last counts, as it does for the shell.
func (e Environment) lookup(name string) (string, bool) {
	for _, entry := range slices.Backward(e.Variables) {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value, value != ""
		}
	}
	return "", false
}

// directory returns an XDG directory. One that is not absolute does not count,
// says their specification.
func (e Environment) directory(name string) (string, bool) {
	dir, ok := e.lookup(name)
	return dir, ok && filepath.IsAbs(dir)
}

// defaultSocket is in a directory that only its user can write to. Never in
// /tmp: there another user could be first.
func (e Environment) defaultSocket() string {
	const name = "trl.sock"
	if dir, ok := e.directory("XDG_RUNTIME_DIR"); ok {
		return filepath.Join(dir, "trl", name)
	}
	if e.Root || e.Home == "" {
		return "/run/trl/" + name
	}
	return filepath.Join(e.Home, ".local", "state", "trl", name)
}

// defaultFile is where the configuration is looked for when nobody says where.
func (e Environment) defaultFile() string {
	const name = "config.toml"
	if dir, ok := e.directory("XDG_CONFIG_HOME"); ok {
		return filepath.Join(dir, "trl", name)
	}
	if e.Root || e.Home == "" {
		return "/etc/trl/" + name
	}
	return filepath.Join(e.Home, ".config", "trl", name)
}

// defaultTokenFile is with what a user's programs remember.
func (e Environment) defaultTokenFile() string {
	const name = "tokens.json"
	if dir, ok := e.directory("XDG_STATE_HOME"); ok {
		return filepath.Join(dir, "trl", name)
	}
	if e.Root || e.Home == "" {
		return "/var/lib/trl/" + name
	}
	return filepath.Join(e.Home, ".local", "state", "trl", name)
}

// defaultSpillDir is /var/tmp where there is one: it is on a disk, while /tmp
// is memory on many systems, and what spills does so to leave memory.
func (e Environment) defaultSpillDir() string {
	if dir, ok := e.directory("TMPDIR"); ok {
		return dir
	}
	const onDisk = "/var/tmp"
	if info, err := os.Stat(onDisk); err == nil && info.IsDir() {
		return onDisk
	}
	return "/tmp"
}

// unknownVariables are those that look like settings and are none: a slip of
// the pen that would otherwise have no effect and no word about it.
func (e Environment) unknownVariables() []string {
	var unknown []string
	for _, entry := range e.Variables {
		name, _, _ := strings.Cut(entry, "=")
		if name == configVariable || name == AddressVariable || name == TokenVariable {
			continue
		}
		if strings.HasPrefix(name, envPrefix) &&
			!slices.ContainsFunc(settings, func(s Setting) bool { return s.Variable() == name }) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
