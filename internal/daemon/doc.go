// Package daemon assembles TRL: it reads the settings, wires the layers
// together, listens, and shuts everything down in order. Package front serves the
// listeners.
//
// Sessions run on Linux. Elsewhere, and where host_runtime is off, Serve runs a daemon
// without a local place for sessions: a front and a router, see placeless.go.
//
// # Order of shutdown
//
// (*daemon).close carries out these steps:
//
//  1. Close the connections to places. Calls that wait for a place end. The
//     sessions in places live on.
//  2. Destroy the sessions: new work is refused with SHUTTING_DOWN, every
//     command gets its grace period, every process tree is verified empty.
//     Connections stay open, so that clients waiting for a command learn how it
//     ended, and new clients get SHUTTING_DOWN. (On a socket of a service
//     manager the daemon stops accepting here: new clients wait in the queue
//     for the next daemon.)
//  3. Stop accepting, on the socket and over HTTP. The socket's path and its
//     lock stay, so that no second daemon starts while this one still runs.
//  4. Answer the pending requests, and close the connections.
//  5. Close the shell driver, then the process host. Output is released with
//     its session; the journals have nothing left to close.
//  6. Remove the socket and its lock.
//
// A daemon that lost its holder ends its sessions first, reports for ten seconds
// that they are lost, and then goes through the same steps. If it cannot, the
// cleaner (RunCleaner) or the next daemon on the same socket
// (cleanUpAfterPredecessor) kills the remaining processes.
//
// # Signals
//
// The first SIGTERM or SIGINT begins the shutdown; a second one cuts the grace
// period of the commands short. SIGPIPE is caught, so that the daemon survives
// when the reader of its log exits; it is not ignored, because children inherit
// ignored signals.
//
// SIGHUP requests a restart that keeps the sessions: the daemon asks the program
// that is at its path now whether it can take over, with the same arguments and
// the current configuration. If so, this daemon answers the pending requests and
// exits; the holder executes that program, which starts its own daemon. A closing
// terminal sends SIGHUP too, and so ends no session. SIGUSR2 ends the daemon
// without starting another: it releases the socket but not the lock.
//
// # The lock
//
// The daemon and its holder hold the lock next to the socket for as long as there
// are sessions. The lock file names the holder, its program, and whether it is
// waiting for a daemon: with this the next `trl serve` finds the holder and
// requests a daemon with SIGUSR1, and `trl stop` and `trl upgrade` find the
// process to signal.
//
// # Service managers
//
// When systemd or a compatible manager starts it, the daemon serves on the
// sockets it was passed and reports its status; see manager_linux.go. The process
// that the manager started is the holder, so the manager's variables refer to it.
package daemon
