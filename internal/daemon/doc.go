// Package daemon makes one TRL out of its parts: it reads the settings, wires
// the floors together, listens, and takes everything down again in order.
//
// # Order of shutdown
//
// It is written here and carried out by (*daemon).close, step by step:
//
//  1. Stop accepting, on the socket and over HTTP. The socket's path and its
//     lock stay, so that no second daemon takes the place while this one still
//     has processes.
//  2. Destroy the sessions: new work is refused with SHUTTING_DOWN, every
//     command has its grace, every process tree is verified empty. Connections
//     live on meanwhile, so that whoever waits for a command learns how it
//     ended.
//  3. Answer what is still asked, and close the connections.
//  4. Close the hub of the shells, then the host of the processes. Output is
//     given back with its session; the journals have nothing left to close.
//  5. Remove the socket and its lock.
//
// # Signals
//
// The first SIGTERM or SIGINT begins the shutdown; a second one cuts the grace
// of the commands short. SIGHUP is logged and has no effect: there is nothing
// to reload, and a terminal that closes must not take the sessions of agents
// with it. SIGPIPE is caught, so that a daemon outlives the reader of its log;
// it is not ignored, because children inherit what is ignored.
package daemon
