package profile

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

//go:embed registries.txt
var registriesText string

// Registries returns the hosts of the public package registries, as entries of an
// allow-list.
func Registries() []string {
	var hosts []string
	for line := range strings.Lines(registriesText) {
		entry, _, _ := strings.Cut(line, "#")
		if entry = strings.TrimSpace(entry); entry != "" {
			hosts = append(hosts, entry)
		}
	}
	return hosts
}

// secrets are the files and directories of a user that hold keys, tokens and
// passwords, relative to the home directory. No profile lets a session read them.
var secrets = []string{
	".ssh", ".gnupg", ".password-store", ".local/share/keyrings",
	".aws", ".azure", ".config/gcloud", ".config/gh", ".config/glab-cli", ".kube", ".docker", ".config/containers",
	".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml",
	".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".terraform.d", ".vault-token", ".pgpass", ".my.cnf",
	".claude/.credentials.json", ".codex/auth.json", ".gemini", ".config/trl",
	".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history",
}

// systemSecrets are those of the machine.
var systemSecrets = []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/root"}

// Base is where the paths of a profile begin.
type Base struct {
	Home string // of the user; "": none
	Cwd  string // of the session, absolute
}

// ErrNoProfile says that an isolation adds to a profile that it does not name.
var ErrNoProfile = errors.New("add needs a profile that it adds to")

// Expand returns an isolation without its profile: the members that the profile stands
// for and what is added to them, narrowed by the others. The error says what they
// would widen.
func Expand(i api.Isolation, at Base) (api.Isolation, error) {
	named, more := i.Profile, i.Add
	i.Profile, i.Add = "", nil
	if named == "" {
		if more != nil {
			return api.Isolation{}, ErrNoProfile
		}
		return i, nil
	}
	base, err := Named(named, at)
	if err != nil {
		return api.Isolation{}, err
	}
	if more != nil {
		add(&base, *more)
	}
	return Narrow(base, i)
}

// add widens what a profile stands for. A network that is only loopback, or none,
// becomes a list.
func add(to *api.Isolation, more api.Addition) {
	to.Filesystem.Write = slices.Concat(to.Filesystem.Write, more.Write)
	if len(more.Allow) > 0 {
		to.Network = &api.Network{Allow: slices.Concat(to.Network.Allow, more.Allow)}
	}
}

// Named returns what a profile stands for.
func Named(name api.Profile, at Base) (api.Isolation, error) {
	i := api.Isolation{
		Filesystem: &api.Filesystem{Write: []string{at.Cwd}, Deny: denied(at), PrivateTmp: true},
		Network:    &api.Network{Allow: Registries()},
		Processes:  api.IsolationProcessesOwn, NoNewPrivs: true, Seccomp: api.IsolationSeccompDefault,
	}
	switch name {
	case api.ProfileWorkspace:
	case api.ProfileOffline:
		i.Network = &api.Network{Mode: api.NetworkLoopback}
	case api.ProfileReadonly:
		i.Filesystem.Write = nil
		i.Network = &api.Network{Mode: api.NetworkNone}
	default:
		return api.Isolation{}, fmt.Errorf("there is no profile %q", name)
	}
	return i, nil
}

// denied returns the secrets that a session with its work in cwd must not read. The
// home of root is one of them, unless the work is there.
func denied(at Base) []string {
	var paths []string
	if at.Home != "" {
		for _, name := range secrets {
			paths = append(paths, filepath.Join(at.Home, name))
		}
	}
	for _, path := range systemSecrets {
		if !within(at.Cwd, path) && at.Home != path {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// within reports whether path is dir or below it. Both are absolute and clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
