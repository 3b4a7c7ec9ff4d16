package service

import (
	"context"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// This file is about a daemon that serves no sessions of its own.

// lacks reports whether the part of the configuration that serves the method is
// nil.
func (c *Config) lacks(method string) bool {
	switch method {
	case api.MethodSystemPing, api.MethodSystemInfo, api.MethodSystemStats, api.MethodSystemDelegate, api.MethodSystemDisconnect:
		return false
	}
	switch noun, _, _ := strings.Cut(method, "."); noun {
	case "session":
		return c.Sessions == nil
	case "exec":
		return c.Execs == nil
	case "place":
		return false
	default:
		return c.Sessions == nil && c.Execs == nil
	}
}

// NoLocalPlace is the error of a call that needs sessions on this machine.
func NoLocalPlace() *api.Error {
	return api.Errorf(api.CodeRuntimeUnavailable, "this machine has no local place for sessions: it is not Linux, or host_runtime is off").
		With("runtime", api.RuntimeHost).
		WithHint("name a place as runtime, such as docker:NAME or ssh:HOST, or connect to a daemon on a Linux machine with --address")
}

// noSessions stands for Sessions that are nil. Only List is ever called, to
// count the sessions of a tagged caller.
type noSessions struct{ Sessions }

// List returns no sessions.
func (noSessions) List(context.Context, api.SessionListParams) (*api.SessionListResult, error) {
	return &api.SessionListResult{Sessions: []api.Session{}}, nil
}

// noExecs stands for Execs that are nil. None of its methods is ever called.
type noExecs struct{ Execs }
