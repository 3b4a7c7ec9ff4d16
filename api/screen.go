package api

// SessionScreenParams requests the contents of a session's terminal.
type SessionScreenParams struct {
	SessionID  string       `json:"session_id"`
	Format     ScreenFormat `json:"format,omitempty"`     // default text
	Scrollback int          `json:"scrollback,omitempty"` // text and ansi: include this many lines of scrollback first
}

// TerminalType is the terminal type of a session: the TERM of its programs.
const TerminalType = "xterm-256color"

// ScreenFormat is the format in which a screen is returned.
type ScreenFormat string

// The formats.
const (
	ScreenText ScreenFormat = "text" // plain text
	ScreenANSI ScreenFormat = "ansi" // bytes that reproduce the screen in another terminal of the same size
	ScreenJSON ScreenFormat = "json" // lines of runs of one style
)

// SessionScreenResult is the contents of a terminal. ExecID and Offset name the
// journal and the byte after which the screen looked like this.
type SessionScreenResult struct {
	SessionID string       `json:"session_id"`
	ExecID    string       `json:"exec_id,omitempty"` // of the last command; empty before the first
	Offset    int64        `json:"offset"`
	Rows      int          `json:"rows"`
	Cols      int          `json:"cols"`
	Cursor    ScreenCursor `json:"cursor"`
	Alternate bool         `json:"alternate,omitempty"` // the alternate screen is active, as in editors
	Title     string       `json:"title,omitempty"`
	Text      string       `json:"text,omitempty"` // formats text and ansi
	Lines     []ScreenLine `json:"lines,omitempty"`
	Waiting   *Waiting     `json:"waiting,omitempty"` // null: the command does not wait for input
}

// ScreenCursor is the position of the cursor, counted from 0.
type ScreenCursor struct {
	Row    int  `json:"row"`
	Column int  `json:"column"`
	Hidden bool `json:"hidden,omitempty"`
}

// ScreenLine is one row. Everything after its last run is blank.
type ScreenLine struct {
	Runs    []ScreenRun `json:"runs,omitempty"`
	Wrapped bool        `json:"wrapped,omitempty"` // continues the row above
}

// ScreenRun is a run of text in one style.
type ScreenRun struct {
	Text  string       `json:"text"`
	Width int          `json:"width"` // in columns
	Style *ScreenStyle `json:"style,omitempty"`
}

// ScreenStyle describes how text looks. A color is "" for the default, the
// number of a palette color, or #rrggbb.
type ScreenStyle struct {
	Foreground     string `json:"fg,omitempty"`
	Background     string `json:"bg,omitempty"`
	Bold           bool   `json:"bold,omitempty"`
	Dim            bool   `json:"dim,omitempty"`
	Italic         bool   `json:"italic,omitempty"`
	Underline      string `json:"underline,omitempty"` // single, double, curly, dotted or dashed
	UnderlineColor string `json:"underline_color,omitempty"`
	Blink          bool   `json:"blink,omitempty"`
	Inverse        bool   `json:"inverse,omitempty"`
	Invisible      bool   `json:"invisible,omitempty"`
	Strike         bool   `json:"strike,omitempty"`
	Overline       bool   `json:"overline,omitempty"`
	Link           string `json:"link,omitempty"`
}

// Waiting says that the command on a terminal waits for input.
type Waiting struct {
	For     WaitingFor `json:"for"`
	Since   Time       `json:"since"` // last output or input
	PID     int        `json:"pid"`
	Process string     `json:"process"` // its arguments on one line
}

// WaitingFor says which kind of input a command waits for.
type WaitingFor string

// Kinds of input that a command can wait for.
const (
	WaitingInput    WaitingFor = "input"
	WaitingPassword WaitingFor = "password" // a line that the terminal does not echo
)
