// Package conformance holds the torture table and a runner that applies it to
// any TRL over its Unix socket.
//
// The table says what must hold for a shell session whatever a command does to
// it: end its shell, close its descriptors, redefine what the driver uses,
// leave processes behind. The runner is a black-box test. It speaks JSON lines
// with its own code and shares none with the daemon, so that it can also judge
// another implementation, or the same one elsewhere.
package conformance
