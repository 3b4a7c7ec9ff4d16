//go:build !linux

package process

// leaveTerminal does nothing here: children are started on Linux only.
func leaveTerminal() {}

// The other helper modes do nothing here either.
func runLeader() {}

func startAndExit([]string) {}
