// Package holder keeps what must outlive the daemon: file descriptors, the exit
// statuses of processes, and the daemon itself, which it restarts when it dies.
//
// The holder is a separate process and does as little as possible. It is the
// parent of every process of every session. It never reads from a descriptor
// that it keeps and parses nothing but the fixed-size messages of its own
// binary, so a program in a session has no input through which it could break
// the holder.
//
// The daemon is a child of the holder and talks to it over one socket pair. The
// daemon chooses the numbers under which descriptors are kept, so handing one
// over does not wait for a reply. The holder processes messages in the order in
// which they were sent: everything that the daemon sent before it was killed is
// done, and nothing else is.
//
// The holder also runs the cleaner, a third process that does nothing until
// both the holder and the daemon are dead. The cleaner detects this by EOF on a
// pipe that only those two have open for writing, and then kills the processes
// that they left behind.
package holder
