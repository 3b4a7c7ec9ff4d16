// Package trust decides whose files, directories and processes on this machine
// may be believed: root's, and those of one user.
//
// It is used at both ends of a Unix socket. A daemon must not serve where
// somebody else could put another socket in its place, and a client must not
// send an environment or a command to whoever happens to listen at a path.
package trust

// Refusal is something that another user could have made or could change.
type Refusal struct {
	Message string // what was found, and where
	Hint    string // what to do about it
	Path    string // of what was found
}

// Error is the message and then the hint, in one line.
func (r *Refusal) Error() string { return r.Message + ": " + r.Hint }
