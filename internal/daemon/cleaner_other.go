//go:build !linux

package daemon

// RunUndertaker is for Linux, where sessions are.
func RunCleaner() {}
