package mcp

import (
	"errors"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/profile"
)

// isolationSetting is the setting that says what confines sessions of agents at least.
const isolationSetting = "mcp_isolation"

// confinement returns the isolation of a new session: the profile that the model asks
// for, "" for none, which can only be stricter than the daemon's setting. nil means
// that the daemon decides.
func confinement(info *api.SystemInfo, sandbox string) (*api.Isolation, error) {
	var wanted *api.Isolation
	if sandbox != "" {
		wanted = &api.Isolation{Profile: api.Profile(sandbox)}
	}
	limit, _ := info.Config[isolationSetting].(string)
	if limit == "" {
		return wanted, nil
	}
	out, err := profile.AtMost(api.Profile(limit), wanted)
	if _, ok := errors.AsType[*profile.WideningError](err); ok {
		return nil, api.Errorf(api.CodeForbidden, "sessions of agents are confined at least by %s here, and %s is not as strict", limit, sandbox).
			With("field", "sandbox").WithHint("leave sandbox out to get %s", limit)
	}
	return out, err
}

// sandboxOf returns the profile that confines a session; "" if it has none.
func sandboxOf(s *api.Session) string {
	if s.Isolation == nil {
		return ""
	}
	return string(s.Isolation.Profile)
}

// confinedBy says in a word what confines a session; "" means nothing.
func confinedBy(i *api.IsolationInForce) string {
	switch {
	case i == nil:
		return ""
	case i.Profile != "":
		return string(i.Profile)
	}
	return "custom"
}
