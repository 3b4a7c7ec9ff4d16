// Package environ says which environment variables every session may have.
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
