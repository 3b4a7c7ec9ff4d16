package shellsyntax

import "path"

// Dialect is what differs between the shells, as far as it matters here. The zero
// value is that of dash and of a POSIX sh.
type Dialect struct {
	DollarQuotes bool // $'…' with escapes
	Extended     bool // [[ … ]], (( … )), select and function
	Zsh          bool // } ends a group wherever it is a word; any word may have parentheses
}

// DialectOf returns the dialect of the shell with this path.
func DialectOf(shell string) Dialect {
	switch path.Base(shell) {
	case "bash", "mksh", "ksh":
		return Dialect{DollarQuotes: true, Extended: true}
	case "zsh":
		return Dialect{DollarQuotes: true, Extended: true, Zsh: true}
	case "ash", "busybox":
		return Dialect{DollarQuotes: true}
	}
	return Dialect{}
}
