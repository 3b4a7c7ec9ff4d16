// Package daemon makes one TRL out of its parts: it reads the settings, wires
// the floors together, listens, and takes everything down again in order.
//
// # Order of shutdown
//
// It is written here and carried out by (*daemon).close, step by step:
//
//  1. Destroy the sessions: new work is refused with SHUTTING_DOWN, every
//     command has its grace, every process tree is verified empty. Connections
//     live on meanwhile, so that whoever waits for a command learns how it
//     ended, and who comes now is told the same. (On a socket of a service
//     manager nobody is let in any more: the next daemon finds them waiting.)
//  2. Stop accepting, on the socket and over HTTP. The socket's path and its
//     lock stay, so that no second daemon takes the place while this one is there.
//  3. Answer what is still asked, and close the connections.
//  4. Close the hub of the shells, then the host of the processes. Output is
//     given back with its session; the journals have nothing left to close.
//  5. Remove the socket and its lock.
//
// A daemon that lost its holder ends its sessions first, tells for ten seconds
// that they are lost, and then goes through the same steps. What is left when it
// can't is the undertaker's (RunUndertaker), or that of the next daemon on the
// same socket (replaceTheDead).
//
// # Signals
//
// The first SIGTERM or SIGINT begins the shutdown; a second one cuts the grace
// of the commands short. SIGPIPE is caught, so that a daemon outlives the reader
// of its log; it is not ignored, because children inherit what is ignored.
//
// SIGHUP asks for a restart under the sessions: the program that is at our path
// now is asked whether it could take over, with our arguments and the
// configuration as it is now. If so this daemon answers what it is being asked,
// and ends; the holder becomes that program and starts its daemon. A terminal
// that closes sends SIGHUP too, and so takes no session with it. SIGUSR2 asks for
// the same end without a next daemon: the socket is given up, its lock is not.
//
// # The lock
//
// The lock beside the socket is held for as long as there are sessions, by a
// daemon and by its holder. It says who the holder is, whether it waits for a
// daemon, and which program it is: by this the next `trl serve` finds it and asks
// for a daemon with SIGUSR1, and `trl stop` and `trl upgrade` find whom to ask.
//
// # Service managers
//
// Started by systemd, or what speaks as it does, the daemon serves on sockets
// that are passed and tells how it goes; see manager_linux.go. The process that
// was started is the holder, so that is whom the manager's variables mean.
package daemon
