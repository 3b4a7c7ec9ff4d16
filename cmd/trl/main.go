// Command trl is the daemon, its command-line client, and the helper processes
// of the daemon: the launcher of programs and the cleaner.
package main

import (
	"os"
	"runtime"

	"github.com/terminal-runtime/trl/internal/cli"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/process"
)

// The main goroutine keeps the main thread: a holder must execute its next program
// there, see holder.Run.
func init() { runtime.LockOSThread() }

func main() {
	// A helper process does not return from these calls.
	process.RunChild()
	confine.RunChild()
	daemon.RunCleaner()
	os.Exit(cli.Main(os.Args[1:]))
}
