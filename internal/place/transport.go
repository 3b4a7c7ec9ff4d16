package place

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// transport reaches one place. Its errors are *refusal, or the error of a context.
type transport interface {
	// connect returns a wire to the place's daemon, and starts the daemon if it is
	// not there. It delivers this program first if the place lacks it.
	connect(ctx context.Context) (peer.Wire, *api.Hello, error)
	// remove ends the place's daemon with all its sessions, and removes what was
	// delivered. It succeeds if there is nothing to remove.
	remove(ctx context.Context) error
	// close releases what connections share, such as the master of SSH. connect may
	// be called again afterwards.
	close()
}

// maxMessage limits a message of a place in bytes, unless a call asks for a longer one.
// The longest of the others is a chunk of a stream: 128 KiB, each byte of which takes
// up to six in JSON. A place that means harm costs twice as much memory.
const maxMessage = 2 << 20

// target is what a transport needs to know about its place.
type target struct {
	name    string // of the place
	id      string // random, drawn with the place: the name alone could be that of another daemon's place
	node    string // name of the place's daemon, in its ids: this daemon's own, a dash and name
	runtime string // such as docker:web, without the parts of a chain behind it
	address string // what follows the colon: web
	ttlMS   int64  // after which a place's daemon ends without sessions and connections
	dir     string // private directory of this daemon for sockets and the like
	env     []string
	limits  *api.Limits // of the whole place, which is made for one session; nil: none
}

// refusal is why a place can't be reached.
type refusal struct {
	reason  reason
	message string   // what happened, with the last words of the transport
	hint    string   // what a person can do
	limits  []string // of noLimits: which
}

func (r *refusal) Error() string { return r.message }

// reason is a stable word for clients: details.reason of RUNTIME_UNAVAILABLE.
type reason string

// The reasons.
const (
	notRunning  reason = "not_running" // the container is not running
	paused      reason = "paused"      // the container is paused
	ended       reason = "ended"       // the container that was made for it is gone, with all sessions
	noEngine    reason = "no_engine"   // neither the program nor its engine answers
	badHostKey  reason = "host_key"    // SSH does not know the host, or another key
	noAccess    reason = "auth"        // the place refuses the user
	unreachable reason = "unreachable"
	noArch      reason = "no_arch" // no program for its architecture
	noExec      reason = "noexec"  // no directory in it can hold a program
	noProc      reason = "no_proc"
	noSpace     reason = "no_space"
	noShell     reason = "no_shell"
	badVersion  reason = "version" // the TRL there speaks another protocol
	silent      reason = "silent"  // it does not answer in time
	refused     reason = "refused"
	noLimits    reason = "limits" // the engine can't limit the container
	unknown     reason = "unknown"
)

// passes reports whether a place that was reached before may be back without anybody
// doing something about it.
func (r reason) passes() bool {
	switch r {
	case notRunning, paused, noEngine, unreachable, silent, unknown:
		return true
	default:
		return false
	}
}
