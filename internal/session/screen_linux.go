package session

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// terminal returns a session and its terminal, or an error if it has none.
func (p *Pool) terminal(id string) (*Session, *terminal.Terminal, error) {
	s, err := p.session(id)
	if err != nil {
		return nil, nil, err
	}
	t, err := s.terminal()
	return s, t, err
}

// Resize changes the size of a session's terminal.
func (p *Pool) Resize(_ context.Context, params api.SessionResizeParams) (*api.SessionResizeResult, error) {
	s, t, err := p.terminal(params.SessionID)
	if err != nil {
		return nil, err
	}
	size := api.TTYSize{Rows: params.Rows, Cols: params.Cols}
	if err := terminal.CheckSize(size, "rows"); err != nil {
		return nil, err
	}
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	if err := s.checkResize(params.Lease); err != nil {
		return nil, err
	}
	if err := t.Resize(size); err != nil {
		return nil, api.Errorf(api.CodeInternal, "%w", err)
	}
	s.announceSize(size)
	return &api.SessionResizeResult{SessionID: s.id, TTY: size}, nil
}

// Screen returns what is on a session's terminal.
func (p *Pool) Screen(_ context.Context, params api.SessionScreenParams) (*api.SessionScreenResult, error) {
	s, t, err := p.terminal(params.SessionID)
	if err != nil {
		return nil, err
	}
	s.touch()
	switch params.Format {
	case "", api.ScreenText, api.ScreenANSI, api.ScreenJSON:
	default:
		return nil, api.Errorf(api.CodeInvalidParams, "format is not valid").With("field", "format").
			WithHint(`use "text", "ansi" or "json"`)
	}
	r := t.Show(s.id, params)
	r.Waiting = s.waiting()
	return r, nil
}

// Hold gives the caller the keyboard lease of a session, or renews it. When it
// returns, no other client types any more.
func (p *Pool) Hold(ctx context.Context, params api.SessionHoldParams) (*api.SessionHoldResult, error) {
	ttl, err := checkLeaseParams(params)
	if err != nil {
		return nil, err
	}
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	result, changed, err := s.takeLease(params, ttl)
	if err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	if changed {
		s.awaitOtherInput()
	}
	return result, nil
}

// Release ends the caller's keyboard lease. If it has ended already that is not an
// error, unless another client has one now.
func (p *Pool) Release(_ context.Context, params api.SessionReleaseParams) (*api.SessionReleaseResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	if err := s.releaseLease(params.Lease); err != nil {
		return nil, err
	}
	s.restoreSize()
	return &api.SessionReleaseResult{SessionID: s.id}, nil
}
