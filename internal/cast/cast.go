// Package cast writes the output of a command as an asciicast version 3, a recording
// that asciinema's tools can play.
//
// A recording is text with one JSON value per line: the header, then an event for
// each chunk, with the time since the previous event. Invalid UTF-8 becomes U+FFFD,
// as in a terminal.
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

// plainSize is the terminal size for the output of a command without a terminal: the
// size that programs assume when they cannot ask.
var plainSize = api.TTYSize{Rows: 24, Cols: 80}

// Writer writes one recording. It writes every event as one whole line, so that the
// output is a valid recording at any time.
type Writer struct {
	to     io.Writer
	last   int64 // time of the last event, in milliseconds after the start
	stdout decoder
	stderr decoder
}

// header is the first line. It does not contain the command, whose text TRL does not
// keep.
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

// NewWriter returns a Writer for an exec that has started, and writes the header.
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

// Chunk adds a chunk of exec.output that was requested with times.
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
		return w.event(at, "m", fmt.Sprintf("%d bytes of output are missing here: dropped because of a quota or a full disk", c.Bytes))
	}
	return nil
}

// End finishes the recording of an exec that has ended. It adds the exit status if
// there is one.
func (w *Writer) End(exec *api.ExecResult) error {
	if err := w.finish(w.last); err != nil || exec.ExitCode == nil {
		return err
	}
	return w.event(exec.DurationMS, "x", strconv.Itoa(*exec.ExitCode))
}

// finish writes incomplete characters, whose rest will not arrive.
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

// event writes an event, not earlier than the previous one.
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

// decoder converts the bytes of one stream, which arrive in pieces, to text.
type decoder struct {
	pipe    bool   // lines end without a carriage return, which a terminal needs
	partial []byte // start of a character whose rest may arrive
	last    byte
}

// decode returns the text that is complete with p; with end, all of it.
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

// invalidPrefix returns how many bytes of p, which does not begin with a valid
// character, could be the start of one, at least 1. A terminal shows them as one
// U+FFFD.
func invalidPrefix(p []byte) int {
	n := 1
	for n < len(p) && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}
