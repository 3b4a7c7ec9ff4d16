// Package pty opens pseudo-terminals.
//
// The master's descriptor is in the runtime's poller, so a deadline or a Close
// unblocks a Read. The slave is opened through the master, not by its name, so
// that it is the right one in any mount namespace.
package pty
