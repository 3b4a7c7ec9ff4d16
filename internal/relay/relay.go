// Package relay carries the messages of a TRL between standard input and output
// and the daemon's socket. It is `trl connect`, the far end of a place.
package relay
