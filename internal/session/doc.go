// Package session is the heart of TRL: the Pool that owns every session, and
// the Session that owns one shell (or one direct command), its state and its
// execs.
//
// It knows no socket, no HTTP and no JSON. A request reaches it as api values
// and leaves it as api values. The request's context bounds how long a caller
// waits, never how long a command runs: an exec belongs to its session, and
// goes on when its caller is gone.
package session
