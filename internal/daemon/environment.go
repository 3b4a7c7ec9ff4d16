package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/environ"
	"github.com/terminal-runtime/trl/internal/locate"
	"github.com/terminal-runtime/trl/internal/spelling"
)

// envPrefix is the prefix of every variable that is a setting.
const envPrefix = "TRL_"

// Variables that clients read. They are not settings of a daemon.
const (
	AddressVariable = locate.AddressVariable
	TokenVariable   = locate.TokenVariable
)

// Environment is what defaults depend on: the variables of this process, whether
// root runs it, and the user's home directory.
type Environment struct {
	Variables []string // as from os.Environ
	Root      bool
	Home      string // "" if unknown
}

// SystemEnvironment returns the environment of this process.
func SystemEnvironment() Environment {
	home, _ := os.UserHomeDir() // without one, other defaults apply
	return Environment{Variables: os.Environ(), Root: os.Geteuid() == 0, Home: home}
}

// lookup returns a variable; an empty one counts as unset. Of several with the same
// name the last one counts, as in a shell.
func (e Environment) lookup(name string) (string, bool) {
	for _, entry := range slices.Backward(e.Variables) {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value, value != ""
		}
	}
	return "", false
}

// user returns what says where this user's daemon is.
func (e Environment) user() locate.User {
	getenv := func(name string) string {
		value, _ := e.lookup(name)
		return value
	}
	return locate.User{Getenv: getenv, Root: e.Root, Home: e.Home}
}

// directory returns an XDG directory, if there is one.
func (e Environment) directory(name string) (string, bool) {
	dir := e.user().Directory(name)
	return dir, dir != ""
}

// stateDir returns the directory for the logs of background daemons. Root has a home
// too, and starts such daemons for itself; services log to the journal.
func (e Environment) stateDir() string {
	if dir, ok := e.directory("XDG_STATE_HOME"); ok {
		return filepath.Join(dir, "trl")
	}
	if e.Home == "" {
		return "/var/lib/trl"
	}
	return filepath.Join(e.Home, ".local", "state", "trl")
}

// defaultTokenFile returns a path in the user's state directory.
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

// defaultSpillDir returns /var/tmp if it exists: it is on a disk, while /tmp is in
// memory on many systems, and output is spilled to free memory.
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

// UnknownVariable is a variable that looks like a setting but is not: a typing error,
// which would otherwise be ignored silently.
type UnknownVariable struct {
	Name  string
	Meant string // the setting it was probably meant to be; "" if none is close
}

// UnknownVariables returns those variables, in the order of their names.
func (e Environment) UnknownVariables() (unknown []UnknownVariable) {
	known := []string{locate.ConfigVariable, AddressVariable, TokenVariable}
	for _, s := range settings {
		known = append(known, s.Variable())
	}
	for _, entry := range e.Variables {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) && !environ.IsForPlaces(strings.TrimPrefix(name, environ.PlacePrefix)) {
			meant, _ := spelling.Closest(name, known)
			unknown = append(unknown, UnknownVariable{name, meant})
		}
	}
	slices.SortFunc(unknown, func(a, b UnknownVariable) int { return strings.Compare(a.Name, b.Name) })
	return unknown
}

// warnUnknownVariables logs those variables.
func (e Environment) warnUnknownVariables(log *slog.Logger) {
	for _, v := range e.UnknownVariables() {
		attributes := []any{"variable", v.Name}
		if v.Meant != "" {
			attributes = append(attributes, "did_you_mean", v.Meant)
		}
		log.Warn("unknown setting in the environment", attributes...)
	}
}
