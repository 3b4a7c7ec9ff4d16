// Command trl is the daemon, its command-line client, and the helper processes
// of the daemon: the launcher of programs and the cleaner.
package main

import (
	"os"

	"github.com/terminal-runtime/trl/internal/cli"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/process"
)

func main() {
	// A helper process does not return from these calls.
	process.RunChild()
	confine.RunChild()
	daemon.RunCleaner()
	os.Exit(cli.Main(os.Args[1:]))
}
