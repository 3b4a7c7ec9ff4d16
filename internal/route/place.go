package route

import (
	"context"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// Places are the places of a daemon other than its own machine. They are safe for
// concurrent use.
type Places interface {
	// Find returns the place with this name, or nil.
	Find(name string) Place
	// Get returns the place for a runtime such as docker:web, and makes it if it is
	// new. rest is the runtime to ask for inside of it; "" means host. The error is
	// RUNTIME_NOT_FOUND or FORBIDDEN.
	Get(ctx context.Context, runtime string) (p Place, rest string, err error)
	// MakesSingle reports whether places of a runtime can be made for one session.
	MakesSingle(runtime string) bool
	// Single returns a place that was made for one session with limits of memory,
	// processor time or processes, and ends with it. With the same key it returns the
	// same place. discard must be called if no session could be created there.
	Single(ctx context.Context, runtime string, limits api.Limits, key string) (p Place, discard func(), err error)
	// All returns the places that are known, connected or not.
	All() []Place
	// Changed returns a channel that is closed at the next change of the set of
	// places, or of whether one is connected.
	Changed() <-chan struct{}
}

// Place is one place. It is safe for concurrent use, and comparable.
type Place interface {
	Name() string    // in the ids of its sessions
	Runtime() string // what session.create takes
	// Conn returns the connection for calls, and makes it if necessary. The error is
	// RUNTIME_UNAVAILABLE with the details runtime, reason, retry_after_ms and sent.
	Conn(ctx context.Context) (*peer.Conn, error)
	// OpenStream returns a connection for one stream. exclusive means that no other
	// stream uses it, so that its subscriber may block. release must be called once.
	OpenStream(ctx context.Context) (c *peer.Conn, exclusive bool, release func(), err error)
	Connected() bool
	// Delegates reports whether its connections act for others: then every request
	// must have an actor.
	Delegates() bool
	// Touch is called before and after each call to the place.
	Touch()
	// SessionDestroyed is called after a session of the place was destroyed. A place
	// that was made for that session alone ends.
	SessionDestroyed()
}

// Values of the detail sent of RUNTIME_UNAVAILABLE: whether the place may have
// received the call.
const (
	sentNo    = "no"
	sentMaybe = "maybe"
)

// retryAfterMS is when to try again after a connection was lost: a place that
// restarts is back by then.
const retryAfterMS = 1000

// unavailable is the error of a call to a place that was lost or that refused it.
func unavailable(p Place, reason, sent string, cause error) *api.Error {
	err := api.Errorf(api.CodeRuntimeUnavailable, "%s: %w", p.Runtime(), cause).
		With("runtime", p.Runtime()).With("reason", reason).With("sent", sent).With("retry_after_ms", retryAfterMS)
	if sent == sentMaybe {
		return err.WithHint("the call may have been executed: check exec.list and session.list before you repeat it")
	}
	return err.WithHint("repeat the call; `trl place check %s` shows what is wrong", quoted(p.Runtime()))
}

// quoted returns a runtime as a word of a shell.
func quoted(runtime string) string {
	if strings.ContainsAny(runtime, " \t\n\"'\\$`&|;<>()*?[]#~!{}") {
		return strconv.Quote(runtime)
	}
	return runtime
}

// asUnavailable returns the error of a place that can't be reached, with what the
// call knows about being sent.
func asUnavailable(p Place, err error, sent string) *api.Error {
	var known *api.Error
	if known = api.AsError(err); known.Code != api.CodeRuntimeUnavailable {
		return unavailable(p, "unknown", sent, err)
	}
	if sent == sentNo {
		return known
	}
	out := unavailable(p, "", sent, known)
	out.Message = known.Message
	for name, value := range known.Details {
		if name != "sent" {
			_ = out.With(name, value)
		}
	}
	return out
}
