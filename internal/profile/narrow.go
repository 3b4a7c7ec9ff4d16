package profile

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/proxy"
)

// WideningError says which member of an isolation asks for more than the isolation
// that it was to narrow.
type WideningError struct {
	Field   string // such as filesystem.write
	Problem string
}

func (e *WideningError) Error() string { return "isolation." + e.Field + ": " + e.Problem }

func widens(field, format string, args ...any) error {
	return &WideningError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Narrow returns an isolation that is as strict as outer and as inner. What inner
// leaves out is as in outer. The error is a *WideningError if inner asks for
// something that outer forbids: it would be refused anyway, without saying why.
// Neither has a profile; their paths are absolute and clean.
func Narrow(outer, inner api.Isolation) (api.Isolation, error) {
	out := api.Isolation{
		Processes: either(outer.Processes, inner.Processes), Seccomp: either(outer.Seccomp, inner.Seccomp),
		User: either(outer.User, inner.User), NoNewPrivs: outer.NoNewPrivs || inner.NoNewPrivs,
	}
	if outer.User != "" && inner.User != "" && outer.User != inner.User {
		return out, widens("user", "the session must run as %s", outer.User)
	}
	var err error
	if out.Filesystem, err = narrowFilesystem(outer.Filesystem, inner.Filesystem); err != nil {
		return out, err
	}
	out.Network, err = narrowNetwork(outer.Network, inner.Network)
	return out, err
}

// either returns the one that is set.
func either(outer, inner string) string {
	if outer != "" {
		return outer
	}
	return inner
}

func narrowFilesystem(outer, inner *api.Filesystem) (*api.Filesystem, error) {
	if outer == nil || inner == nil {
		return clone(outer, inner), nil
	}
	out := api.Filesystem{PrivateTmp: outer.PrivateTmp || inner.PrivateTmp, Deny: slices.Concat(outer.Deny, inner.Deny)}
	slices.Sort(out.Deny)
	out.Deny = slices.Compact(out.Deny)
	var err error
	// No list of what can be read means everything.
	if out.Read, err = narrowPaths("filesystem.read", outer.Read, inner.Read, len(outer.Read) == 0); err != nil {
		return nil, err
	}
	if out.Write, err = narrowPaths("filesystem.write", outer.Write, inner.Write, false); err != nil {
		return nil, err
	}
	return &out, nil
}

// clone returns a copy of the one that is set.
func clone(outer, inner *api.Filesystem) *api.Filesystem {
	for _, f := range []*api.Filesystem{outer, inner} {
		if f != nil {
			return &api.Filesystem{Read: slices.Clone(f.Read), Write: slices.Clone(f.Write), Deny: slices.Clone(f.Deny), PrivateTmp: f.PrivateTmp}
		}
	}
	return nil
}

// narrowPaths returns the inner paths, all of which must be within the outer ones; the
// outer ones if there are none. all says that outer has every path.
func narrowPaths(field string, outer, inner []string, all bool) ([]string, error) {
	if len(inner) == 0 {
		return slices.Clone(outer), nil
	}
	for _, path := range inner {
		if !all && !slices.ContainsFunc(outer, func(dir string) bool { return within(filepath.Clean(path), dir) }) {
			return nil, widens(field, "%q is not below a path that is allowed (%q)", path, outer)
		}
	}
	return slices.Clone(inner), nil
}

func narrowNetwork(outer, inner *api.Network) (*api.Network, error) {
	switch {
	case inner == nil:
		return outer, nil
	case outer == nil, inner.Mode == api.NetworkNone:
		return inner, nil
	case outer.Mode == api.NetworkNone:
		return nil, widens("network", "only %q is allowed", api.NetworkNone)
	case inner.Mode == api.NetworkLoopback:
		return inner, nil
	case outer.Mode == api.NetworkLoopback:
		return nil, widens("network", "only %q and %q are allowed", api.NetworkNone, api.NetworkLoopback)
	}
	allowed, err := proxy.Parse(outer.Allow)
	if err != nil {
		return nil, err
	}
	wanted, err := proxy.Parse(inner.Allow)
	if err != nil {
		return nil, err
	}
	if missing := allowed.Lacks(wanted); missing != "" {
		return nil, widens("network.allow", "%q is not allowed", missing)
	}
	return inner, nil
}
