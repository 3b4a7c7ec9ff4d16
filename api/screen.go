package api

// SessionScreenParams asks what is on a session's terminal.
type SessionScreenParams struct {
	SessionID  string       `json:"session_id"`
	Format     ScreenFormat `json:"format,omitempty"`     // default text
	Scrollback int          `json:"scrollback,omitempty"` // of text and ansi: so many lines that have scrolled away come first
}

// TerminalType is what the terminal of a session is: the TERM of its programs.
const TerminalType = "xterm-256color"

// ScreenFormat is a form of what is on a terminal.
type ScreenFormat string

// The formats.
const (
	ScreenText ScreenFormat = "text" // what a person reads
	ScreenANSI ScreenFormat = "ansi" // what makes another terminal of the size look the same
	ScreenJSON ScreenFormat = "json" // lines of runs of one style
)

// SessionScreenResult is what is on a terminal, and where: ExecID and Offset say
// after which byte of which journal it looks like this.
type SessionScreenResult struct {
	SessionID string       `json:"session_id"`
	ExecID    string       `json:"exec_id,omitempty"` // of the last command; empty before the first
	Offset    int64        `json:"offset"`
	Rows      int          `json:"rows"`
	Cols      int          `json:"cols"`
	Cursor    ScreenCursor `json:"cursor"`
	Alternate bool         `json:"alternate,omitempty"` // a program has the whole screen, as editors do
	Title     string       `json:"title,omitempty"`
	Text      string       `json:"text,omitempty"` // of the formats text and ansi
	Lines     []ScreenLine `json:"lines,omitempty"`
	Waiting   *Waiting     `json:"waiting,omitempty"` // null: it does not wait for input
}

// ScreenCursor is where the next character goes, from 0 on.
type ScreenCursor struct {
	Row    int  `json:"row"`
	Column int  `json:"column"`
	Hidden bool `json:"hidden,omitempty"`
}

// ScreenLine is one row. What comes after its last run is blank.
type ScreenLine struct {
	Runs    []ScreenRun `json:"runs,omitempty"`
	Wrapped bool        `json:"wrapped,omitempty"` // it goes on from the row above
}

// ScreenRun is text of one style.
type ScreenRun struct {
	Text  string       `json:"text"`
	Width int          `json:"width"` // in columns
	Style *ScreenStyle `json:"style,omitempty"`
}

// ScreenStyle is how text looks. A color is "" for the default, the number of a
// palette color, or #rrggbb.
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

// Waiting says that the command on a terminal waits for something to be typed.
type Waiting struct {
	For     WaitingFor `json:"for"`
	Since   Time       `json:"since"` // when something was last written or typed
	PID     int        `json:"pid"`
	Process string     `json:"process"` // its arguments in one line
}

// WaitingFor is what is to be typed.
type WaitingFor string

// What a command can wait for.
const (
	WaitingInput    WaitingFor = "input"
	WaitingPassword WaitingFor = "password" // a line that the terminal does not show
)
