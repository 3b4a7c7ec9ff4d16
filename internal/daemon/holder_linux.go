package daemon

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/term"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trust"
)

// BecomeHolder makes this process the holder: it runs the daemon as a child with
// the same arguments, restarts it when it dies, and keeps its sessions meanwhile.
// It returns the exit status of a daemon that exited by itself. If resume is true,
// this process is a holder already and has just executed this program.
//
// If another holder for the same socket is waiting for a daemon, BecomeHolder
// makes that holder start one instead, and stays in the foreground until that
// holder ends.
func BecomeHolder(cfg Config, args []string, resume bool, stderr *os.File) (code int, err error) {
	terminal := term.IsTerminal(int(stderr.Fd()))
	log := newLogger(stderr, cfg, terminal)
	logFormat := FormatJSON
	if logsText(cfg, terminal) {
		logFormat = FormatText
	}
	socket, err := filepath.Abs(cfg.Socket)
	if err != nil {
		return 1, err
	}
	env := SystemEnvironment()
	passed := passedFiles(env, os.Getpid())
	for _, name := range listenVariables {
		_ = os.Unsetenv(name) // they are only valid until the first exec
	}
	program := args[0]
	if !resume && env.inCell() {
		program = "/proc/self/exe" // its path may not exist in here
	} else if !resume {
		// Only in a directory that the daemon will accept: root can reach another
		// user's directory as a client, but must not start a daemon there.
		if trust.Directory(filepath.Dir(socket), os.Geteuid()) == nil {
			h, err := FindHolder(socket)
			switch {
			case err == nil:
				defer h.Close()
				if h.Waiting() {
					return h.reattach(args[1:], log)
				}
			case errors.Is(err, ErrNotHolder):
				return 1, err
			}
			if err := stopOrphanedDaemon(socket); err != nil {
				return 1, err
			}
		}
		if program, err = programOf(args[0]); err != nil {
			return 1, err
		}
	}
	run := holder.Config{
		Argv: append([]string{program, DaemonSubcommand}, args[1:]...), Env: daemonEnv(env.Variables, len(passed)), Files: passed, Log: log,
		Program: program, ResumeArgv: append([]string{program, HolderSubcommand}, args[1:]...), Resume: resume,
	}
	if !env.inCell() { // the daemon outside kills all that a cell leaves
		run.Cleaner = func(host uint16) (argv, env []string) {
			return cleanerCommand(process.NameHost(os.Getpid(), host), socket, logFormat)
		}
	}
	return holder.Run(run)
}

// programOf returns the path by which this program was called. It does not ask the
// kernel, which reports the file that was executed: an upgrade may replace the file
// at the path, or change the target of a link there.
func programOf(called string) (string, error) {
	path, err := exec.LookPath(called)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		there, errThere := os.Stat(path)
		self, errSelf := os.Stat("/proc/self/exe")
		if errThere == nil && errSelf == nil && os.SameFile(there, self) {
			return path, nil
		}
	}
	return os.Executable() // argv[0] is not its path
}
