// Package trust decides which files, directories and processes on this machine can
// be trusted: those of root and of one user.
//
// Both ends of a Unix socket use it. A daemon must not serve where another user could
// replace its socket, and a client must not send an environment or a command to just
// any process that listens at a path.
package trust

// Refusal is the error for a file, directory or process that another user could have
// made or could change.
type Refusal struct {
	Message string // what was found, and where
	Hint    string // what to do about it
	Path    string // of the refused file or directory
}

// Error returns the message and the hint, in one line.
func (r *Refusal) Error() string { return r.Message + ": " + r.Hint }
