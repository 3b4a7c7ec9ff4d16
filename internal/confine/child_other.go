//go:build !linux

package confine

// RunChild does nothing: there are no launchers on this system.
func RunChild() {}
