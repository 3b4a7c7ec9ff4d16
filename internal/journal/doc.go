// Package journal keeps the output of one command: the bytes of stdout and
// stderr (or of its terminal) in arrival order over both, addressed by one
// byte offset that never changes.
//
// A Journal is written by the command's pumps and pulled by any number of
// readers, who hold an offset and Wait. Bytes are written before they are
// visible, and nobody pushes into a slow reader, so a reader can delay neither
// the command nor another reader.
//
// # Where the bytes are
//
// A small journal is memory: a lane while it runs, a slice when it is closed.
// Past Config.ExecMemory (or earlier when the daemon is past Config.TotalMemory)
// its content moves to one unlinked spill file and stays there. In the file the first half of Config.ExecQuota is the
// head and the second half a ring for the tail: past the quota the oldest tail
// bytes are dropped and the gap between head and tail grows. There is never
// more than one gap, it never shrinks and its start never moves.
//
// When the file can't take bytes (disk full, write error, no file to be had,
// Config.TotalQuota reached), what is in it stays as the head, a small ring in
// memory keeps the newest bytes, and Lossy says why. Once there is room again the
// ring moves to the file and what comes is kept as before, behind the one gap. The
// command is never blocked and no byte goes missing silently: what is not held is
// in the gap, and the sizes count it.
//
// # What survives
//
// A lane is a file in memory, mapped, which Config.Keeper holds too, and so does
// it the spill file. All that is to be known of a running journal is in its lane:
// sizes, runs, marks, gap, rings. It is written beside what is good and then made
// good by one store, so a process that is killed at any instruction leaves a whole
// journal, which Restore brings back.
//
// Bytes leave a pipe by splice(2) only, to the position of the lane or of the
// spill file. Before, the lane says which stream it is and where the position was;
// how far it has moved since is how many bytes came, whether or not anybody lived
// to count them. A terminal's bytes go through a pipe of its own, which is kept
// too. Where splice is refused the bytes are read and written, and
// Config.Inexact is told.
//
// A closed journal is a Value for its owner to put where a restart finds it. The
// order is Seal, Value, Close: the lane is given up last.
//
// # Memory
//
// An empty journal has no file, no goroutine and no lane; a small one that is
// closed costs about its bytes. The index of where the stream changes is memory
// too and bounded: a program that alternates one byte of stdout with one of
// stderr loses its middle early instead of growing the daemon.
//
// When bytes came is in a table of its own: marks of an offset and a time, at
// least a hundredth of a second apart, and farther where there would be too many.
// The bytes of most commands come at once, and then there is no table.
//
// # Locks
//
// Journal.wmu, then Journal.mu; the store's counters are atomics. wmu makes
// appends one after the other and is held across writes to the file. mu guards
// what readers see and is never held across a system call, so a slow disk
// delays the pumps and no reader.
package journal
