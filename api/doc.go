// Package api defines the wire contract of TRL: the methods, their parameters
// and results, the session and exec states, and the error codes.
//
// These names are defined here and nowhere else. The daemon serves these types,
// the client sends them, and nothing in between maps them to other types. The
// package depends on the standard library alone, so that a program can talk to
// TRL without linking the daemon.
package api

// Protocol is the version of the wire contract. system.ping returns it.
const Protocol = 1

// Method names. The set is closed: a test compares it with the service's method
// table.
const (
	MethodSystemPing       = "system.ping"
	MethodSystemInfo       = "system.info"
	MethodSystemStats      = "system.stats"
	MethodSystemUpgrade    = "system.upgrade"
	MethodSystemDelegate   = "system.delegate"
	MethodSystemDisconnect = "system.disconnect"

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

	MethodPlaceList    = "place.list"
	MethodPlaceAdd     = "place.add"
	MethodPlaceCheck   = "place.check"
	MethodPlaceRemove  = "place.remove"
	MethodPlaceUpgrade = "place.upgrade"

	MethodStreamClose = "stream.close"
)

// Names of the notifications that follow the answer to a method that opens a
// stream.
const (
	NotifyExecChunk    = "exec.chunk"
	NotifySessionEvent = "session.event"
	NotifySystemHello  = "system.hello" // from a relay, before anything else
)
