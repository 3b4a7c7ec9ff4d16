package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/cell"
	"github.com/terminal-runtime/trl/internal/environ"
	"github.com/terminal-runtime/trl/internal/locate"
	"github.com/terminal-runtime/trl/internal/place"
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

// inCell reports whether this process is the TRL in a cell.
func (e Environment) inCell() bool {
	_, is := e.lookup(cell.Variable)
	return is
}

// inside returns what the daemon outside tells the TRL in a cell, or in a container
// that was made for one session; nothing for others.
func (e Environment) inside() (*cell.Inside, error) {
	if text, is := e.lookup(cell.Variable); is {
		return cell.ParseInside(text)
	}
	c, err := e.container()
	if err != nil || c.Limits == (api.LimitsInForce{}) {
		return &cell.Inside{}, err
	}
	return &cell.Inside{Limits: &c.Limits}, nil
}

// container returns what the daemon outside tells the TRL in a container that was
// made for one session; nothing for others.
func (e Environment) container() (*place.Container, error) {
	text, is := e.lookup(place.ContainerVariable)
	if !is {
		return &place.Container{}, nil
	}
	return place.ParseContainer(text)
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
	known := []string{locate.ConfigVariable, AddressVariable, TokenVariable, cell.Variable, place.ContainerVariable}
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
