// Package environ says which environment variables a session may have, of the
// daemon or of the client that creates it, and which ones reach places.
package environ

import (
	"slices"
	"strings"
)

// base lists the variables that programs need to work and to talk to the user.
// None of them may hold a secret.
var base = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"}

// IsBase reports whether a session whose inherit_env is api.InheritBase inherits
// the variable.
func IsBase(name string) bool {
	return slices.Contains(base, name) || strings.HasPrefix(name, "LC_")
}

// IsCallers reports whether the variable is one of IsBase of which a client's own
// value is better than the daemon's. The terminal type and the shell are the
// session's own.
func IsCallers(name string) bool {
	return IsBase(name) && name != "TERM" && name != "SHELL"
}

// toolchain lists the variables by which people select the programs and libraries
// they work with: an activated environment, a version manager, an editor. None of
// them may hold a secret, or open the way to one.
var toolchain = []string{
	"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_VERSION", "PYTHONPATH",
	"NVM_BIN", "NODE_PATH", "GEM_HOME", "GEM_PATH", "RBENV_VERSION",
	"GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "JAVA_HOME",
	"LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "MANPATH",
	"EDITOR", "VISUAL", "PAGER", "COLORTERM", "NO_COLOR",
}

// IsFromHere reports whether a client passes on the variable when it asks for its
// own environment: one of IsCallers, or one that selects a toolchain.
func IsFromHere(name string) bool {
	return IsCallers(name) || slices.Contains(toolchain, name)
}

// places lists the variables by which ssh, docker, podman and kubectl find the
// user's keys, engines and clusters.
var places = []string{
	"SSH_AUTH_SOCK", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
	"CONTAINER_HOST", "KUBECONFIG",
}

// PlacePrefix begins the names of variables that a daemon in the background has only
// for the programs that reach places. No session inherits a name with this prefix.
const PlacePrefix = "TRL_FOR_PLACES_"

// IsForPlaces reports whether programs that reach places need the variable.
func IsForPlaces(name string) bool { return slices.Contains(places, name) }

// ForPlaces returns the variables for programs that reach places: those of the
// daemon, in which the names with PlacePrefix have their real names again.
func ForPlaces(variables []string) []string {
	out := make([]string, len(variables))
	for i, variable := range variables {
		out[i] = strings.TrimPrefix(variable, PlacePrefix)
	}
	return out
}
