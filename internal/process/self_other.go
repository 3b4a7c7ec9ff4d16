//go:build !linux

package process

// leaveTerminal does nothing here: children are started on Linux only.
func leaveTerminal() {}

// runLeader does nothing here either.
func runLeader(string) {}
