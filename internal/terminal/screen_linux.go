package terminal

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/vt"
)

// Resize changes the size and notifies the programs on the terminal.
func (t *Terminal) Resize(size api.TTYSize) error {
	if err := pty.SetSize(t.master, pty.Size{Rows: size.Rows, Cols: size.Cols}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen.Resize(size.Rows, size.Cols)
	if t.output != nil {
		t.output.Resized(size)
		t.persistScreen() // a replay would not know when the size changed
	}
	return nil
}

// Show returns the screen in the requested format.
func (t *Terminal) Show(session string, params api.SessionScreenParams) *api.SessionScreenResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	cells := t.screen.Cells()
	r := &api.SessionScreenResult{
		SessionID: session, Rows: cells.Rows, Cols: cells.Cols, Title: cells.Title, Alternate: cells.Modes.Alternate,
		Cursor: api.ScreenCursor{Row: cells.Cursor.Row, Column: cells.Cursor.Column, Hidden: cells.Cursor.Hidden},
	}
	if t.output != nil {
		r.ExecID, r.Offset = t.output.ID(), t.output.Journal().Size()
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

// RestoreScreen rebuilds the screen from a snapshot, nil if there is none, and what
// the commands have written since. outputs are all commands that have run on the
// terminal and are still kept, in order.
func (t *Terminal) RestoreScreen(size api.TTYSize, snapshot *Snapshot, outputs []Output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if snapshot == nil { // no command has run yet
		snapshot = &Snapshot{size: size}
	}
	t.screen = newScreen(snapshot.size)
	_, _ = t.screen.Write(snapshot.ansi)
	for _, e := range outputs {
		t.output = e
		switch {
		case e.Number() == snapshot.exec:
			t.replay(e.Journal(), snapshot.offset)
		case e.Number() > snapshot.exec:
			t.replay(e.Journal(), 0)
		}
	}
	t.screen.Answers() // they were sent before the restart
	t.screen.Resize(size.Rows, size.Cols)
	snapshot.ansi = nil // it is in the ledger
	if t.gone {
		t.buf = nil
	}
	t.persisted, t.nextSnapshot = snapshot, snapshot
}

// CheckSize returns an error that names field if a terminal can't have the size.
func CheckSize(size api.TTYSize, field string) error {
	if size.Rows >= 1 && size.Rows <= vt.MaxTTYSide && size.Cols >= 1 && size.Cols <= vt.MaxTTYSide {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "a terminal has 1 to %d rows and columns", vt.MaxTTYSide).With("field", field).
		WithHint("24 rows and 80 columns are usual")
}
