package session

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/vt"
)

func newScreen(size api.TTYSize) *vt.Screen {
	return vt.New(vt.Config{Rows: size.Rows, Cols: size.Cols, Scrollback: scrollback})
}

// Resize changes the size of a session's terminal.
func (p *Pool) Resize(_ context.Context, params api.SessionResizeParams) (*api.SessionResizeResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	t, err := s.terminal()
	if err != nil {
		return nil, err
	}
	size := api.TTYSize{Rows: params.Rows, Cols: params.Cols}
	if err := checkSize(size, "rows"); err != nil {
		return nil, err
	}
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	if err := s.checkResize(params.Lease); err != nil {
		return nil, err
	}
	if err := t.resize(size); err != nil {
		return nil, api.Errorf(api.CodeInternal, "%w", err)
	}
	s.announceSize(size)
	return &api.SessionResizeResult{SessionID: s.id, TTY: size}, nil
}

// mayResize refuses who may not change the size, and notes what it was before
// holders did. Under s.sizing.
func (s *Session) checkResize(lease string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == api.StateTerminated {
		return s.errTerminated()
	}
	if err := s.checkLease(lease); err != nil {
		return err
	}
	switch {
	case s.lease == nil:
		s.sizeBeforeLease = nil // what is asked for now counts
	case s.sizeBeforeLease == nil:
		s.sizeBeforeLease = s.params.TTY
		s.persist()
	}
	return nil
}

// giveSizeBack gives the terminal of a session that is nobody's the size again
// that it had before holders changed it.
func (s *Session) restoreSize() {
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	s.mu.Lock()
	size := s.sizeBeforeLease
	if s.lease != nil || s.ending || size == nil {
		s.mu.Unlock()
		return
	}
	s.sizeBeforeLease = nil
	same := *size == *s.params.TTY
	s.mu.Unlock()
	if !same && s.term.resize(*size) == nil { // a terminal that is gone has no size
		s.announceSize(*size)
	}
}

// tellSize makes a size that the terminal has known. Under s.sizing.
func (s *Session) announceSize(size api.TTYSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.params.TTY = &size
	s.persist()
	s.emit(api.SessionEvent{Type: api.EventResized, TTY: &size})
}

// resize changes the size; its programs are told.
func (t *Terminal) resize(size api.TTYSize) error {
	if err := pty.SetSize(t.master, pty.Size{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen.Resize(size.Rows, size.Cols)
	if t.output != nil {
		t.output.addResize(size)
		t.output.persist()
		t.persistScreen() // a replay would not know when
	}
	return nil
}

// Screen shows what is on a session's terminal.
func (p *Pool) Screen(_ context.Context, params api.SessionScreenParams) (*api.SessionScreenResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	t, err := s.terminal()
	if err != nil {
		return nil, err
	}
	s.touch()
	switch params.Format {
	case "", api.ScreenText, api.ScreenANSI, api.ScreenJSON:
	default:
		return nil, api.Errorf(api.CodeInvalidParams, "format is not one of a screen").With("field", "format").
			WithHint(`use "text", "ansi" or "json"`)
	}
	r := t.show(s.id, params)
	r.Waiting = s.waiting()
	return r, nil
}

func (t *Terminal) show(session string, params api.SessionScreenParams) *api.SessionScreenResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	cells := t.screen.Cells()
	r := &api.SessionScreenResult{
		SessionID: session, Rows: cells.Rows, Cols: cells.Cols, Title: cells.Title, Alternate: cells.Modes.Alternate,
		Cursor: api.ScreenCursor{Row: cells.Cursor.Row, Column: cells.Cursor.Column, Hidden: cells.Cursor.Hidden},
	}
	if t.output != nil {
		r.ExecID, r.Offset = t.output.id, t.output.journal.Size()
	}
	switch params.Format {
	case api.ScreenANSI:
		r.Text = string(t.screen.ANSI(params.Scrollback))
	case api.ScreenJSON:
		r.Lines = cells.Lines
	default:
		r.Text = t.screen.Text(params.Scrollback)
	}
	return r
}

func checkSize(size api.TTYSize, field string) error {
	if size.Rows >= 1 && size.Rows <= api.MaxTTYSide && size.Cols >= 1 && size.Cols <= api.MaxTTYSide {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "a terminal has 1 to %d rows and columns", api.MaxTTYSide).With("field", field).
		WithHint("24 rows and 80 columns are usual")
}
