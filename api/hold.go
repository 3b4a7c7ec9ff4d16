package api

// SessionHoldParams takes the keyboard of a session: as long as it is held,
// only its holder starts commands in the session, types, and changes the size
// of its terminal. Looking and stopping stay open to all.
type SessionHoldParams struct {
	SessionID string `json:"session_id"`
	Holder    string `json:"holder"`            // who it is: told to those who are refused
	Lease     string `json:"lease,omitempty"`   // renews this hold instead of beginning one
	Force     bool   `json:"force,omitempty"`   // takes it from who has it
	TTLMS     int64  `json:"ttl_ms,omitempty"`  // ends so long after it was last renewed or used; default 15000
	Answers   bool   `json:"answers,omitempty"` // the holder's own terminal answers what programs ask of theirs
}

// SessionHoldResult is a hold and the lease that proves it.
type SessionHoldResult struct {
	SessionID string `json:"session_id"`
	Lease     string `json:"lease"` // for exec.run, exec.stream, exec.input, session.resize and session.release
	Hold      Hold   `json:"hold"`
}

// Hold says who has the keyboard of a session.
type Hold struct {
	Holder string `json:"holder"`
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // unless it is renewed or used
}

// SessionReleaseParams gives the keyboard of a session back.
type SessionReleaseParams struct {
	SessionID string `json:"session_id"`
	Lease     string `json:"lease"`
}

// SessionReleaseResult names the session that is nobody's now.
type SessionReleaseResult struct {
	SessionID string `json:"session_id"`
}
