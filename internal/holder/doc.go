// Package holder keeps what must outlive the daemon: descriptors, the exit
// statuses of processes, and the daemon itself, which it starts again when it
// dies.
//
// The holder is a process of its own, and the smallest there can be: it is the
// parent of every process of every session, and it never reads from a
// descriptor it keeps nor parses anything but the fixed messages of its own
// binary. So there is nothing in it that what runs in a session could break.
//
// The daemon is its child and talks to it over one socket pair. It chooses the
// numbers under which descriptors are kept, so that giving one away waits for
// nothing. Order on the socket is the order in which things happen: what was
// sent before the daemon was killed is done, what was not sent is not.
//
// Beside the daemon it keeps an undertaker, a third process that does nothing
// until both are dead. It knows by the end of a pipe that only they can write to,
// and then ends what they left.
package holder
