package console

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// prompt reads command lines from the user, with editing and a history that is
// not saved. Input typed ahead of a line is kept for the command.
type prompt struct {
	local  *localTerminal
	editor *term.Terminal

	pending []byte // typed but not yet passed to the editor
	recent  []byte // the last bytes passed on, as many as a paste marker has
	pasting bool   // the last bytes passed on are inside a paste
}

func newPrompt(local *localTerminal) *prompt {
	p := &prompt{local: local}
	p.editor = term.NewTerminal(p, "")
	p.editor.History = &lineHistory{}
	p.updateSize()
	return p
}

func (p *prompt) updateSize() {
	size := p.local.size()
	_ = p.editor.SetSize(size.Cols, size.Rows) // it never fails for a positive size
}

// The markers around a paste, sent by terminals in bracketed paste mode.
const pasteBegin, pasteEnd = "\x1b[200~", "\x1b[201~"

// line reads a line. It returns io.EOF if the user wants to leave.
func (p *prompt) line(text string) (string, error) {
	p.editor.SetPrompt(text)
	p.editor.SetBracketedPasteMode(true)
	defer p.editor.SetBracketedPasteMode(false)
	line, err := p.editor.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// takePending returns and clears the input typed after the line. The rest of a
// paste is excluded: its lines are commands too.
func (p *prompt) takePending() []byte {
	if p.pasting {
		return nil
	}
	b := p.pending
	p.pending = nil
	return b
}

// discardLine makes the editor discard the current line: go to its end, delete
// it, and return.
const discardLine = "\x05\x15\r"

// Read passes typed input to the editor, up to the end of a line at most.
func (p *prompt) Read(b []byte) (int, error) {
	for len(p.pending) == 0 {
		select {
		case keys, ok := <-p.local.keys:
			if !ok {
				return 0, io.EOF
			}
			p.pending = keys
		case sig := <-p.local.signals:
			if sig != os.Interrupt {
				return 0, SignalError{sig}
			}
			p.pending = []byte{interruptKey}
		case <-p.local.resized:
			p.updateSize()
		}
	}
	next := p.pending
	if !p.pasting && next[0] == interruptKey {
		p.pending = next[1:]
		return copy(b, discardLine), nil
	}
	if end := bytes.IndexAny(next, "\r\x03"); end >= 0 && (next[end] == '\r' || !p.pasting) {
		if next[end] == '\r' {
			end++
		}
		next = next[:end]
	}
	n := copy(b, next)
	p.pending = p.pending[n:]
	p.trackPaste(b[:n])
	return n, nil
}

// trackPaste updates pasting after b was passed on.
func (p *prompt) trackPaste(b []byte) {
	seen := slices.Concat(p.recent, b)
	begin, end := bytes.LastIndex(seen, []byte(pasteBegin)), bytes.LastIndex(seen, []byte(pasteEnd))
	if begin != end { // at least one marker was found
		p.pasting = begin > end
	}
	p.recent = bytes.Clone(seen[max(0, len(seen)-len(pasteBegin)+1):])
}

// Write writes the editor's output to the terminal.
func (p *prompt) Write(b []byte) (int, error) { return len(b), p.local.write(b) }

// lineHistory is the history for the arrow keys. A line that starts with a
// blank is not kept, as in shells.
type lineHistory struct{ lines []string }

// maxHistory is more than anyone scrolls back.
const maxHistory = 1000

// Add appends a line, unless it is empty, starts with a blank, or repeats the
// last one.
func (h *lineHistory) Add(line string) {
	if line == "" || strings.HasPrefix(line, " ") || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	if len(h.lines) == maxHistory {
		h.lines = h.lines[1:]
	}
	h.lines = append(h.lines, line)
}

// Len returns the number of lines.
func (h *lineHistory) Len() int { return len(h.lines) }

// At returns the i-th most recent line; 0 is the last one.
func (h *lineHistory) At(i int) string { return h.lines[len(h.lines)-1-i] }
