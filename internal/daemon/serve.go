package daemon

import "os"

// Options is how a daemon is run, besides its configuration.
type Options struct {
	Version string
	// Stdio serves one connection on Stdin and Stdout instead of the socket,
	// and ends with it.
	Stdio bool

	Stdin, Stdout, Stderr *os.File // required
	// Environment is what the configuration was loaded from, to name the
	// variables in it that are no settings.
	Environment Environment
}
