package console

import (
	"context"
	"io"
	"os"

	"github.com/terminal-runtime/trl/internal/lineedit"
	"github.com/terminal-runtime/trl/internal/shellsyntax"
)

// prompt reads command lines from the user. Input behind a line is kept for the
// command, and what the command leaves unread comes back as the next line.
type prompt struct {
	local     *localTerminal
	completer *completer
	history   lineedit.History
	pending   []byte // typed but not yet used
}

func newPrompt(local *localTerminal, c *completer) *prompt {
	return &prompt{local: local, completer: c}
}

// line reads a command, of one or several lines. It returns "" if the user
// dropped it, and io.EOF if the user wants to leave.
func (p *prompt) line(ctx context.Context, text string) (string, error) {
	if err := p.local.write([]byte(lineedit.PasteModeOn)); err != nil {
		return "", err
	}
	defer func() { _ = p.local.write([]byte(lineedit.PasteModeOff)) }() // if it fails, the terminal is gone
	size := p.local.size()
	e := lineedit.New(lineedit.Config{
		Prompt: text, Rows: size.Rows, Cols: size.Cols, History: &p.history,
		Incomplete: func(text string) bool { return shellsyntax.Incomplete(text, p.completer.dialect) },
	})
	for {
		key, err := p.key(e)
		if err != nil {
			return "", err
		}
		switch e.Handle(key) {
		case lineedit.Editing:
		case lineedit.Completing:
			err = p.complete(ctx, e)
		case lineedit.Interrupted:
			return "", p.local.write(e.Finish("^C"))
		case lineedit.Ended:
			return "", io.EOF
		case lineedit.Accepted:
			p.history.Add(e.Text())
			return e.Text(), p.local.write(e.Finish(""))
		}
		if err != nil {
			return "", err
		}
	}
}

// key returns the next key. It paints the line before it waits for one.
func (p *prompt) key(e *lineedit.Editor) (lineedit.Key, error) {
	for {
		if key, n := lineedit.Decode(p.pending); n > 0 {
			p.pending = p.pending[n:]
			return key, nil
		}
		if err := p.local.write(e.Paint()); err != nil {
			return lineedit.Key{}, err
		}
		select {
		case keys, ok := <-p.local.keys:
			if !ok {
				return lineedit.Key{}, io.EOF
			}
			p.pending = append(p.pending, keys...)
		case sig := <-p.local.signals:
			if sig != os.Interrupt {
				return lineedit.Key{}, SignalError{sig}
			}
			return lineedit.Key{Code: lineedit.Interrupt}, nil
		case <-p.local.resized:
			size := p.local.size()
			e.Resize(size.Rows, size.Cols)
		}
	}
}

// complete completes the word before the cursor, or shows what it can become.
func (p *prompt) complete(ctx context.Context, e *lineedit.Editor) error {
	done, word, err := p.completer.complete(ctx, e.BeforeCursor())
	switch {
	case err != nil:
		return p.local.write(e.Below("trl: " + p.completer.why(err)))
	case done.replacement != "":
		e.Replace(word.Len, done.replacement)
		return nil
	case len(done.names) > 0:
		return p.local.write(e.List(done.names))
	}
	return p.local.write([]byte("\a"))
}

// takePending returns and clears the input typed after the line.
func (p *prompt) takePending() []byte {
	b := p.pending
	p.pending = nil
	return b
}

// putBack makes input that no command has read the beginning of the next line.
func (p *prompt) putBack(unread []byte) { p.pending = append(unread, p.pending...) }
