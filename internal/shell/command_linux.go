package shell

import "golang.org/x/sys/unix"

// Command is one command to run. The shell opens the paths, which must stay valid
// until Run returns.
type Command struct {
	ID             string // names the command in a later roll-back, and for Resume
	Text           string
	Stdin          string   // "" means /dev/null
	Stdout, Stderr string   // these three are not used on a terminal
	Env            []string // NAME=value, or NAME to be unset, for this command only
	Dir            string   // absolute, for this command only
	Mark           uint32   // of the processes it starts
	// Stop stops the command when it is closed. nil means never.
	Stop <-chan struct{}
	// Keys receives the signal of each key that signals INT or QUIT. If the command
	// has no process that could receive it, only a loop of the shell itself, the
	// driver aborts that.
	Keys <-chan unix.Signal
	// StillRunning is called once, if the command still runs after a few
	// milliseconds.
	StillRunning func()
	// CaughtUp is called once by Resume, when all reports that were sent while there
	// was no daemon have been handled, unless the command has ended by then.
	CaughtUp func()
}

// Ending is what happened to the shell when a command ended.
type Ending int

// The endings.
const (
	Exited      Ending = iota // the command ended, the shell did not
	ShellExited               // the command ended its shell
	ShellDied                 // the shell was killed, crashed or became unusable
)

// Result is how a command ended.
type Result struct {
	Code         int
	Signal       unix.Signal // that ended the shell, or that stopped the command
	Ending       Ending
	Stopped      bool // Stop was closed before the command ended by itself
	RolledBack   bool // the shell's state is now what it was after RolledBackTo
	RolledBackTo string
}
