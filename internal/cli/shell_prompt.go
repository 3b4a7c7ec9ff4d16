package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// prompt reads command lines of a person, with editing and a history that ends
// with it. What is typed ahead of the line stays for the command.
type prompt struct {
	local  *localTerminal
	editor *term.Terminal

	pending []byte // typed, and not yet used
	recent  []byte // the end of what was used, as long as a mark of a paste
	pasting bool   // the middle of a paste was used last
}

// errSignalled says that a signal told this program to end.
type errSignalled struct{ signal os.Signal }

func (e errSignalled) Error() string { return e.signal.String() }

func newPrompt(local *localTerminal) *prompt {
	p := &prompt{local: local}
	p.editor = term.NewTerminal(p, "")
	p.editor.History = &lineHistory{}
	p.updateSize()
	return p
}

func (p *prompt) updateSize() {
	size := p.local.size()
	_ = p.editor.SetSize(size.Cols, size.Rows) // it can't fail with a positive size
}

// The marks between which terminals send a paste, if asked to.
const pasteBegin, pasteEnd = "\x1b[200~", "\x1b[201~"

// line reads a line. io.EOF is the person's wish to leave.
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

// typedAhead takes what was typed after the line. The rest of a paste is not
// that: its lines are commands too.
func (p *prompt) takePending() []byte {
	if p.pasting {
		return nil
	}
	b := p.pending
	p.pending = nil
	return b
}

// leaveLine gives up the line that is being edited: to its end, all of it away,
// and on.
const discardLine = "\x05\x15\r"

// Read gives the editor what is typed, up to the end of a line at most.
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
				return 0, errSignalled{sig}
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

// interruptKey is what ctrl-c sends.
const interruptKey = 3

// note keeps track of whether a paste goes on.
func (p *prompt) trackPaste(b []byte) {
	seen := slices.Concat(p.recent, b)
	begin, end := bytes.LastIndex(seen, []byte(pasteBegin)), bytes.LastIndex(seen, []byte(pasteEnd))
	if begin != end { // one of them is there
		p.pasting = begin > end
	}
	p.recent = bytes.Clone(seen[max(0, len(seen)-len(pasteBegin)+1):])
}

// Write is the editor's.
func (p *prompt) Write(b []byte) (int, error) { return len(b), p.local.write(b) }

// lineHistory is what the arrow keys bring back. A line that begins with a
// blank is not kept, as shells do for what should not be seen again.
type lineHistory struct{ lines []string }

// maxLines is more than anybody goes back through.
const maxHistory = 1000

// Add takes a line.
func (h *lineHistory) Add(line string) {
	if line == "" || strings.HasPrefix(line, " ") || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	if len(h.lines) == maxHistory {
		h.lines = h.lines[1:]
	}
	h.lines = append(h.lines, line)
}

// Len is the number of lines.
func (h *lineHistory) Len() int { return len(h.lines) }

// At is the line that was added before so many others.
func (h *lineHistory) At(i int) string { return h.lines[len(h.lines)-1-i] }
