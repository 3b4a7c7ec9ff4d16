package api

import (
	"strings"
)

// State is the lifecycle state of a session. It changes only through the
// transition table of the session package.
type State string

// The session states.
const (
	StateCreating   State = "creating"
	StateIdle       State = "idle"
	StateRunning    State = "running"
	StateTerminated State = "terminated"
)

// SessionCreateParams starts a session.
type SessionCreateParams struct {
	Shell      string     `json:"shell,omitempty"`       // a name on PATH or a path; default /bin/sh
	Argv       []string   `json:"argv,omitempty"`        // instead of a shell: one direct command, running from the start
	Cwd        string     `json:"cwd,omitempty"`         // default: the daemon's
	Env        Env        `json:"env,omitempty"`         // added to the inherited environment; null removes a variable
	InheritEnv string     `json:"inherit_env,omitempty"` // base (default), all or none
	Login      bool       `json:"login,omitempty"`       // read the shell's login startup files before the session is idle
	Name       string     `json:"name,omitempty"`
	Tags       []string   `json:"tags,omitempty"`
	Client     string     `json:"client,omitempty"` // the program that creates it, shown in its owner: see IsClientName
	TTY        *TTYSize   `json:"tty,omitempty"`
	TimeoutMS  int64      `json:"timeout_ms,omitempty"`  // default for every exec in it; 0 = the daemon's
	IdleTTLMS  *int64     `json:"idle_ttl_ms,omitempty"` // destroyed after being idle for this long; 0 = never
	Limits     *Limits    `json:"limits,omitempty"`      // enforced exactly, or LIMITS_UNAVAILABLE
	Isolation  *Isolation `json:"isolation,omitempty"`   // enforced exactly, or LIMITS_UNAVAILABLE
	Runtime    string     `json:"runtime,omitempty"`     // default "host"
	Key        string     `json:"key,omitempty"`         // a call repeated with the same key returns the first session
	// CreateTimeoutMS limits how long its shell may take to start, and then how
	// long its login files may take; 0 is 10 s.
	CreateTimeoutMS int64 `json:"create_timeout_ms,omitempty"`
	// Parent is a session with which this one ends, at the latest.
	Parent string `json:"parent,omitempty"`
	// WhileConnected ends the session once the last connection that used it has
	// closed and no other has used it for ReconnectMS; 0 is 15 s.
	WhileConnected bool  `json:"while_connected,omitempty"`
	ReconnectMS    int64 `json:"reconnect_ms,omitempty"`
}

// TTYSize is the size of a terminal in characters.
type TTYSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// How much of the daemon's own environment a session starts with.
const (
	InheritBase = "base" // a small allow-list: PATH, HOME, LANG, TERM, …
	InheritAll  = "all"
	InheritNone = "none"
)

// RuntimeHost is the runtime of sessions on the daemon's own host.
const RuntimeHost = "host"

// Session describes a session; every method returns it in this form. Values of
// environment variables are never returned, only their names.
type Session struct {
	SessionID      string            `json:"session_id"`
	Name           string            `json:"name,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	Owner          string            `json:"owner,omitempty"` // who created it: see Account; "" if an earlier version created it
	Runtime        string            `json:"runtime"`
	State          State             `json:"state"`
	Shell          string            `json:"shell,omitempty"`
	Argv           []string          `json:"argv,omitempty"`
	PID            int               `json:"pid,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	TTY            *TTYSize          `json:"tty,omitempty"`
	CreatedAt      Time              `json:"created_at"`
	LastActivityAt Time              `json:"last_activity_at"`
	ExecCount      int64             `json:"exec_count"`
	TimeoutMS      int64             `json:"timeout_ms"`
	IdleTTLMS      int64             `json:"idle_ttl_ms"`
	EnvKeys        []string          `json:"env_keys,omitempty"`
	Parent         string            `json:"parent,omitempty"`          // the session with which it ends
	WhileConnected bool              `json:"while_connected,omitempty"` // ends with the connections that use it
	Limits         *LimitsInForce    `json:"limits,omitempty"`          // as they are enforced; null: none
	Isolation      *IsolationInForce `json:"isolation,omitempty"`       // as it is enforced; null: none
	ExecID         string            `json:"exec_id,omitempty"`         // the running exec; in a direct session, its only one
	ExecLabel      string            `json:"exec_label,omitempty"`      // the label of that exec
	Login          *Login            `json:"login,omitempty"`           // how its login files ended, if it read them
	Ending         bool              `json:"ending,omitempty"`          // being destroyed or ending
	Held           *Hold             `json:"held,omitempty"`            // who holds its keyboard; null: it is free
	Unreadable     string            `json:"unreadable,omitempty"`      // why the daemon cannot restore the state that an earlier daemon saved
	Terminated     *Terminated       `json:"terminated,omitempty"`
}

// Login says how the login files of a session ended, in the terms of a command.
type Login struct {
	Outcome  Outcome `json:"outcome"`
	ExitCode *int    `json:"exit_code"`
	TimedOut bool    `json:"timed_out"` // took longer than create_timeout_ms and were stopped
}

// Account returns the part of an owner that the daemon vouches for: the user or
// the token that created the session. The rest, after a slash, is the name that
// the client gave itself.
func Account(owner string) string {
	account, _, _ := strings.Cut(owner, "/")
	return account
}

// MaxClientName is the maximum length of a client name in bytes. Names appear
// in lists next to others.
const MaxClientName = 64

// IsClientName reports whether name is a valid client name: one word of ASCII
// letters, digits and . _ + @ -.
func IsClientName(name string) bool {
	return name != "" && len(name) <= MaxClientName && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._+@-", r)
	}) < 0
}

// Terminated says when and why a session ended.
type Terminated struct {
	At       Time   `json:"at"`
	Reason   string `json:"reason"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
}

// Reasons a session ended.
const (
	ReasonDestroyed    = "destroyed"    // session.destroy
	ReasonIdle         = "idle"         // idle for longer than its idle_ttl_ms
	ReasonParent       = "parent"       // its parent session ended
	ReasonDisconnected = "disconnected" // the connections that used it have closed
	ReasonWall         = "wall"         // its limit wall_ms
	ReasonShutdown     = "shutdown"     // the daemon was stopped
	ReasonExited       = "exited"       // the command of a direct session ended
	ReasonLost         = "lost"         // the process that held it died, or it could not be taken over
	ReasonShellLost    = "shell_lost"   // the shell died and no copy of it could take over
)

// SessionListParams selects sessions; every field that is set must match.
type SessionListParams struct {
	State   State  `json:"state,omitempty"`
	Alive   bool   `json:"alive,omitempty"` // exclude sessions that have ended
	Tag     string `json:"tag,omitempty"`
	Runtime string `json:"runtime,omitempty"`
}

// SessionListResult is the answer to session.list, oldest session first.
type SessionListResult struct {
	Sessions    []Session     `json:"sessions"`
	Unreachable []Unreachable `json:"unreachable,omitempty"` // places whose sessions are missing from the list
}

// SessionParams names one session.
type SessionParams struct {
	SessionID string `json:"session_id"`
}

// SessionInfo is a session together with its execs and processes.
type SessionInfo struct {
	Session
	Exec      *ExecResult `json:"exec,omitempty"`      // the running one, without output
	LastExec  *ExecResult `json:"last_exec,omitempty"` // the last finished one, without output
	Processes []Process   `json:"processes"`           // every live process in its tree
	Usage     *Usage      `json:"usage,omitempty"`
	Waiting   *Waiting    `json:"waiting,omitempty"`  // on a terminal: the input that the running command waits for
	TypedAt   *Time       `json:"typed_at,omitempty"` // last exec.input without a keyboard lease
}

// Process is one live process of a session. ExecID names the command that
// started it, if known.
type Process struct {
	PID      int    `json:"pid"`
	PPID     int    `json:"ppid"`
	AgeMS    int64  `json:"age_ms"`
	RSSBytes int64  `json:"rss_bytes"`
	Command  string `json:"command"`
	ExecID   string `json:"exec_id,omitempty"`
	Role     string `json:"role,omitempty"` // "shell" for the session's shell, "standby" for its standby copy, "leader" for the session leader of its terminal, "" for processes that commands started
}

// Roles of the processes that TRL itself keeps in a session.
const (
	RoleShell   = "shell"
	RoleStandby = "standby"
	RoleLeader  = "leader" // session leader of the terminal
)

// SessionDestroyParams ends a session. Force skips the grace period.
type SessionDestroyParams struct {
	SessionID string `json:"session_id"`
	Force     bool   `json:"force,omitempty"`
}

// SessionDestroyResult is sent once the session's process tree is verified
// empty. Survivors is then an empty list. It names processes that could not be
// killed, if there are any (a process in uninterruptible sleep).
type SessionDestroyResult struct {
	SessionID string    `json:"session_id"`
	State     State     `json:"state"`
	Survivors []Process `json:"survivors"`
}

// SessionWatchParams requests the events of one session, or of all.
type SessionWatchParams struct {
	SessionID string `json:"session_id,omitempty"`
	Snapshot  bool   `json:"snapshot,omitempty"` // begin with the sessions that there are
	Execs     bool   `json:"execs,omitempty"`    // also report the commands: see EventExecStarted
}

// SessionWatchResult names the stream of events that follows.
type SessionWatchResult struct {
	StreamID string `json:"stream_id"`
}

// SessionEventType says what happened to a session.
type SessionEventType string

// The types of session events.
const (
	EventCreated   SessionEventType = "created"
	EventState     SessionEventType = "state"     // it became idle or running
	EventDestroyed SessionEventType = "destroyed" // terminated, see Reason
	EventHeld      SessionEventType = "held"      // Holder has taken its keyboard
	EventReleased  SessionEventType = "released"  // its keyboard is free
	EventResized   SessionEventType = "resized"   // its terminal now has the size TTY
	EventGap       SessionEventType = "gap"       // the watcher was too slow: Missed events were dropped

	EventNetworkDenied SessionEventType = "network_denied" // the session's allow-list does not have what a program asked for, see Denied and Reason

	// Only in a watch with a snapshot.
	EventSnapshot    SessionEventType = "snapshot"     // a session as it is now
	EventSnapshotEnd SessionEventType = "snapshot_end" // all sessions were sent: what happens to them follows

	// Only in a watch of the commands.
	EventExecStarted  SessionEventType = "exec_started"  // the command ExecID begins
	EventExecEnded    SessionEventType = "exec_ended"    // the command ExecID has ended, see Outcome
	EventWaiting      SessionEventType = "waiting"       // the command ExecID waits for input, see Waiting
	EventWaitingEnded SessionEventType = "waiting_ended" // the command ExecID no longer waits, and runs
)

// SessionEvent is one event of a session.
type SessionEvent struct {
	StreamID  string           `json:"stream_id"`
	Type      SessionEventType `json:"type"`
	SessionID string           `json:"session_id,omitempty"`
	Name      string           `json:"name,omitempty"`
	Tags      []string         `json:"tags,omitempty"`
	Owner     string           `json:"owner,omitempty"`
	State     State            `json:"state,omitempty"`
	ExecID    string           `json:"exec_id,omitempty"`    // state running: the exec that runs
	ExecLabel string           `json:"exec_label,omitempty"` // the label of that exec
	Outcome   Outcome          `json:"outcome,omitempty"`
	ExitCode  *int             `json:"exit_code,omitempty"`
	Waiting   *Waiting         `json:"waiting,omitempty"`
	At        Time             `json:"at"`
	Reason    string           `json:"reason,omitempty"`
	Holder    string           `json:"holder,omitempty"`
	TTY       *TTYSize         `json:"tty,omitempty"`
	Missed    int64            `json:"missed,omitempty"`
	Denied    *NetworkDenial   `json:"denied,omitempty"`
}

// NetworkDenial is a connection that the network of a session refused.
type NetworkDenial struct {
	Host       string `json:"host,omitempty"`       // as it was asked for; "": unknown
	Port       int    `json:"port,omitempty"`       // 0: unknown
	Message    string `json:"message"`              // why, for people
	Suppressed int    `json:"suppressed,omitempty"` // how many more there were before this one that are not told
}

// SessionResizeParams changes the size of a session's terminal.
type SessionResizeParams struct {
	SessionID string `json:"session_id"`
	Rows      int    `json:"rows"`
	Cols      int    `json:"cols"`
	Lease     string `json:"lease,omitempty"` // from session.hold, while the keyboard is held
}

// SessionResizeResult is the new size of the terminal.
type SessionResizeResult struct {
	SessionID string  `json:"session_id"`
	TTY       TTYSize `json:"tty"`
}
