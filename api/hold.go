package api

// SessionHoldParams takes the keyboard lease of a session. While the lease is
// held, only its holder can start commands in the session, type, and resize its
// terminal. Reading and stopping stay open to everyone.
type SessionHoldParams struct {
	SessionID string `json:"session_id"`
	Holder    string `json:"holder"`            // a name for the holder, shown to clients that are refused
	Lease     string `json:"lease,omitempty"`   // renews this lease instead of taking a new one
	Force     bool   `json:"force,omitempty"`   // takes the keyboard from the current holder
	TTLMS     int64  `json:"ttl_ms,omitempty"`  // expires this long after it was last renewed or used; default 15000
	Answers   bool   `json:"answers,omitempty"` // the holder's own terminal answers terminal queries of programs
}

// SessionHoldResult describes a keyboard lease and carries the token that
// proves it.
type SessionHoldResult struct {
	SessionID string `json:"session_id"`
	Lease     string `json:"lease"` // for exec.run, exec.stream, exec.input, session.resize and session.release
	Hold      Hold   `json:"hold"`
}

// Hold says who holds the keyboard of a session.
type Hold struct {
	Holder string `json:"holder"`
	Since  Time   `json:"since"`
	Until  Time   `json:"until"` // unless it is renewed or used
}

// SessionReleaseParams releases the keyboard of a session.
type SessionReleaseParams struct {
	SessionID string `json:"session_id"`
	Lease     string `json:"lease"`
}

// SessionReleaseResult names the session whose keyboard is free now.
type SessionReleaseResult struct {
	SessionID string `json:"session_id"`
}
