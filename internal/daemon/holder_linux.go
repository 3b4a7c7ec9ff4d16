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

// Hold makes this process the holder: it runs the daemon as a child, with the
// same arguments, starts it again when it dies, and keeps its sessions meanwhile.
// It returns the exit status of a daemon that has ended by itself. With again
// this process is one already, and was another program before.
//
// Where another holder waits for a daemon, that one gets it, and this process
// stands before it until it ends.
func BecomeHolder(cfg Config, args []string, again bool, stderr *os.File) (code int, err error) {
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
		_ = os.Unsetenv(name) // they are true until the first exec alone
	}
	program := args[0]
	if !again {
		// Only in a directory that the daemon will accept: in another's, which
		// root can reach as a client, it is not ours to give it a daemon.
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
	return holder.Run(holder.Config{
		Argv: append([]string{program, DaemonSubcommand}, args[1:]...), Env: daemonEnv(env.Variables, len(passed)), Files: passed, Log: log,
		Program: program, ResumeArgv: append([]string{program, HolderSubcommand}, args[1:]...), Resume: again,
		Cleaner: func(host uint16) (argv, env []string) {
			return cleanerCommand(process.NameHost(os.Getpid(), host), socket, logFormat)
		},
	})
}

// programOf is the path by which this program was called. It is not asked of
// the kernel, which tells the file that this program was: another may be put in
// its place, or a link there may come to lead to another.
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
	return os.Executable() // it was called by another name
}
