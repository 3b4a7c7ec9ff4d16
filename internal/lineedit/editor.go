package lineedit

import "strings"

// Config configures an Editor.
type Config struct {
	Prompt     string // before the first line; must be printable
	Rows, Cols int    // of the terminal
	History    *History
	// Incomplete reports whether more lines must follow the text. Enter then
	// begins a new line. nil means that every text is complete.
	Incomplete func(text string) bool
}

// Editor edits one command line, which may have several lines of text.
type Editor struct {
	config Config
	buffer
	recalled int    // index of the history line that is shown; its length for the own one
	own      string // the own line while another one is shown
	search   *search
	// What Paint has written last.
	painted   string
	cursorRow int // of the rows that are visible
}

// Outcome says what the caller must do after a key.
type Outcome int

// The outcomes of a key.
const (
	Editing     Outcome = iota // go on
	Accepted                   // Text is complete
	Interrupted                // the user dropped the text
	Ended                      // the user wants to leave
	Completing                 // complete the word before the cursor
)

// New returns an editor of an empty line.
func New(config Config) *Editor {
	return &Editor{config: config, recalled: len(config.History.lines)}
}

// Text returns the text.
func (e *Editor) Text() string { return string(e.text) }

// BeforeCursor returns the text before the cursor.
func (e *Editor) BeforeCursor() string { return string(e.text[:e.at]) }

// Replace replaces the last n characters before the cursor.
func (e *Editor) Replace(n int, by string) {
	e.drop(e.at-n, e.at)
	e.insert(by)
}

// Handle acts on a key.
func (e *Editor) Handle(k Key) Outcome {
	if e.search != nil && e.handleSearch(k) {
		return Editing
	}
	switch k.Code {
	case Insert:
		e.typed(k)
	case Enter:
		if e.config.Incomplete == nil || !e.config.Incomplete(e.Text()) {
			return Accepted
		}
		e.insert("\n")
	case Tab:
		if strings.TrimSpace(string(e.text[e.lineStart(e.at):e.at])) != "" {
			return Completing
		}
		e.insert("\t")
	case Interrupt:
		return Interrupted
	case EndOfFile:
		return e.endOfFile()
	case Search:
		e.startSearch()
	case ClearScreen:
		e.painted, e.cursorRow = clearScreen, 0
	case Up, Down:
		e.vertical(k.Code)
	case Left, Right, WordLeft, WordRight, Home, End:
		e.move(k.Code)
	default:
		e.delete(k.Code)
	}
	return Editing
}

// typed inserts text. The end of the last pasted line is left out: enter runs
// what was pasted, and shows it as it was.
func (e *Editor) typed(k Key) {
	if k.Paste && e.at == len(e.text) {
		k.Text = strings.TrimRight(k.Text, "\n")
	}
	e.insert(k.Text)
}

// endOfFile leaves on an empty line. At the end of an incomplete text it runs
// the text as it is: the editor may be wrong about what a shell accepts.
func (e *Editor) endOfFile() Outcome {
	switch {
	case len(e.text) == 0:
		return Ended
	case e.at < len(e.text):
		e.drop(e.at, e.at+1)
	case e.text[e.at-1] == '\n':
		return Accepted
	}
	return Editing
}

// vertical moves between the lines of the text, and at its ends in the history.
func (e *Editor) vertical(code Code) {
	lines := e.config.History.lines
	switch {
	case code == Up && e.up(), code == Down && e.down():
	case code == Up && e.recalled > 0:
		e.recall(e.recalled - 1)
	case code == Down && e.recalled < len(lines):
		e.recall(e.recalled + 1)
	}
}

// recall shows a line of the history, or the own line behind the last one.
func (e *Editor) recall(i int) {
	lines := e.config.History.lines
	if e.recalled == len(lines) {
		e.own = e.Text()
	}
	e.recalled = i
	if i == len(lines) {
		e.set(e.own)
	} else {
		e.set(lines[i])
	}
}

func (e *Editor) move(code Code) {
	switch code {
	case Left:
		e.at = max(0, e.at-1)
	case Right:
		e.at = min(len(e.text), e.at+1)
	case WordLeft:
		e.at = e.left(wordRune)
	case WordRight:
		e.at = e.right(wordRune)
	case Home:
		e.at = e.lineStart(e.at)
	case End:
		e.at = e.lineEnd(e.at)
	}
}

func (e *Editor) delete(code Code) {
	switch code {
	case Backspace:
		e.drop(max(0, e.at-1), e.at)
	case Delete:
		e.drop(e.at, min(len(e.text), e.at+1))
	case DeleteToStart:
		e.cut(e.lineStart(e.at), e.at)
	case DeleteToEnd:
		e.cut(e.at, e.lineEnd(e.at))
	case DeleteWord:
		e.cut(e.left(notBlank), e.at)
	case DeleteWordLeft:
		e.cut(e.left(wordRune), e.at)
	case DeleteWordRight:
		e.cut(e.at, e.right(wordRune))
	case Yank:
		e.insert(string(e.deleted))
	}
}
