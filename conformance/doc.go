// Package conformance holds the torture table and the runner that puts it to
// any TRL over its Unix socket.
//
// The table says what must be true of a shell session whatever a command does
// to it: end its shell, close its descriptors, redefine what the driver uses,
// leave processes behind. The runner is black-box. It speaks JSON lines by its
// own means and shares no code with the daemon, so that it can judge another
// implementation, or the same one in another place, just as well.
package conformance
