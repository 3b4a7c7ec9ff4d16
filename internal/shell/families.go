package shell

import (
	"slices"
	"strings"
)

// families lists all families, in the order in which they are offered to users.
// The first that matches an executable drives it.
func families() []*family { return []*family{&dash, &ash, &bash, &zsh, &mksh} }

// Names returns the names of all families, each of which names a shell.
func Names() []string {
	var names []string
	for _, f := range families() {
		names = append(names, string(f.name))
	}
	return names
}

// Alternatives returns the names for people, joined by commas and "or".
func Alternatives() string {
	var b strings.Builder
	all := families()
	for i, f := range all {
		switch {
		case i == 0:
		case i < len(all)-1:
			b.WriteString(", ")
		default:
			b.WriteString(" or ")
		}
		b.WriteString(string(f.name))
		if f.fallback != "" {
			b.WriteString(" (" + f.fallback + ")")
		}
	}
	return b.String()
}

// known returns the family of this name, nil if this version has none.
func known(name Family) *family {
	all := families()
	if i := slices.IndexFunc(all, func(f *family) bool { return f.name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// bootScripts returns all embedded scripts in the order in which they are loaded.
func bootScripts() []bootScript {
	scripts := slices.Clone(commonScripts)
	for _, f := range families() {
		scripts = append(scripts, f.boot...)
	}
	return scripts
}
