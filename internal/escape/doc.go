// Package escape holds the escape table: the attempts to get out of a confinement that
// internal/confine must refuse, as data. It contains tests only.
//
// An attempt runs on a stage of its own: a process in new mount, PID, network, IPC
// and UTS namespaces, with files, servers, sockets and a victim process that stand for
// the outside. So attempts that succeed do no harm to the machine. An attempt runs
// unconfined first, where it must get through, or its refusal would prove nothing. Then
// it runs confined, where it must be refused, and the stage compares everything outside
// with what it was before.
//
// An attempt reports that it got through (status 0) or that the kernel refused its
// decisive step (status 41, with the step and the errno). Any other end is an error of
// the table: a crash is not a refusal.
//
// Guests with other kernels run the tables, too. They are slow: there, attempts that
// change nothing share a stage, and those that got through on this machine need not do
// so again. With TRL_LONG=1 guests prove every row as this machine does.
//
// A second table lists what a confinement does not stop, and proves that too.
package escape
