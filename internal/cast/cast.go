// Package cast writes the output of a command as a recording that can be played:
// an asciicast of version 3, as asciinema's tools read it.
//
// A recording is text, a JSON value a line: the header, then an event for each
// chunk, with the time since the event before. What is not UTF-8 can't be in it
// and becomes U+FFFD, as a terminal would show it.
package cast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
)

// plainSize is what the output of a command without a terminal is shown on: the
// size that programs take for granted where they can't ask.
var plainSize = api.TTYSize{Rows: 24, Cols: 80}

// Writer writes one recording. Every event is one write of a whole line, so that
// what was written is a recording at any time.
type Writer struct {
	to     io.Writer
	last   int64 // when the last event was, in milliseconds after the start
	stdout decoder
	stderr decoder
}

// header is the first line. The command is not in it: nobody keeps its text.
type header struct {
	Version   int   `json:"version"`
	Term      term  `json:"term"`
	Timestamp int64 `json:"timestamp"`
}

type term struct {
	Cols int    `json:"cols"`
	Rows int    `json:"rows"`
	Type string `json:"type,omitempty"`
}

// NewWriter begins the recording of an exec that has begun.
func NewWriter(to io.Writer, exec *api.ExecResult) (*Writer, error) {
	h := header{Version: 3, Timestamp: exec.StartedAt.Unix(), Term: term{Cols: plainSize.Cols, Rows: plainSize.Rows}}
	w := &Writer{to: to, stdout: decoder{pipe: true}, stderr: decoder{pipe: true}}
	if exec.TTY != nil {
		h.Term = term{Cols: exec.TTY.Cols, Rows: exec.TTY.Rows, Type: api.TerminalType}
		w.stdout.pipe = false
	}
	if err := w.line(h); err != nil {
		return nil, err
	}
	return w, nil
}

// Chunk adds a chunk of exec.output with times.
func (w *Writer) Chunk(c api.Chunk) error {
	at := w.last
	if c.AtMS != nil {
		at = *c.AtMS
	}
	switch c.Type {
	case api.ChunkStdout, api.ChunkStderr, api.ChunkTTY:
		data, err := c.Content()
		if err != nil {
			return err
		}
		d := &w.stdout
		if c.Type == api.ChunkStderr {
			d = &w.stderr
		}
		return w.output(at, d.decode(data, false))
	case api.ChunkResize:
		if c.TTY == nil {
			return nil
		}
		return w.event(at, "r", fmt.Sprintf("%dx%d", c.TTY.Cols, c.TTY.Rows))
	case api.ChunkGap:
		if err := w.finish(at); err != nil {
			return err
		}
		return w.event(at, "m", fmt.Sprintf("%d bytes of output are missing here: they were not kept, for a quota or a full disk", c.Bytes))
	}
	return nil
}

// End ends the recording of an exec that is over. That of one which never had a
// status has none.
func (w *Writer) End(exec *api.ExecResult) error {
	if err := w.finish(w.last); err != nil || exec.ExitCode == nil {
		return err
	}
	return w.event(exec.DurationMS, "x", strconv.Itoa(*exec.ExitCode))
}

// finish shows characters of which the rest will not come.
func (w *Writer) finish(at int64) error {
	if err := w.output(at, w.stdout.decode(nil, true)); err != nil {
		return err
	}
	return w.output(at, w.stderr.decode(nil, true))
}

func (w *Writer) output(at int64, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	return w.event(at, "o", string(text))
}

// event writes what happened at a time, at the earliest when the event before it
// did.
func (w *Writer) event(at int64, kind, data string) error {
	after := max(at-w.last, 0)
	w.last += after
	seconds := json.RawMessage(fmt.Sprintf("%d.%03d", after/1000, after%1000))
	return w.line([]any{seconds, kind, data})
}

func (w *Writer) line(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.to.Write(b.Bytes())
	return err
}

// decoder makes text of the bytes of one stream, which come in pieces.
type decoder struct {
	pipe    bool   // lines end as in a file: a terminal would not go back to their start
	partial []byte // the beginning of a character whose rest may come
	last    byte
}

// decode returns what can be shown after p has come; at the end that is all.
func (d *decoder) decode(p []byte, end bool) []byte {
	p = append(d.partial, p...)
	d.partial = nil
	out := make([]byte, 0, len(p))
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			n = invalidPrefix(p)
			if n == len(p) && !end && !utf8.FullRune(p) {
				d.partial = bytes.Clone(p)
				break
			}
		}
		if d.pipe && r == '\n' && d.last != '\r' {
			out = append(out, '\r')
		}
		out = utf8.AppendRune(out, r)
		d.last = p[n-1]
		p = p[n:]
	}
	return out
}

// beginning is how many bytes of p, which does not begin with a character,
// could have begun one, and at least 1: so many are one U+FFFD in a terminal.
func invalidPrefix(p []byte) int {
	n := 1
	for n < len(p) && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}
