package api

// ExecState says whether an exec waits, runs or has ended.
type ExecState string

// The exec states.
const (
	ExecQueued  ExecState = "queued" // waiting for its session (wait: true)
	ExecRunning ExecState = "running"
	ExecExited  ExecState = "exited"
)

// Outcome says how an exec ended, in one word.
type Outcome string

// The outcomes.
const (
	OutcomeRunning     Outcome = "running"
	OutcomeExited      Outcome = "exited"
	OutcomeSignaled    Outcome = "signaled"
	OutcomeTimedOut    Outcome = "timed_out"
	OutcomeCancelled   Outcome = "cancelled"
	OutcomeShellExited Outcome = "shell_exited" // the command ended its shell (exit, exec, set -e); the session continues
	OutcomeShellDied   Outcome = "shell_died"   // the shell was killed or crashed; the session continues
	OutcomeOOMKilled   Outcome = "oom_killed"
)

// ExecCommand is one command and how to run it: the parameters that exec.run
// and exec.stream have in common.
type ExecCommand struct {
	SessionID     string  `json:"session_id"`
	Command       string  `json:"command"`
	TimeoutMS     *int64  `json:"timeout_ms,omitempty"`      // default: the session's; 0 = none
	IdleTimeoutMS int64   `json:"idle_timeout_ms,omitempty"` // kill after this long without output; 0 = never
	Env           Env     `json:"env,omitempty"`             // for this command alone; null unsets
	Cwd           string  `json:"cwd,omitempty"`             // for this command alone
	Stdin         *string `json:"stdin,omitempty"`           // default: end of input at once
	StdinEncoding string  `json:"stdin_encoding,omitempty"`  // "base64" when stdin is not text
	StdinOpen     bool    `json:"stdin_open,omitempty"`      // keep stdin open for exec.input
	Merge         bool    `json:"merge,omitempty"`           // send stderr to stdout, in write order
	Wait          bool    `json:"wait,omitempty"`            // queue for the session instead of SESSION_BUSY
	Key           string  `json:"key,omitempty"`             // a call repeated with the same key returns the first exec
	Label         string  `json:"label,omitempty"`           // repeated in results and lists; default: made by the daemon
	Lease         string  `json:"lease,omitempty"`           // from session.hold, while the keyboard is held
}

// ExecRunParams runs one command in a session.
type ExecRunParams struct {
	ExecCommand
	YieldMS        int64  `json:"yield_ms,omitempty"`       // answer after this long with state running; 0 = never
	YieldOnInput   bool   `json:"yield_on_input,omitempty"` // on a terminal: answer also when the command waits for input
	MaxOutputBytes *int64 `json:"max_output_bytes,omitempty"`
}

// ExecResult describes an exec: the answer to exec.run and, without output, to
// exec.info and exec.list.
type ExecResult struct {
	ExecID         string    `json:"exec_id"`
	SessionID      string    `json:"session_id"`
	Label          string    `json:"label,omitempty"` // as given by its caller, or made by the daemon
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
	StdoutBytes    int64     `json:"stdout_bytes"` // total captured
	StderrBytes    int64     `json:"stderr_bytes"`
	Merged         bool      `json:"merged,omitempty"`        // stdout carries both streams, as merge requested
	Truncated      bool      `json:"truncated"`               // stdout or stderr above is incomplete
	DroppedBytes   int64     `json:"dropped_bytes,omitempty"` // captured bytes that the quota dropped
	Cwd            string    `json:"cwd,omitempty"`
	TTY            *TTYSize  `json:"tty,omitempty"`            // size of its terminal when it started; null: it has pipes
	Survivors      []Process `json:"survivors,omitempty"`      // processes that the command left running
	RolledBack     bool      `json:"rolled_back,omitempty"`    // shell state was lost: it is back to what it was after RolledBackTo
	RolledBackTo   string    `json:"rolled_back_to,omitempty"` // an exec id; empty with rolled_back: the session's start
	Usage          *Usage    `json:"usage,omitempty"`
	InputUnread    int64     `json:"input_unread,omitempty"` // bytes of exec.input that the command did not read
	LimitHit       []Limit   `json:"limit_hit,omitempty"`    // limits of the session that it has provably reached
	// What the network of the session refused while it ran. Of many, the first ones and the last.
	NetworkDenied []NetworkDenial `json:"network_denied,omitempty"`
}

// Usage is the resources that processes consumed.
type Usage struct {
	CPUMS       int64 `json:"cpu_ms"`
	MaxRSSBytes int64 `json:"max_rss_bytes,omitempty"` // where it is known
	// The most that the whole session used at once, if it has the limit: while the
	// command ran, or since the session began if the kernel can't tell.
	MemoryPeakBytes int64 `json:"memory_peak_bytes,omitempty"`
	PIDsPeak        int64 `json:"pids_peak,omitempty"`
}

// ChunkType says which stream a chunk belongs to, or what else it reports.
type ChunkType string

// The chunk types.
const (
	ChunkStdout ChunkType = "stdout"
	ChunkStderr ChunkType = "stderr"
	ChunkTTY    ChunkType = "tty"
	ChunkGap    ChunkType = "gap"
	ChunkResize ChunkType = "resize" // of the terminal; only when times are requested
	ChunkExit   ChunkType = "exit"   // the last chunk of a stream
	ChunkError  ChunkType = "error"  // instead of it: the place of the command has forgotten it
)

// Chunk is a piece of a journal. Offset is the journal offset of its first
// byte. A gap chunk stands for Bytes bytes that the quota dropped. A chunk of a
// stream names the stream and its exec; a chunk of exec.output does not. When
// times are requested, AtMS is the time at which its first byte was captured.
type Chunk struct {
	StreamID string      `json:"stream_id,omitempty"`
	ExecID   string      `json:"exec_id,omitempty"`
	Type     ChunkType   `json:"type"`
	Offset   int64       `json:"offset"`
	Data     string      `json:"data,omitempty"`
	Encoding string      `json:"encoding,omitempty"`
	Bytes    int64       `json:"bytes,omitempty"`
	Next     int64       `json:"next"`             // the offset that follows the chunk
	AtMS     *int64      `json:"at_ms,omitempty"`  // since the command started; not set for a gap
	TTY      *TTYSize    `json:"tty,omitempty"`    // resize chunk: the size from here on
	Result   *ExecResult `json:"result,omitempty"` // exit chunk: the result, without output
	Error    *Error      `json:"error,omitempty"`  // error chunk: why the stream ends
}

// ExecStreamParams runs one command as ExecRunParams does. Its output follows
// the answer as chunks, so there are no parameters for yielding or truncation.
type ExecStreamParams struct {
	ExecCommand
}

// ExecStreamResult is sent when the command has been accepted.
type ExecStreamResult struct {
	ExecID   string `json:"exec_id"`
	StreamID string `json:"stream_id"`
}

// ExecAttachParams requests an exec's output as chunks, starting at an offset.
type ExecAttachParams struct {
	ExecID string `json:"exec_id"`
	From   int64  `json:"from,omitempty"`
}

// ExecAttachResult says at which offset the chunks that follow start.
type ExecAttachResult struct {
	StreamID string    `json:"stream_id"`
	From     int64     `json:"from"`
	State    ExecState `json:"state"`
}

// StreamCloseParams names a stream that was opened over the same connection.
type StreamCloseParams struct {
	StreamID string `json:"stream_id"`
}

// StreamCloseResult is sent when no more notifications of the stream will
// follow. Closed is false if the stream had already ended or never existed.
type StreamCloseResult struct {
	StreamID string `json:"stream_id"`
	Closed   bool   `json:"closed"`
}

// ExecOutputParams reads an exec's journal by polling.
type ExecOutputParams struct {
	ExecID   string    `json:"exec_id"`
	From     int64     `json:"from,omitempty"`
	MaxBytes *int64    `json:"max_bytes,omitempty"`
	WaitMS   int64     `json:"wait_ms,omitempty"` // long poll: wait up to this long for output past from
	Stream   ChunkType `json:"stream,omitempty"`  // stdout or stderr; default both
	View     string    `json:"view,omitempty"`    // raw (default) or text
	Times    bool      `json:"times,omitempty"`   // raw view: split chunks where time passed, and say when each was captured
}

// The views of exec.output.
const (
	ViewRaw  = "raw"
	ViewText = "text" // escapes stripped, carriage-return progress bars folded
)

// ExecOutputResult carries chunks up to the offset Next, where the next call
// continues. Closed is true when nothing can follow Next: the exec has ended
// and no process holds its output open.
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
	// On a terminal: Keys are typed after Data, by name; Paste sends Data as a
	// bracketed paste if the program asked for that.
	Keys  []string `json:"keys,omitempty"`
	Paste bool     `json:"paste,omitempty"`
	Lease string   `json:"lease,omitempty"` // from session.hold, while the keyboard is held
	Key   string   `json:"key,omitempty"`   // a call repeated with the same key writes once
	At    *int64   `json:"at,omitempty"`    // offset of the first byte in the exec's input: bytes already written are not written again
	Whole bool     `json:"whole,omitempty"` // all or nothing; answered once the daemon has stored it
}

// ExecInputResult says how many bytes were accepted for the command.
type ExecInputResult struct {
	ExecID  string `json:"exec_id"`
	Bytes   int    `json:"bytes"`
	Next    *int64 `json:"next,omitempty"`    // offset after the last accepted byte; not set on a terminal
	Written string `json:"written,omitempty"` // WrittenUnknown, or empty
}

// WrittenUnknown answers an input that was repeated with its key: a daemon died
// while it typed this input on a terminal, and how much was typed is unknown.
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

// ExecCancelParams names the command to cancel, by its own id or by its
// session's.
type ExecCancelParams struct {
	SessionID string `json:"session_id,omitempty"`
	ExecID    string `json:"exec_id,omitempty"`
}

// ExecCancelResult is sent once the command is gone.
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
