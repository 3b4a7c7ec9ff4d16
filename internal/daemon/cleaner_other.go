//go:build !linux

package daemon

// RunCleaner does nothing: sessions run on Linux only.
func RunCleaner() {}
