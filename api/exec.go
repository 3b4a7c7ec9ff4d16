package api

// ExecState is whether an exec is still going on.
type ExecState string

// The exec states.
const (
	ExecQueued  ExecState = "queued" // waits for its session (wait: true)
	ExecRunning ExecState = "running"
	ExecExited  ExecState = "exited"
)

// Outcome is how an exec ended, in one word.
type Outcome string

// The outcomes.
const (
	OutcomeRunning     Outcome = "running"
	OutcomeExited      Outcome = "exited"
	OutcomeSignaled    Outcome = "signaled"
	OutcomeTimedOut    Outcome = "timed_out"
	OutcomeCancelled   Outcome = "cancelled"
	OutcomeShellExited Outcome = "shell_exited" // the command ended its shell (exit, exec, set -e); the session lives on
	OutcomeShellDied   Outcome = "shell_died"   // the shell was killed or crashed; the session lives on
	OutcomeOOMKilled   Outcome = "oom_killed"
)

// ExecCommand is one command and how it is run, whichever way its output is
// delivered: what exec.run and exec.stream have in common.
type ExecCommand struct {
	SessionID     string  `json:"session_id"`
	Command       string  `json:"command"`
	TimeoutMS     *int64  `json:"timeout_ms,omitempty"`      // default: the session's; 0 = none
	IdleTimeoutMS int64   `json:"idle_timeout_ms,omitempty"` // kill when nothing was written for so long; 0 = never
	Env           Env     `json:"env,omitempty"`             // for this command alone; null unsets
	Cwd           string  `json:"cwd,omitempty"`             // for this command alone
	Stdin         *string `json:"stdin,omitempty"`           // default: end of input at once
	StdinEncoding string  `json:"stdin_encoding,omitempty"`  // "base64" when stdin is not text
	StdinOpen     bool    `json:"stdin_open,omitempty"`      // keep stdin open for exec.input
	Merge         bool    `json:"merge,omitempty"`           // stderr goes where stdout goes, in true order
	Wait          bool    `json:"wait,omitempty"`            // queue for the session instead of SESSION_BUSY
	Key           string  `json:"key,omitempty"`             // a repeat with the same key returns the first exec
	Label         string  `json:"label,omitempty"`           // told back in results and lists
	Lease         string  `json:"lease,omitempty"`           // of the session's hold, if it is held
}

// ExecRunParams runs one command in a session.
type ExecRunParams struct {
	ExecCommand
	YieldMS        int64  `json:"yield_ms,omitempty"`       // answer after so long with state running; 0 = never
	YieldOnInput   bool   `json:"yield_on_input,omitempty"` // on a terminal: answer also when the command waits for input
	MaxOutputBytes *int64 `json:"max_output_bytes,omitempty"`
}

// ExecResult is what is known of an exec: the answer to exec.run, and without
// output that of exec.info and exec.list.
type ExecResult struct {
	ExecID         string    `json:"exec_id"`
	SessionID      string    `json:"session_id"`
	Label          string    `json:"label,omitempty"` // that its caller gave it
	State          ExecState `json:"state"`
	Outcome        Outcome   `json:"outcome"`
	ExitCode       *int      `json:"exit_code"` // null while running
	Signal         string    `json:"signal,omitempty"`
	StartedAt      Time      `json:"started_at"`
	DurationMS     int64     `json:"duration_ms"`
	QueuedMS       int64     `json:"queued_ms,omitempty"` // how long it waited for its turn
	TimedOut       bool      `json:"timed_out"`
	Cancelled      bool      `json:"cancelled"`
	Stdout         string    `json:"stdout"`
	Stderr         string    `json:"stderr"`
	StdoutEncoding string    `json:"stdout_encoding,omitempty"`
	StderrEncoding string    `json:"stderr_encoding,omitempty"`
	StdoutBytes    int64     `json:"stdout_bytes"` // captured in all
	StderrBytes    int64     `json:"stderr_bytes"`
	Merged         bool      `json:"merged,omitempty"`        // stdout is both streams, as merge asked
	Truncated      bool      `json:"truncated"`               // stdout or stderr above is not the whole
	DroppedBytes   int64     `json:"dropped_bytes,omitempty"` // of what was captured quota has dropped so much
	Cwd            string    `json:"cwd,omitempty"`
	TTY            *TTYSize  `json:"tty,omitempty"`            // of its terminal when it began; null: it has pipes
	Survivors      []Process `json:"survivors,omitempty"`      // what the command left running
	RolledBack     bool      `json:"rolled_back,omitempty"`    // shell state was lost: it is now as it was after RolledBackTo
	RolledBackTo   string    `json:"rolled_back_to,omitempty"` // an exec id; empty with rolled_back: the session's start
	Usage          *Usage    `json:"usage,omitempty"`
}

// Usage is what processes consumed.
type Usage struct {
	CPUMS       int64 `json:"cpu_ms"`
	MaxRSSBytes int64 `json:"max_rss_bytes,omitempty"` // where it is known
}

// ChunkType says which stream a chunk is of, or what else it is.
type ChunkType string

// The chunk types.
const (
	ChunkStdout ChunkType = "stdout"
	ChunkStderr ChunkType = "stderr"
	ChunkTTY    ChunkType = "tty"
	ChunkGap    ChunkType = "gap"
	ChunkResize ChunkType = "resize" // of the terminal; only where times are asked for
	ChunkExit   ChunkType = "exit"   // always the last of a stream
)

// Chunk is a piece of a journal. Offset is the journal offset of its first
// byte. A gap chunk stands for Bytes bytes that quota has dropped. Pushed in a
// stream it names the stream and its exec; of exec.output it does not. Where
// times are asked for, AtMS is when its first byte was captured.
type Chunk struct {
	StreamID string      `json:"stream_id,omitempty"`
	ExecID   string      `json:"exec_id,omitempty"`
	Type     ChunkType   `json:"type"`
	Offset   int64       `json:"offset"`
	Data     string      `json:"data,omitempty"`
	Encoding string      `json:"encoding,omitempty"`
	Bytes    int64       `json:"bytes,omitempty"`
	Next     int64       `json:"next"`             // the offset that follows the chunk
	AtMS     *int64      `json:"at_ms,omitempty"`  // after the command began; not of a gap
	TTY      *TTYSize    `json:"tty,omitempty"`    // of a resize: the size from here on
	Result   *ExecResult `json:"result,omitempty"` // of an exit chunk, without output
}

// ExecStreamParams runs one command as ExecRunParams does. Its output follows
// the answer as chunks, so there is nothing to yield and nothing to cut.
type ExecStreamParams struct {
	ExecCommand
}

// ExecStreamResult is answered when the command has been accepted.
type ExecStreamResult struct {
	ExecID   string `json:"exec_id"`
	StreamID string `json:"stream_id"`
}

// ExecAttachParams asks for an exec's output as chunks from an offset on.
type ExecAttachParams struct {
	ExecID string `json:"exec_id"`
	From   int64  `json:"from,omitempty"`
}

// ExecAttachResult says where the chunks that follow begin.
type ExecAttachResult struct {
	StreamID string    `json:"stream_id"`
	From     int64     `json:"from"`
	State    ExecState `json:"state"`
}

// StreamCloseParams names a stream that was opened over the same connection.
type StreamCloseParams struct {
	StreamID string `json:"stream_id"`
}

// StreamCloseResult is answered when no notification of the stream follows any
// more. Closed is false when it had ended already, or never was.
type StreamCloseResult struct {
	StreamID string `json:"stream_id"`
	Closed   bool   `json:"closed"`
}

// ExecOutputParams reads an exec's journal by polling.
type ExecOutputParams struct {
	ExecID   string    `json:"exec_id"`
	From     int64     `json:"from,omitempty"`
	MaxBytes *int64    `json:"max_bytes,omitempty"`
	WaitMS   int64     `json:"wait_ms,omitempty"` // long poll: wait so long for something past from
	Stream   ChunkType `json:"stream,omitempty"`  // stdout or stderr; default both
	View     string    `json:"view,omitempty"`    // raw (default) or text
	Times    bool      `json:"times,omitempty"`   // of raw: cut chunks where time passed, and say when each came
}

// The views of exec.output.
const (
	ViewRaw  = "raw"
	ViewText = "text" // escapes stripped, carriage-return progress bars folded
)

// ExecOutputResult carries chunks up to the offset Next, from which the next
// call goes on. Closed is true when nothing can come after Next: the exec has
// ended and no process holds its output open.
type ExecOutputResult struct {
	ExecID string    `json:"exec_id"`
	Chunks []Chunk   `json:"chunks"`
	Next   int64     `json:"next"`
	State  ExecState `json:"state"`
	Closed bool      `json:"closed"`
}

// ExecInputParams writes to a command's standard input.
type ExecInputParams struct {
	ExecID   string `json:"exec_id"`
	Data     string `json:"data,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	EOF      bool   `json:"eof,omitempty"`
	// Of a terminal: Keys are typed after Data, by name; Paste gives Data as
	// pasted, to a program that wants to know.
	Keys  []string `json:"keys,omitempty"`
	Paste bool     `json:"paste,omitempty"`
	Lease string   `json:"lease,omitempty"` // of the session's hold, if it is held
	Key   string   `json:"key,omitempty"`   // a repeat with the same key is written once
	At    *int64   `json:"at,omitempty"`    // offset of the first byte in all input of the exec: what is there is not written again
	Whole bool     `json:"whole,omitempty"` // all or nothing, and answered when it is kept
}

// ExecInputResult says how many bytes are the command's.
type ExecInputResult struct {
	ExecID  string `json:"exec_id"`
	Bytes   int    `json:"bytes"`
	Next    *int64 `json:"next,omitempty"`    // offset after the last of them; not on a terminal
	Written string `json:"written,omitempty"` // WrittenUnknown, or empty
}

// WrittenUnknown says of an input that was repeated with its key: a daemon died
// while it typed this on a terminal, and nobody knows how much of it.
const WrittenUnknown = "unknown"

// ExecSignalParams signals the processes of a running command.
type ExecSignalParams struct {
	ExecID string `json:"exec_id"`
	Signal string `json:"signal"` // a name (TERM or SIGTERM) or a number
}

// ExecSignalResult says how many processes were signalled.
type ExecSignalResult struct {
	ExecID    string `json:"exec_id"`
	Processes int    `json:"processes"`
}

// ExecCancelParams names the command to cancel, by itself or by its session.
type ExecCancelParams struct {
	SessionID string `json:"session_id,omitempty"`
	ExecID    string `json:"exec_id,omitempty"`
}

// ExecCancelResult is answered once the command is gone.
type ExecCancelResult struct {
	ExecID    string `json:"exec_id"`
	Cancelled bool   `json:"cancelled"`
}

// ExecParams names one exec.
type ExecParams struct {
	ExecID string `json:"exec_id"`
}

// ExecListResult lists a session's execs, oldest first, without output.
type ExecListResult struct {
	Execs []ExecResult `json:"execs"`
}
