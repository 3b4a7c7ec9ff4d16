// Package terminal implements the terminal of a session: the pseudo-terminal and
// its descriptors, the screen, typing, and finding out which program waits for
// input. A Terminal outlives the commands that run on it.
//
// It knows the command whose output it receives only as an Output.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	format2.go         snapshots of format 2
//	waiting_linux.go   which program waits for input
//	typing_linux.go    input
//	open_linux.go      open, adopt and close a terminal
//	screen_linux.go    size, screen, restoring the screen
//	output_linux.go    output into journal and screen
//	snapshot_linux.go  persisting the screen
//	terminal_linux.go  Terminal, Config, Output
//	state.go           Slots, Snapshot
package terminal
