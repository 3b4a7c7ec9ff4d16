// Package api is TRL's vocabulary: the methods of the wire contract, their
// parameters and results, the session and exec states, and the error codes.
//
// It is the one place where these words are defined. The daemon serves them,
// the client sends them, and nothing in between maps them into other types.
// It depends on the standard library alone, so that a program can speak to
// TRL without linking the daemon.
package api

// Protocol is the version of the wire contract, answered by system.ping.
const Protocol = 1

// Method names. The set is closed: the service's method table is checked
// against it by a test.
const (
	MethodSystemPing    = "system.ping"
	MethodSystemInfo    = "system.info"
	MethodSystemStats   = "system.stats"
	MethodSystemUpgrade = "system.upgrade"

	MethodSessionCreate  = "session.create"
	MethodSessionList    = "session.list"
	MethodSessionInfo    = "session.info"
	MethodSessionDestroy = "session.destroy"
	MethodSessionWatch   = "session.watch"
	MethodSessionResize  = "session.resize"
	MethodSessionScreen  = "session.screen"
	MethodSessionHold    = "session.hold"
	MethodSessionRelease = "session.release"

	MethodExecRun    = "exec.run"
	MethodExecStream = "exec.stream"
	MethodExecAttach = "exec.attach"
	MethodExecOutput = "exec.output"
	MethodExecInput  = "exec.input"
	MethodExecSignal = "exec.signal"
	MethodExecCancel = "exec.cancel"
	MethodExecInfo   = "exec.info"
	MethodExecList   = "exec.list"

	MethodStreamClose = "stream.close"
)

// Names of the notifications that follow the answer to a method which opened a
// stream.
const (
	NotifyExecChunk    = "exec.chunk"
	NotifySessionEvent = "session.event"
)
