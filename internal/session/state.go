package session

import (
	"fmt"

	"github.com/terminal-runtime/trl/api"
)

// transitions is the whole life of a session. Nothing else changes a state.
var transitions = map[api.State][]api.State{
	api.StateCreating: {
		api.StateIdle,       // the shell has answered
		api.StateRunning,    // a direct command runs from the start
		api.StateTerminated, // it could not be started
	},
	api.StateIdle: {
		api.StateRunning,    // an exec begins
		api.StateTerminated, // destroyed, idle for too long, shutdown
	},
	api.StateRunning: {
		api.StateIdle,       // the exec has ended
		api.StateTerminated, // destroyed, or the direct command has ended
	},
	api.StateTerminated: nil,
}

// transition returns next if the table allows it. An illegal transition is a bug of
// this package, not of a caller, and panics.
func transition(from, next api.State) api.State {
	for _, to := range transitions[from] {
		if to == next {
			return next
		}
	}
	panic(fmt.Sprintf("session: illegal transition %s → %s", from, next))
}
