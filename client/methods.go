package client

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

func call[R any](ctx context.Context, c *Client, method string, params any) (*R, error) {
	var result R
	if err := c.Call(ctx, method, params, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

// Ping checks that the daemon answers.
func (c *Client) Ping(ctx context.Context) (*api.PingResult, error) {
	return call[api.PingResult](ctx, c, api.MethodSystemPing, nil)
}

// SystemInfo describes the daemon and what it can enforce on its machine.
func (c *Client) SystemInfo(ctx context.Context) (*api.SystemInfo, error) {
	return call[api.SystemInfo](ctx, c, api.MethodSystemInfo, nil)
}

// Upgrade lets the binary that is now at the daemon's path take over its
// sessions, if it can, and returns before the takeover. It works only over a
// Unix socket.
func (c *Client) Upgrade(ctx context.Context) (*api.UpgradeResult, error) {
	return call[api.UpgradeResult](ctx, c, api.MethodSystemUpgrade, nil)
}

// Stats counts what the daemon does and holds.
func (c *Client) Stats(ctx context.Context) (*api.SystemStats, error) {
	return call[api.SystemStats](ctx, c, api.MethodSystemStats, nil)
}

// CreateSession starts a session. If p has no key, CreateSession sets one, so
// that it can be repeated after a lost connection and still creates only one
// session.
func (c *Client) CreateSession(ctx context.Context, p api.SessionCreateParams) (*api.Session, error) {
	return keyed(c, p.Key, func(key string) (*api.Session, error) {
		p.Key = key
		return call[api.Session](ctx, c, api.MethodSessionCreate, p)
	})
}

// keyed makes a call with a generated key if none is given, unless the daemon
// is an older version that does not accept a key for this method.
func keyed[R any](c *Client, given string, call func(key string) (*R, error)) (*R, error) {
	if given != "" || !c.transport.canRedial() || c.keyless.Load() {
		return call(given)
	}
	r, err := call(newKey())
	if !api.IsCode(err, api.CodeInvalidParams) || api.AsError(err).Details["field"] != "key" {
		return r, err
	}
	c.keyless.Store(true)
	return call("")
}

// ListSessions lists sessions, oldest first.
func (c *Client) ListSessions(ctx context.Context, p api.SessionListParams) (*api.SessionListResult, error) {
	return call[api.SessionListResult](ctx, c, api.MethodSessionList, p)
}

// SessionInfo returns a session with its execs and processes.
func (c *Client) SessionInfo(ctx context.Context, p api.SessionParams) (*api.SessionInfo, error) {
	return call[api.SessionInfo](ctx, c, api.MethodSessionInfo, p)
}

// DestroySession ends a session, and returns when its processes are gone.
func (c *Client) DestroySession(ctx context.Context, p api.SessionDestroyParams) (*api.SessionDestroyResult, error) {
	return call[api.SessionDestroyResult](ctx, c, api.MethodSessionDestroy, p)
}

// Run runs a command in a session. Abandoning the call does not stop the
// command: use Cancel. If p has no key, Run sets one, so that it can be
// repeated after a lost connection and still runs the command only once.
func (c *Client) Run(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	if p.Key == "" && c.transport.canRedial() {
		p.Key = newKey()
	}
	return call[api.ExecResult](ctx, c, api.MethodExecRun, p)
}

// Output reads a command's output, starting at an offset.
func (c *Client) Output(ctx context.Context, p api.ExecOutputParams) (*api.ExecOutputResult, error) {
	return call[api.ExecOutputResult](ctx, c, api.MethodExecOutput, p)
}

// Input writes to a command's standard input. If p has neither a key nor an
// offset, Input sets a key, so that it can be repeated after a lost connection
// and still writes only once.
func (c *Client) Input(ctx context.Context, p api.ExecInputParams) (*api.ExecInputResult, error) {
	if p.At != nil {
		return call[api.ExecInputResult](ctx, c, api.MethodExecInput, p)
	}
	return keyed(c, p.Key, func(key string) (*api.ExecInputResult, error) {
		p.Key = key
		return call[api.ExecInputResult](ctx, c, api.MethodExecInput, p)
	})
}

// Signal signals a command's processes.
func (c *Client) Signal(ctx context.Context, p api.ExecSignalParams) (*api.ExecSignalResult, error) {
	return call[api.ExecSignalResult](ctx, c, api.MethodExecSignal, p)
}

// Cancel stops a command, and returns when it is gone.
func (c *Client) Cancel(ctx context.Context, p api.ExecCancelParams) (*api.ExecCancelResult, error) {
	return call[api.ExecCancelResult](ctx, c, api.MethodExecCancel, p)
}

// ExecInfo returns how a command ended, or that it still runs.
func (c *Client) ExecInfo(ctx context.Context, p api.ExecParams) (*api.ExecResult, error) {
	return call[api.ExecResult](ctx, c, api.MethodExecInfo, p)
}

// ExecList lists a session's commands, oldest first.
func (c *Client) ExecList(ctx context.Context, p api.SessionParams) (*api.ExecListResult, error) {
	return call[api.ExecListResult](ctx, c, api.MethodExecList, p)
}

// ResizeSession changes the size of a session's terminal.
func (c *Client) ResizeSession(ctx context.Context, p api.SessionResizeParams) (*api.SessionResizeResult, error) {
	return call[api.SessionResizeResult](ctx, c, api.MethodSessionResize, p)
}

// Hold takes the keyboard lease of a session, or renews it.
func (c *Client) Hold(ctx context.Context, p api.SessionHoldParams) (*api.SessionHoldResult, error) {
	return call[api.SessionHoldResult](ctx, c, api.MethodSessionHold, p)
}

// Release releases the keyboard lease of a session.
func (c *Client) Release(ctx context.Context, p api.SessionReleaseParams) (*api.SessionReleaseResult, error) {
	return call[api.SessionReleaseResult](ctx, c, api.MethodSessionRelease, p)
}

// Screen returns the contents of a session's terminal.
func (c *Client) Screen(ctx context.Context, p api.SessionScreenParams) (*api.SessionScreenResult, error) {
	return call[api.SessionScreenResult](ctx, c, api.MethodSessionScreen, p)
}

// Places lists the places where sessions can run besides the daemon's machine.
func (c *Client) Places(ctx context.Context) (*api.PlaceListResult, error) {
	return call[api.PlaceListResult](ctx, c, api.MethodPlaceList, nil)
}

// AddPlace adds a place and connects to it.
func (c *Client) AddPlace(ctx context.Context, p api.PlaceParams) (*api.Place, error) {
	return call[api.Place](ctx, c, api.MethodPlaceAdd, p)
}

// CheckPlace connects to a place now. A place that can't be reached is a
// result, with the reason.
func (c *Client) CheckPlace(ctx context.Context, p api.PlaceParams) (*api.Place, error) {
	return call[api.Place](ctx, c, api.MethodPlaceCheck, p)
}

// RemovePlace removes a place and everything TRL put there.
func (c *Client) RemovePlace(ctx context.Context, p api.PlaceRemoveParams) (*api.PlaceRemoveResult, error) {
	return call[api.PlaceRemoveResult](ctx, c, api.MethodPlaceRemove, p)
}

// UpgradePlace replaces the TRL of a place with the daemon's version. The
// sessions in it continue.
func (c *Client) UpgradePlace(ctx context.Context, p api.PlaceParams) (*api.Place, error) {
	return call[api.Place](ctx, c, api.MethodPlaceUpgrade, p)
}
