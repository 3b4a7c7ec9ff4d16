// Package process starts process trees, finds every process in them, signals
// them, and verifies that they are gone.
//
// A Tree is the set of all descendants of the processes started in it, including
// those in new sessions, in new process groups and after double forks. Two
// independent mechanisms track a descendant:
//
//   - Its cgroup. Where a cgroup v2 hierarchy is writable, each tree has its own
//     cgroup; cgroup.kill reaches all of it at once, fork storms included. A
//     hierarchy without controllers is enough.
//   - Its tag. Every process inherits its parent's resource limits through
//     fork, exec and setsid. One limit that Linux no longer enforces carries a
//     number: which daemon, which tree, and which mark within the tree. Reading
//     it back is one system call. So a tree's members are known even without
//     cgroups, and the processes of one command are distinguished from those of
//     an earlier one at a cost of a quarter of a microsecond per command.
//
// Both identify the processes of a host even after its death: see
// HostName.KillOrphans.
//
// The Host is the parent of all processes: it makes this OS process a child
// subreaper and owns the only reaper, so nothing it started or inherited stays a
// zombie and no exit status is lost. Only this package starts processes in the
// daemon, so starting could later move to another process.
package process
