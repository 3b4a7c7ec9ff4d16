// Command trl is TRL: the daemon, its clients, the helper that the daemon starts
// in a child before a program runs there, and the undertaker.
package main

import (
	"os"

	"github.com/terminal-runtime/trl/internal/cli"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/process"
)

func main() {
	// A helper has no command line of its own, and does not come back.
	process.RunChild()
	daemon.RunCleaner()
	os.Exit(cli.Main(os.Args[1:]))
}
