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
	s.sizing.Lock()
	defer s.sizing.Unlock()
	if err := s.mayResize(params.Lease); err != nil {
		return nil, err
	}
	if err := t.resize(size); err != nil {
		return nil, api.Errorf(api.CodeInternal, "%w", err)
	}
	s.tellSize(size)
	return &api.SessionResizeResult{SessionID: s.id, TTY: size}, nil
}

// mayResize refuses who may not change the size, and notes what it was before
// holders did. Under s.sizing.
func (s *Session) mayResize(lease string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == api.StateTerminated {
		return s.errTerminated()
	}
	if err := s.mayAct(lease); err != nil {
		return err
	}
	switch {
	case s.held == nil:
		s.unheldSize = nil // what is asked for now counts
	case s.unheldSize == nil:
		s.unheldSize = s.params.TTY
		s.note()
	}
	return nil
}

// giveSizeBack gives the terminal of a session that is nobody's the size again
// that it had before holders changed it.
func (s *Session) giveSizeBack() {
	s.sizing.Lock()
	defer s.sizing.Unlock()
	s.mu.Lock()
	size := s.unheldSize
	if s.held != nil || s.ending || size == nil {
		s.mu.Unlock()
		return
	}
	s.unheldSize = nil
	same := *size == *s.params.TTY
	s.mu.Unlock()
	if !same && s.term.resize(*size) == nil { // a terminal that is gone has no size
		s.tellSize(*size)
	}
}

// tellSize makes a size that the terminal has known. Under s.sizing.
func (s *Session) tellSize(size api.TTYSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.params.TTY = &size
	s.note()
	s.tell(api.SessionEvent{Type: api.EventResized, TTY: &size})
}

// resize changes the size; its programs are told.
func (t *terminal) resize(size api.TTYSize) error {
	if err := pty.SetSize(t.master, pty.Size{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen.Resize(size.Rows, size.Cols)
	if t.to != nil {
		t.to.resized(size)
		t.to.note()
		t.noteScreen() // a replay would not know when
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
	s.attend()
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

func (t *terminal) show(session string, params api.SessionScreenParams) *api.SessionScreenResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	cells := t.screen.Cells()
	r := &api.SessionScreenResult{
		SessionID: session, Rows: cells.Rows, Cols: cells.Cols, Title: cells.Title, Alternate: cells.Modes.Alternate,
		Cursor: api.ScreenCursor{Row: cells.Cursor.Row, Column: cells.Cursor.Column, Hidden: cells.Cursor.Hidden},
	}
	if t.to != nil {
		r.ExecID, r.Offset = t.to.id, t.to.journal.Size()
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
