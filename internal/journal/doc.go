// Package journal keeps the output of one command: the bytes of stdout and
// stderr (or of its terminal) in the order of arrival across both, addressed by
// one byte offset that never changes.
//
// The command's pumps write a Journal, and any number of readers pull from it,
// each with its own offset and Wait. Bytes are written before they are visible,
// and nothing is pushed to a slow reader, so a reader can delay neither the
// command nor another reader.
//
// # Where the bytes are
//
// A small journal is in memory: in a live segment while it runs, in a slice
// when it is closed. Past Config.ExecMemory (or earlier when the daemon is past
// Config.TotalMemory) its content moves to one unlinked spill file and stays
// there. In the file, the first half of Config.ExecQuota is the head and the
// second half a ring for the tail: past the quota the oldest tail bytes are
// dropped and the gap between head and tail grows. There is never more than one
// gap, it never shrinks and its start never moves.
//
// When the file can't take bytes (disk full, write error, file creation failed,
// Config.TotalQuota reached), its content stays as the head, a small ring in
// memory keeps the newest bytes, and Lossy returns the reason. Once there is
// room again, the ring moves to the file and output is kept as before, after
// the one gap. The command is never blocked and no byte goes missing silently:
// bytes that are not held are in the gap, and the sizes count them.
//
// # What survives
//
// A live segment is a mapped memfd that Config.Keeper holds too, like the spill
// file. It contains the whole state of a running journal: sizes, runs, marks,
// gap, rings. A new state is written next to the valid one and made valid by
// one atomic store, so a process that is killed at any instruction leaves a
// consistent journal, which Restore brings back.
//
// Bytes leave a pipe only by splice(2), to the file position of the live
// segment or of the spill file. Before each splice the segment records the
// stream and the position; how far the position has moved since then is how
// many bytes arrived, even if the process was killed before it could count
// them. A terminal's bytes go through a separate pipe, which is kept too. Where
// splice is refused the bytes are read and written, and Config.Inexact is
// called.
//
// The owner of a closed journal stores its Value where a restart finds it. The
// order is Seal, Value, Close: the live segment is released last.
//
// # Memory
//
// An empty journal has no file, no goroutine and no live segment; a small
// closed one costs little more than its bytes. The index of stream changes is
// also in memory, and bounded: a program that alternates one byte of stdout
// with one of stderr loses its middle early instead of growing the daemon.
//
// A separate table stores when bytes arrived: marks of an offset and a time, at
// least 10 ms apart, and farther apart where there would be too many. The bytes
// of most commands arrive at once, and then there is no table.
//
// # Locks
//
// Journal.wmu, then Journal.mu; the store's counters are atomics. wmu
// serializes appends and is held across writes to the file. mu guards what
// readers see and is never held across a system call, so a slow disk delays the
// pumps but no reader.
package journal
