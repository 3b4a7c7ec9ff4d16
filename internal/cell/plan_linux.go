package cell

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/profile"
)

// plan is how a confined session is made.
type plan struct {
	spec   confine.Spec            // of the TRL in the cell, without Args
	inside Inside                  // for that TRL
	inner  api.SessionCreateParams // of its session
	limits *api.LimitsInForce      // that hold for the whole cell; nil: none
	allow  []string                // what its network leads to
}

// machine is what a plan depends on besides the params.
type machine struct {
	abilities confine.Abilities
	cgroups   []api.Ability            // what the limits of a whole cell need
	dir       string                   // the daemon's working directory
	env       []string                 // for the TRL in the cell
	hide      []string                 // paths that no session may see; those that do not exist are ignored
	guarded   []string                 // sockets of the daemon, which refuses sessions in cells itself
	sockets   func() ([]string, error) // that exist
	lookup    func(user string) (*account, error)
}

// plan returns how to make a session. The error is LIMITS_UNAVAILABLE if this machine
// can't enforce all that the params ask for, and INVALID_PARAMS if they make no sense.
func (m machine) plan(params api.SessionCreateParams) (*plan, error) {
	p := &plan{inner: params}
	p.inner.Isolation, p.inner.Limits, p.inner.Runtime, p.inner.Key = nil, nil, "", ""
	p.spec.Env = m.env
	var err error
	if p.inner.Cwd != "" {
		if p.inner.Cwd, err = m.resolve("cwd", p.inner.Cwd); err != nil {
			return nil, err
		}
	}
	wanted, err := m.expand(*params.Isolation, cmp.Or(p.inner.Cwd, m.dir))
	if err != nil {
		return nil, err
	}
	if err := m.planFiles(p, &wanted); err != nil {
		return nil, err
	}
	p.planCaches()
	if err := p.planNetwork(wanted.Network); err != nil {
		return nil, err
	}
	p.spec.Processes = wanted.Processes == api.IsolationProcessesOwn
	p.spec.Seccomp = wanted.Seccomp == api.IsolationSeccompDefault
	p.spec.NoNewPrivs = true
	wanted.NoNewPrivs = true // every cell has it
	if err := m.planUser(p, wanted.User); err != nil {
		return nil, err
	}
	p.planLimits(params.Limits)
	if err := m.protect(p); err != nil {
		return nil, err
	}
	p.spec.Dir = m.directory(p)
	checked := p.spec
	checked.Args = []string{"trl"} // run sets the others
	if err := m.check(checked, params.Limits); err != nil {
		return nil, err
	}
	force := m.abilities.InForce(p.spec)
	p.inside.Isolation = &api.IsolationInForce{Isolation: wanted, LandlockABI: force.LandlockABI, Mechanisms: force.Mechanisms}
	return p, nil
}

// expand returns an isolation without its profile, and with resolved paths: only these
// can be compared with those of the profile.
func (m machine) expand(wanted api.Isolation, cwd string) (api.Isolation, error) {
	named := wanted.Profile
	if err := m.resolveFiles(&wanted); err != nil || named == "" && wanted.Add == nil {
		return wanted, err
	}
	if cwd == "/" && named != "" && named != api.ProfileReadonly {
		return wanted, api.Errorf(api.CodeInvalidParams, "session.create: the profile %s makes cwd writable, which is /", named).With("field", "cwd").
			WithHint("set cwd to the directory of the work")
	}
	var asked []string
	if wanted.Filesystem != nil {
		asked = wanted.Filesystem.Deny
	}
	out, err := profile.Expand(wanted, profile.Base{Home: homeIn(m.env), Cwd: cwd})
	if wider, ok := errors.AsType[*profile.WideningError](err); ok {
		return out, api.Errorf(api.CodeInvalidParams, "%w: the profile %s does not include it", err, named).With("field", "isolation."+wider.Field).With("profile", string(named)).
			WithHint("the members beside profile narrow it; put what it may do besides into isolation.add")
	}
	if err != nil {
		return out, api.Errorf(api.CodeInvalidParams, "isolation: %w", err).With("field", "isolation").WithHint("system.info lists what this machine can enforce")
	}
	// A profile denies what may not exist here.
	out.Filesystem.Deny = slices.DeleteFunc(out.Filesystem.Deny, func(path string) bool {
		_, err := os.Lstat(path)
		return err != nil && !slices.Contains(asked, path)
	})
	out.Profile = named // for people; its members are there
	return out, nil
}

// planFiles sets the view of the file system. wanted gets the resolved paths.
func (m machine) planFiles(p *plan, wanted *api.Isolation) error {
	if err := m.resolveFiles(wanted); err != nil || wanted.Filesystem == nil {
		return err
	}
	fs := *wanted.Filesystem
	// A shell that has no directory for its temporary files can't read
	// here-documents.
	if len(fs.Write) == 0 && m.abilities.Has(confine.AbilityMount) {
		fs.PrivateTmp = true
	}
	wanted.Filesystem = &fs
	p.spec.Files = &confine.Files{Read: fs.Read, Write: fs.Write, Deny: fs.Deny, PrivateTmp: fs.PrivateTmp}
	if len(fs.Read) == 0 && fs.PrivateTmp && p.inner.Cwd != "" && (within(p.inner.Cwd, "/tmp/") || within(p.inner.Cwd, "/var/tmp/")) {
		p.spec.Files.Read = []string{"/", p.inner.Cwd} // its own /tmp must not hide where it works
	}
	if tmp := temporary(fs); tmp != "" {
		p.spec.Env = setVariable(p.spec.Env, "TMPDIR", tmp)
	}
	return nil
}

// resolveFiles replaces the paths of an isolation by resolved ones, sorted.
func (m machine) resolveFiles(wanted *api.Isolation) (err error) {
	if wanted.Add != nil {
		more := *wanted.Add
		if more.Write, err = m.resolveAll("isolation.add.write", more.Write); err != nil {
			return err
		}
		wanted.Add = &more
	}
	if wanted.Filesystem == nil {
		return nil
	}
	fs := *wanted.Filesystem
	for name, list := range map[string]*[]string{"read": &fs.Read, "write": &fs.Write, "deny": &fs.Deny} {
		if *list, err = m.resolveAll("isolation.filesystem."+name, *list); err != nil {
			return err
		}
	}
	wanted.Filesystem = &fs
	return nil
}

// resolveAll returns resolved paths, sorted; nil for none.
func (m machine) resolveAll(field string, paths []string) (resolved []string, err error) {
	for _, path := range paths {
		path, err = m.resolve(field, path)
		if err != nil {
			return nil, err
		}
		resolved = append(resolved, path)
	}
	slices.Sort(resolved)
	return slices.Compact(resolved), nil
}

// temporary returns a directory for temporary files that the session can write; ""
// if the default is one, or if there is none.
func temporary(fs api.Filesystem) string {
	if fs.PrivateTmp || slices.ContainsFunc(fs.Write, func(dir string) bool { return within("/tmp", dir) }) {
		return "/tmp"
	}
	if len(fs.Write) > 0 {
		return fs.Write[0]
	}
	return ""
}

// resolve returns a path without symbolic links. Relative ones begin at the daemon's
// directory, as those of other sessions do.
func (m machine) resolve(field, path string) (string, error) {
	if !filepath.IsAbs(path) {
		if field != "cwd" {
			return "", api.Errorf(api.CodeInvalidParams, "%s must have absolute paths", field).With("field", field).
				WithHint("write the path from / on")
		}
		path = filepath.Join(m.dir, path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", api.Errorf(api.CodeInvalidParams, "%s: no such path", field).With("field", field).
			WithHint("create it first, or leave it out")
	}
	return resolved, nil
}

// planUser sets the user, and the variables that name it.
func (m machine) planUser(p *plan, name string) error {
	if name == "" {
		return nil
	}
	who, err := m.lookup(name)
	if err != nil {
		return api.Errorf(api.CodeInvalidParams, "isolation.user: no such user").With("field", "isolation.user").
			WithHint("use a name or a uid of /etc/passwd")
	}
	p.spec.User = &confine.User{UID: who.uid, GID: who.gid, Groups: who.groups}
	for _, v := range [][2]string{{"HOME", who.home}, {"USER", who.name}, {"LOGNAME", who.name}} {
		p.spec.Env = setVariable(p.spec.Env, v[0], v[1])
	}
	return nil
}

// protect hides what no confined session may reach, and protects what programs
// outside obey. Only a view can do so. Where none can be made, what Landlock leaves
// within reach is kept in the spec, so that the session is refused.
func (m machine) protect(p *plan) error {
	alone := p.spec.Files == nil && p.spec.DiskBytes == 0 && p.spec.Network == confine.NetworkHost && !p.spec.Processes && p.spec.User == nil && !p.spec.Seccomp
	view := m.abilities.Has(confine.AbilityMount)
	if alone || !view && p.spec.Files == nil {
		return nil
	}
	hide := slices.Clone(m.hide)
	if view {
		hide = append(hide, m.guarded...)
		sockets, err := m.sockets()
		if err != nil {
			return err
		}
		hide = append(hide, slices.DeleteFunc(sockets, func(path string) bool { return within(path, "/run") })...) // a view has its own /run
	}
	for _, path := range hide {
		resolved, err := filepath.EvalSymlinks(path)
		// A view has its own /dev, whose null may be the configuration of the daemon.
		if err == nil && !within(resolved, "/dev") && !slices.Contains(p.spec.Hide, resolved) && (view || p.reaches(resolved)) {
			p.spec.Hide = append(p.spec.Hide, resolved)
		}
	}
	if p.spec.Files == nil {
		return nil
	}
	p.spec.Protect = confine.ProtectedIn(p.spec.Files.Write)
	return nil
}

// reaches reports whether a session that only Landlock keeps to its paths can read a
// path, or connect to it if it is a socket: Landlock allows that everywhere.
func (p *plan) reaches(path string) bool {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		return unix.Access(path, unix.W_OK) == nil
	}
	visible := slices.Concat(p.spec.Files.Read, p.spec.Files.Write)
	return len(p.spec.Files.Read) == 0 || slices.ContainsFunc(visible, func(root string) bool { return within(path, root) || within(root, path) })
}

// directory returns the working directory of the TRL in the cell, which is that of
// its session by default: where the session can write, if that is known.
func (m machine) directory(p *plan) string {
	switch {
	case p.inner.Cwd != "":
		return p.inner.Cwd
	case p.spec.Files == nil && p.spec.User != nil: // who may not enter the daemon's
		return "/"
	case p.spec.Files == nil:
		return m.dir
	case len(p.spec.Files.Write) > 0:
		return p.spec.Files.Write[0]
	default:
		return "/"
	}
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
