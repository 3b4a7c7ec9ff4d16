// Package confine starts a program that can reach only what its Spec lists: its
// own view of the file system, network, processes, user and system calls. It uses
// Linux namespaces, Landlock and seccomp, and nothing but golang.org/x/sys.
//
// Everything in a Spec is enforced, or the program does not start. What a machine
// can enforce is found out by doing it once, in child processes:
//
//	abilities := confine.Probe(ctx, start)   // once for each daemon
//	err := abilities.Check(spec)             // *confine.Missing: everything that is missing
//	force := abilities.InForce(spec)         // what will be in force: mechanisms, Landlock ABI
//	launch, err := abilities.Launch(spec, listener)
//	… start a process as launch.Start describes, put it in its cgroup, tag it …
//	proxy, err := launch.Open(ctx)           // lets it go; nil error: the program runs
//
// This package starts no process itself: in the daemon only internal/process does.
// A Start says what the caller must fork. The process is the launcher, a child mode
// of this binary (RunChild). It waits on descriptor 3 until Launch.Open, confines
// itself, and then becomes the program, so that no process stays in between: the
// program is PID 1 of its PID namespace. The launcher reports a failure in words on
// descriptor 3; executing the program closes it.
//
// The launcher does this, in this order:
//
//  1. namespaces, made by the fork: mount, PID and IPC, network; in a new user
//     namespace unless the daemon may make them without one
//  2. the view: see view_linux.go
//  3. the loopback interface, and the listener of the proxy
//  4. resource limits and oom_score_adj
//  5. groups, group, user
//  6. capabilities: all sets are emptied, the bounding set too
//  7. no_new_privs, Landlock, seccomp
//  8. descriptors: only 0 to 2 and the listeners are left
//
// Without Landlock a view is enough for files. Without a mount namespace Landlock
// of ABI 3 or later is enough for reading and writing, but not for root: Landlock
// protects neither sockets nor owners, modes and times of files.
//
// What is not confined: a user namespace keeps the other groups of the daemon's
// user. Abstract Unix sockets of the host can be reached with the host's network
// and a Landlock older than ABI 6. A denied or hidden path that does not exist when
// the program starts is not denied later.
package confine
