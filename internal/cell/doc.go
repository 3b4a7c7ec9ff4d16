// Package cell runs confined sessions. Each has a cell: a small TRL of its own,
// which package confine starts behind namespaces, Landlock and seccomp, and which
// has that session alone. The daemon reaches it as a place over a socket that has no
// name: it is bound in a private directory, opened, and unlinked, so that no process
// in a cell finds it.
//
// The processes of a cell are one process.Tree, so killing a cell means verified
// gone. The holder keeps the way to its socket, and the ledger has its record, so
// that cells outlive the daemon. Without a holder they end with it.
//
// The files, from top to bottom; a file refers only to those below it:
//
//	create_linux.go  session.create with isolation
//	adopt_linux.go   cells of an earlier daemon
//	abilities_linux.go what this machine can enforce
//	plan_linux.go    isolation and limits → what package confine is asked for
//	network_linux.go what its session can connect to
//	limits_linux.go  what all of its processes may use
//	account_linux.go users of this machine
//	cells_linux.go   Cells: all cells of a daemon
//	mirror_linux.go  what the daemon knows of the session in a cell
//	end_linux.go     the end of a cell
//	cell_linux.go    one cell
//	record_linux.go  its record in the ledger
//	socket_linux.go  its socket
//	denials_linux.go what its network refused, for its TRL
//	inside.go        what the daemon tells the TRL in a cell
package cell
