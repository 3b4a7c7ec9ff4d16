package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/units"
)

// confineFlags are the flags of a new session that say what it may do and use.
type confineFlags struct {
	sandbox        string
	network        []string
	writable, deny []string
	isolation      string
	limits         api.Limits
	wall           durationFlag
}

// confineFlagNames are the names of all confineFlags.
var confineFlagNames = slices.Concat([]string{"sandbox", "network", "writable", "deny", "isolation"}, limitFlagNames)

var limitFlagNames = []string{"memory", "cpus", "pids", "open-files", "file-size", "disk", "wall"}

// profileNames are the profiles, for help texts and completion.
var profileNames = []string{string(api.ProfileWorkspace), string(api.ProfileReadonly), string(api.ProfileOffline)}

// sandboxNone is the value of --sandbox for a session without isolation, where one is
// the default.
const sandboxNone = "none"

func (f *confineFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.sandbox, "sandbox", "", "confine it by `PROFILE`: workspace, readonly or offline; none overrides default_isolation")
	flags.StringArrayVar(&f.network, "network", nil, "let it reach only `HOST:PORT` (with --sandbox: too), loopback or none; may be repeated")
	flags.StringArrayVar(&f.writable, "writable", nil, "let it write only below `PATH` (with --sandbox: too); may be repeated")
	flags.StringArrayVar(&f.deny, "deny", nil, "hide `PATH` from it; may be repeated")
	flags.StringVar(&f.isolation, "isolation", "", "confine it by `JSON`, as session.create takes it")
	flags.Var((*sizeFlag)(&f.limits.MemoryBytes), "memory", "let it use at most this much memory, such as 512m")
	flags.Float64Var(&f.limits.CPU, "cpus", 0, "let it use at most `N` processors, such as 0.5")
	flags.Int64Var(&f.limits.PIDs, "pids", 0, "let it have at most `N` processes and threads")
	flags.Int64Var(&f.limits.OpenFiles, "open-files", 0, "let each process have at most `N` open files")
	flags.Var((*sizeFlag)(&f.limits.FileSizeBytes), "file-size", "let it write files up to this size")
	flags.Var((*sizeFlag)(&f.limits.DiskBytes), "disk", "let it store this much in its private directories")
	durationVar(cmd, &f.wall, "wall", "end the session this long after its creation")
	must(cmd.RegisterFlagCompletionFunc("sandbox", cobra.FixedCompletions(profileNames, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.MarkFlagDirname("writable"))
	groupFlags(cmd, "Confinement", "sandbox", "network", "writable", "deny", "isolation")
	groupFlags(cmd, "Limits", limitFlagNames...)
}

// newSession are the params of session.create. The isolation may have been written by
// a person: the daemon must see what this program does not know.
type newSession struct {
	api.SessionCreateParams
	Isolation json.RawMessage `json:"isolation,omitempty"`
}

// apply sets the limits and the isolation of a new session.
func (f *confineFlags) apply(params *newSession) (err error) {
	if ms := f.wall.milliseconds(); ms != nil {
		f.limits.WallMS = *ms
	}
	if f.limits != (api.Limits{}) {
		params.Limits = &f.limits
	}
	for _, paths := range [][]string{f.writable, f.deny} {
		for i, path := range paths {
			if paths[i], err = absolute(path, params.Runtime); err != nil {
				return err
			}
		}
	}
	if f.isolation != "" {
		params.Isolation, err = f.written()
		return err
	}
	wanted, err := f.wanted()
	if err == nil && wanted != nil {
		params.Isolation, err = json.Marshal(wanted)
	}
	return err
}

// written returns the value of --isolation.
func (f *confineFlags) written() (json.RawMessage, error) {
	if f.sandbox != "" || len(f.network)+len(f.writable)+len(f.deny) > 0 {
		return nil, usage("--isolation excludes --sandbox, --network, --writable and --deny: write all of it in the JSON")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(f.isolation), &members); err != nil || len(members) == 0 {
		return nil, usage("--isolation %q: write a JSON object, such as '{\"network\": \"none\"}'", f.isolation)
	}
	return json.RawMessage(f.isolation), nil
}

// absolute returns a path of --writable or --deny for the daemon, whose directory is
// another one than ours.
func absolute(path, place string) (string, error) {
	if place != "" && place != api.RuntimeHost && !filepath.IsAbs(path) {
		return "", usage("--writable and --deny need absolute paths in a place, not %q", path)
	}
	return filepath.Abs(path)
}

// wanted returns the isolation that the flags describe; nil for none.
func (f *confineFlags) wanted() (*api.Isolation, error) {
	paths := len(f.writable) > 0 || len(f.deny) > 0
	if f.sandbox == "" && !paths && len(f.network) == 0 {
		return nil, nil
	}
	if f.sandbox == sandboxNone {
		if paths || len(f.network) > 0 {
			return nil, usage("--sandbox none excludes --network, --writable and --deny")
		}
		return &api.Isolation{}, nil
	}
	if f.sandbox != "" && !slices.Contains(profileNames, f.sandbox) {
		return nil, usage("--sandbox %q: the profiles are %s", f.sandbox, strings.Join(profileNames, ", "))
	}
	if f.sandbox == "" && len(f.deny) > 0 && len(f.writable) == 0 {
		return nil, usage("--deny needs --sandbox or --writable, which say what can be written")
	}
	network, err := f.wantedNetwork()
	if err != nil {
		return nil, err
	}
	i := &api.Isolation{Profile: api.Profile(f.sandbox), Network: network}
	if f.sandbox == "" {
		if paths {
			i.Filesystem = &api.Filesystem{Write: f.writable, Deny: f.deny}
		}
		return i, nil
	}
	if len(f.deny) > 0 {
		i.Filesystem = &api.Filesystem{Deny: f.deny}
	}
	more := api.Addition{Write: f.writable}
	if network != nil && network.Mode == "" {
		more.Allow, i.Network = network.Allow, nil
	}
	if len(more.Write)+len(more.Allow) > 0 {
		i.Add = &more
	}
	return i, nil
}

// wantedNetwork returns what --network says; nil if it is not given.
func (f *confineFlags) wantedNetwork() (*api.Network, error) {
	if len(f.network) == 0 {
		return nil, nil
	}
	for _, entry := range f.network {
		if entry != api.NetworkNone && entry != api.NetworkLoopback {
			continue
		}
		if len(f.network) > 1 {
			return nil, usage("--network %s excludes any other --network", entry)
		}
		return &api.Network{Mode: entry}, nil
	}
	return &api.Network{Allow: f.network}, nil
}

// sizeFlag is a number of bytes on the command line, such as 512m.
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return units.ExactSize(int64(*s))
}

// Type returns the placeholder for the value in help texts.
func (*sizeFlag) Type() string { return "size" }

// Set parses the value.
func (s *sizeFlag) Set(text string) error {
	n, err := units.ParseSize(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("the size must be more than 0")
	}
	*s = sizeFlag(n)
	return err
}

// limitsText describes limits in one line; "" for none.
func limitsText(l *api.LimitsInForce) string {
	if l == nil {
		return ""
	}
	var parts []string
	add := func(set bool, name, value string) {
		if set {
			parts = append(parts, name+" "+value)
		}
	}
	add(l.MemoryBytes > 0, "memory", units.ExactSize(l.MemoryBytes))
	add(l.CPU > 0, "cpus", strconv.FormatFloat(l.CPU, 'f', -1, 64))
	add(l.PIDs > 0, "pids", strconv.FormatInt(l.PIDs, 10))
	add(l.OpenFiles > 0, "open files", strconv.FormatInt(l.OpenFiles, 10))
	add(l.FileSizeBytes > 0, "file size", units.ExactSize(l.FileSizeBytes))
	add(l.DiskBytes > 0, "disk", units.ExactSize(l.DiskBytes))
	add(l.WallMS > 0, "wall", units.Milliseconds(l.WallMS))
	return strings.Join(parts, ", ")
}

// maxListed is how many paths or hosts one line names.
const maxListed = 4

// listed joins what fits into one line.
func listed(entries []string) string {
	if len(entries) > maxListed {
		return strings.Join(entries[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(entries)-maxListed)
	}
	return strings.Join(entries, ", ")
}

// showIsolation calls field with what holds in a confined session.
func showIsolation(i *api.IsolationInForce, field func(name, value string)) {
	if i == nil {
		return
	}
	field("sandbox", sandboxText(i)+", by "+strings.Join(i.Mechanisms, ", "))
	if fs := i.Filesystem; fs != nil {
		write := listed(fs.Write)
		if fs.PrivateTmp {
			write = strings.TrimPrefix(write+", its own /tmp", ", ")
		}
		if write == "" {
			write = "nothing"
		}
		field("can write", write)
		field("can read", listed(fs.Read))
		field("can't see", listed(fs.Deny))
	}
	if n := i.Network; n != nil {
		field("network", networkText(n))
	}
	field("user", i.User)
}

func networkText(n *api.Network) string {
	switch {
	case n.Mode == api.NetworkLoopback:
		return "only its own loopback"
	case n.Mode != "":
		return n.Mode
	case len(n.Allow) == 0:
		return "nothing is allowed"
	}
	return listed(n.Allow)
}

// sandboxText names what confines a session: its profile, or its members.
func sandboxText(i *api.IsolationInForce) string {
	if i.Profile != "" {
		return string(i.Profile)
	}
	return strings.Join(i.Names(), "+")
}
