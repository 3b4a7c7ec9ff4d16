package api

// PlaceState says whether a place can be used now.
type PlaceState string

// The states of a place.
const (
	PlaceConnected   PlaceState = "connected"
	PlaceIdle        PlaceState = "idle"        // not connected; the next call connects
	PlaceConnecting  PlaceState = "connecting"  // an attempt is under way
	PlaceUnreachable PlaceState = "unreachable" // the last attempt failed: see Reason
)

// Place is somewhere else that sessions can run: a TRL in a container, on another
// machine, or behind a command.
type Place struct {
	Name       string     `json:"name"`    // part of the ids of its sessions
	Runtime    string     `json:"runtime"` // what session.create takes, such as docker:web
	State      PlaceState `json:"state"`
	Configured bool       `json:"configured,omitempty"` // named in the configuration
	OS         string     `json:"os,omitempty"`         // this and the following: as the place last said
	Arch       string     `json:"arch,omitempty"`
	User       string     `json:"user,omitempty"`
	Version    string     `json:"version,omitempty"`
	Digest     string     `json:"digest,omitempty"` // SHA-256 of its program, in hex
	Shells     []string   `json:"shells,omitempty"`
	Limits     []string   `json:"limits,omitempty"`    // limits that can be enforced there
	Isolates   []string   `json:"isolation,omitempty"` // isolations that can be enforced there
	Since      *Time      `json:"since,omitempty"`     // when it got its state
	Reason     string     `json:"reason,omitempty"`    // unreachable: why, in one word
	Message    string     `json:"message,omitempty"`   // unreachable: why, for people
	Hint       string     `json:"hint,omitempty"`      // unreachable: what to do
	RetryMS    int64      `json:"retry_after_ms,omitempty"`
}

// PlaceListResult is the answer to place.list, in the order of the runtimes.
type PlaceListResult struct {
	Places []Place `json:"places"`
}

// PlaceParams names a place by its runtime or its name.
type PlaceParams struct {
	Runtime string `json:"runtime"`
}

// PlaceRemoveParams removes a place. A place with live sessions is removed only
// with Force, which ends them. With Forget nothing is done there: for a place that
// is gone for good.
type PlaceRemoveParams struct {
	Runtime string `json:"runtime"`
	Force   bool   `json:"force,omitempty"`
	Forget  bool   `json:"forget,omitempty"`
}

// PlaceRemoveResult says what was removed.
type PlaceRemoveResult struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
}

// Unreachable is a place that did not answer: its sessions may still run there.
type Unreachable struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	Reason  string `json:"reason"` // one word
	Message string `json:"message,omitempty"`
	Since   *Time  `json:"since,omitempty"`
}
