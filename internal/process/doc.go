// Package process starts process trees, sees every process in them, signals
// them, and proves them gone.
//
// A Tree is everything that descends from the processes started in it, however
// far it strayed: new sessions, new process groups, double forks. Two
// independent means keep hold of a descendant:
//
//   - Its cgroup. Where a cgroup v2 hierarchy is writable, each tree has a
//     cgroup of its own; cgroup.kill reaches all of it at once, forking storms
//     included. A hierarchy without controllers is enough.
//   - Its tag. Every process inherits its parent's resource limits through
//     fork, exec and setsid. One limit that Linux no longer enforces carries a
//     number: which daemon, which tree, and which mark within the tree. Reading
//     it back is one system call. So a tree's members are known even without
//     cgroups, and the processes of one command are told from those of an
//     earlier one at a cost of a quarter of a microsecond per command.
//
// Both say whose a process is also when its host is dead: see HostName.Bury.
//
// The Host is the one parent: it makes this OS process a child subreaper and
// owns the only reaper, so nothing it started or inherited stays a zombie and
// no exit status is lost. Every process of the daemon is started here; this is
// the seam behind which starting can later move to another process.
package process
