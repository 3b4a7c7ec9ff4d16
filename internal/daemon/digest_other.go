//go:build !linux

package daemon

// deliveredDigest returns "": only places that run Linux have a delivered program.
func deliveredDigest() string { return "" }
