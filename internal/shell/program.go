package shell

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Program is a shell found on this host.
type Program struct {
	Path   string // absolute
	Family Family // "" if the driver cannot drive it
	Argv0  string
}

// Find looks up a shell by path, or by name in PATH. An empty name means /bin/sh.
// ok is false if there is no such program; Family is empty if the program is not a
// shell that the driver knows.
func Find(name string) (p Program, ok bool) {
	if name == "" {
		name = "/bin/sh"
	}
	p.Argv0 = filepath.Base(name)
	path, err := exec.LookPath(name)
	if f := known(Family(name)); err != nil && f != nil && f.fallback != "" {
		path, err = exec.LookPath(f.fallback)
	}
	if err != nil {
		return p, false
	}
	if path, err = filepath.Abs(path); err != nil {
		return p, false
	}
	p.Path = path
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		file = path
	}
	p.Family = familyOf(p.Argv0, filepath.Base(file))
	return p, true
}

// familyOf returns the family of an executable, "" if no family matches it.
func familyOf(called, file string) Family {
	for _, f := range families() {
		if f.matches(called, file) {
			return f.name
		}
	}
	return ""
}

// VersionArgs returns the arguments with which the program prints its version, nil
// if it cannot print one.
func (p Program) VersionArgs() []string {
	if f := known(p.Family); f != nil {
		return f.version
	}
	return nil
}

// controlPath matches the part of a driven shell's command line that names its
// control pipe.
var controlPath = regexp.MustCompile(`^(-c \. )?/proc/\d+/fd/\d+( \S+)?$`)

// IsDriven reports whether a command line, its words joined by blanks, is that of a
// driven shell of this program: of the shell itself, or of a process that it has
// forked and that has not executed another program.
func (p Program) IsDriven(command string) bool {
	f := known(p.Family)
	if f == nil {
		return false
	}
	control, found := strings.CutPrefix(command, f.title(p.Argv0))
	return found && controlPath.MatchString(control)
}
