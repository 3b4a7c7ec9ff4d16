package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/drawing"
	"github.com/terminal-runtime/trl/internal/printable"
)

type screenArguments struct {
	Session    string `json:"session,omitempty" jsonschema:"a session with a terminal; default terminal"`
	Scrollback int    `json:"scrollback,omitempty" jsonschema:"0..40: scrolled-off lines to show first"`
	Picture    bool   `json:"picture,omitempty" jsonschema:"also return an image, with colors"`
}

// screenReply is the reply of screen.
type screenReply struct {
	Session string   `json:"session" jsonschema:"the session"`
	Exec    string   `json:"exec,omitempty" jsonschema:"the command that wrote last"`
	Rows    int      `json:"rows" jsonschema:"rows of the terminal"`
	Cols    int      `json:"cols" jsonschema:"columns of the terminal"`
	Row     int      `json:"cursor_row" jsonschema:"counted from 0"`
	Column  int      `json:"cursor_column" jsonschema:"counted from 0"`
	Full    bool     `json:"full_screen,omitempty" jsonschema:"a program uses the whole screen, as editors do"`
	Title   string   `json:"title,omitempty" jsonschema:"title of the window"`
	Waiting *waiting `json:"waiting,omitempty" jsonschema:"what the running command waits for"`
	Screen  string   `json:"screen" jsonschema:"text on the screen"`
	Above   int      `json:"left_out_above,omitempty" jsonschema:"number of rows at the top that are not shown"`

	png []byte // nil if no image was asked for
}

func (s *server) screen(ctx context.Context, c *call, a screenArguments) (*screenReply, error) {
	name := a.Session
	if name == "" {
		name = terminalSession
	}
	session, err := s.findExisting(ctx, name)
	if err != nil {
		return nil, err
	}
	got, err := callMethod[api.SessionScreenResult](ctx, s, api.MethodSessionScreen, api.SessionScreenParams{SessionID: session.SessionID, Scrollback: a.Scrollback})
	if err != nil {
		return nil, err
	}
	p := &screenReply{
		Session: name, Exec: got.ExecID, Rows: got.Rows, Cols: got.Cols, Row: got.Cursor.Row, Column: got.Cursor.Column,
		Full: got.Alternate, Title: clip(got.Title, lineBytes), Screen: trimScreen(got.Text),
	}
	p.Screen, p.Above = lastRows(p.Screen, c.room.all)
	if got.Waiting != nil {
		p.Waiting = waitingOf(got.Waiting)
	}
	if a.Picture {
		if p.png, err = s.draw(ctx, session.SessionID); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// draw returns a screen as a PNG. A secret can't be removed from an image, so draw
// refuses if the screen shows one, even wrapped over several rows.
func (s *server) draw(ctx context.Context, session string) ([]byte, error) {
	got, err := callMethod[api.SessionScreenResult](ctx, s, api.MethodSessionScreen, api.SessionScreenParams{SessionID: session, Format: api.ScreenJSON})
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, line := range got.Lines {
		for _, run := range line.Runs {
			all.WriteString(run.Text)
		}
	}
	if s.showsSecret(all.String()) {
		return nil, api.Errorf(api.CodeForbidden, "a secret is on the screen, and would be in the image").
			WithHint("call screen without picture: the text shows its name instead")
	}
	png, err := drawing.PNG(got)
	if errors.Is(err, drawing.ErrTooLarge) {
		return nil, api.Errorf(api.CodeInvalidParams, "%w", err).WithHint("call screen without picture")
	}
	return png, err
}

func (p *screenReply) image() []byte { return p.png }

// lastRows returns the last rows of a screen that there is room for, and the number
// of rows above them.
func lastRows(text string, room int) (shown string, above int) {
	for cost(text) > room {
		_, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return clip(text, room/6), above // in the worst case each byte costs six
		}
		text, above = rest, above+1
	}
	return text, above
}

// trimScreen removes spaces at the ends of lines, and empty lines at the end.
func trimScreen(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (p *screenReply) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "session %s · %d×%d · cursor at row %d, column %d", printable.Word(p.Session), p.Cols, p.Rows, p.Row, p.Column)
	if p.Full {
		b.WriteString(" · a program uses the whole screen")
	}
	if p.Waiting != nil {
		fmt.Fprintf(&b, " · waits for %s: %s", p.Waiting.For, p.Waiting)
	}
	b.WriteByte('\n')
	if p.Above > 0 {
		fmt.Fprintf(&b, "[trl: %d rows above are left out]\n", p.Above)
	}
	if p.Screen == "" {
		return b.String() + "(empty)"
	}
	return b.String() + p.Screen
}
