package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/daemon"
)

const (
	// startTime is how long a daemon may take to answer: a hundred times what it
	// takes.
	startTimeout = 10 * time.Second
	// otherTime is how long one that was faster may take to answer, from when it
	// was in the way of this one.
	competitorTimeout = time.Second
	// maxLogBytes is how large the log of a daemon that was started in the
	// background may be when another one is started; then a new one is begun.
	maxLogBytes = 10 << 20
)

// detach is `trl serve --detach` with the rest of its command line.
func (a *app) detach(ctx context.Context, path string) error {
	before, _, err := a.daemonStatus(ctx, path)
	if err == nil {
		fmt.Fprintf(a.stdout, "trl: a daemon serves on %s already (version %s, pid %d)\n", path, before.Version, before.PID)
		return nil
	}
	var args []string
	for _, arg := range os.Args[1:] {
		if arg != "--detach" && arg != "--detach=true" {
			args = append(args, arg)
		}
	}
	if err := a.startDaemon(ctx, path, "", args); err != nil {
		return err
	}
	after, _, err := a.daemonStatus(ctx, path)
	if err == nil {
		fmt.Fprintf(a.stdout, "trl: serving on %s (pid %d); `trl stop` ends it\n", path, after.PID)
	}
	return err
}

// ensureDaemon starts a daemon with the settings of this user.
func (a *app) ensureDaemon(ctx context.Context) error {
	path, err := a.socketPath()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	args := []string{"serve"}
	if a.socket != "" {
		args = append(args, "--socket", path)
	}
	return a.startDaemon(ctx, path, a.environment.Home, args)
}

// startDaemon starts this program in the background, for this user and for good,
// in dir or else here, and returns when a daemon answers on path. If another one
// was faster, that will do.
func (a *app) startDaemon(ctx context.Context, path, dir string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	logFile, err := a.openLog()
	if err != nil {
		return err
	}
	defer logFile.Close() // the daemon has it
	begun, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, append([]string{launcherCommand}, args...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = dir, logFile, daemonVariables(a.environment.Variables)
	launched, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer launched.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var failure error
	var other <-chan time.Time // until when another one may come that was in the way
	for {
		c, err := client.DialWith(ctx, path, client.Options{})
		if err == nil {
			_, err = c.Ping(ctx)
			c.Close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon that was started does not answer on %s: %w", path, err).
				WithHint("its log is %s; `trl doctor` checks this machine", logFile.Name())}
		case failure = <-ended:
			other = time.After(competitorTimeout)
		case <-other:
			why, hint := startFailure(logFile.Name(), begun, failure)
			if hint == "" {
				hint = fmt.Sprintf("its log is %s; `trl doctor` checks this machine", logFile.Name())
			}
			return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon could not be started: %s", why).WithHint("%s", hint)}
		case <-time.After(pollInterval):
		}
	}
}

// launchWord stands before the arguments of a daemon that is to be nobody's child.
const launcherCommand = "be-launcher"

// launch starts a daemon and ends, at the latest when its stdin is closed. What it
// has started then has no parent among the processes of an agent, some of which
// end all that is below them. It fails if the daemon ends first.
func (a *app) launch(args []string) int {
	program, err := os.Executable()
	if err != nil {
		return 1
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = a.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals for who started it are not for the daemon
	if err := cmd.Start(); err != nil {
		return 1
	}
	over := make(chan int, 2)
	go func() {
		_ = cmd.Wait() // the log says why
		over <- 1
	}()
	go func() {
		_, _ = io.Copy(io.Discard, a.stdin) // until it is closed
		over <- 0
	}()
	return <-over
}

// openLog opens the log of a daemon that is started in the background. Where
// there can be none, nothing is logged.
func (a *app) openLog() (*os.File, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.environment.Home, ".local", "state")
	}
	path := filepath.Join(dir, "trl", "daemon.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		_ = os.Rename(path, path+".old") // else it grows on
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
			return file, nil
		}
	}
	fmt.Fprintf(a.stderr, "trl: the daemon has no log: %v\n", err)
	return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
}

// startFailure is the last line that a daemon has logged, from where the log was
// before it; or else how it ended.
func startFailure(path string, begun int64, failure error) (why, hint string) {
	text, err := os.ReadFile(path)
	if err == nil && begun <= int64(len(text)) {
		lines := strings.Split(strings.TrimSpace(string(text[begun:])), "\n")
		if last := len(lines) - 1; last > 0 && strings.HasPrefix(lines[last], hintPrefix) {
			hint, lines = visible(strings.TrimPrefix(lines[last], hintPrefix)), lines[:last]
		}
		if last := lines[len(lines)-1]; last != "" {
			return visible(strings.TrimPrefix(last, "trl: ")), hint
		}
	}
	if failure == nil {
		failure = errors.New("it ended at once")
	}
	return failure.Error(), ""
}

// hintPrefix begins the line that follows an error and says what to do.
const hintPrefix = "hint: "

// daemonVariables are those of a daemon that an agent has started. Keys of the
// agent are not for the daemon's commands, who can read what started it.
func daemonVariables(variables []string) (out []string) {
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case strings.HasPrefix(name, secretPrefix), name == daemon.TokenVariable, name == daemon.AddressVariable:
		case api.IsBaseEnv(name), strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "TRL_"):
			out = append(out, variable)
		}
	}
	return out
}
