// Package locate says where a user's daemon is: in the address that the
// environment names, on the socket of the configuration, or on the default
// socket. The daemon, the command line and programs that use the client follow
// the same rules.
package locate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"github.com/terminal-runtime/trl/internal/trust"
)

// Variables that say where a daemon is.
const (
	AddressVariable = "TRL_ADDRESS" // address of the daemon; only clients read it
	TokenVariable   = "TRL_TOKEN"   // token for that address
	SocketVariable  = "TRL_SOCKET"  // path of its socket
	ConfigVariable  = "TRL_CONFIG"  // path of the configuration file
)

// User is what the defaults depend on.
type User struct {
	// Getenv returns a variable of the environment, "" if it is not set.
	Getenv func(name string) string
	Root   bool
	Home   string // "" if unknown
}

// CurrentUser returns the user of this process.
func CurrentUser() User {
	home, _ := os.UserHomeDir() // without one, other defaults apply
	return User{Getenv: os.Getenv, Root: os.Geteuid() == 0, Home: home}
}

// Directory returns an XDG directory, or "" if there is none. Their
// specification says to ignore relative paths.
func (u User) Directory(name string) string {
	if dir := u.Getenv(name); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

// Socket returns the default path of the socket, in a directory that only its
// user can write to. It is never in /tmp, where another user could create it
// first.
func (u User) Socket() string {
	const name = "trl.sock"
	if dir := u.Directory("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "trl", name)
	}
	if u.Root || u.Home == "" {
		return "/run/trl/" + name
	}
	return filepath.Join(u.Home, ".local", "state", "trl", name)
}

// ConfigFile returns the path of the configuration file, and whether the
// environment names it. One that is named must exist.
func (u User) ConfigFile() (path string, named bool) {
	const name = "config.toml"
	if path := u.Getenv(ConfigVariable); path != "" {
		return path, true
	}
	if dir := u.Directory("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "trl", name), false
	}
	if u.Root || u.Home == "" {
		return "/etc/trl/" + name, false
	}
	return filepath.Join(u.Home, ".config", "trl", name), false
}

// Daemon returns the address of the user's daemon as the command line finds it
// without flags, and the token to send there.
func (u User) Daemon() (address, token string, err error) {
	if address := u.Getenv(AddressVariable); address != "" {
		return address, u.Getenv(TokenVariable), nil
	}
	socket := u.Getenv(SocketVariable)
	if socket == "" {
		if socket, err = u.configuredSocket(); err != nil {
			return "", "", err
		}
	}
	if socket == "" {
		socket = u.Socket()
	}
	socket, err = filepath.Abs(socket)
	return "unix:" + socket, "", err
}

// configuredSocket returns the socket in the configuration file, or "".
func (u User) configuredSocket() (string, error) {
	name, named := u.ConfigFile()
	text, err := trust.ReadFile(name, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) && !named {
		return "", nil
	}
	var config struct {
		Socket string `toml:"socket"`
	}
	if err == nil {
		_, err = toml.Decode(string(text), &config)
	}
	if err != nil {
		return "", fmt.Errorf("configuration %s: %w", name, err)
	}
	return config.Socket, nil
}
