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
	"github.com/terminal-runtime/trl/internal/environ"
)

const (
	// startTimeout is how long a daemon may take to answer: a hundred times
	// what it needs.
	startTimeout = 10 * time.Second
	// competitorTimeout is how long to wait for a competing daemon to answer
	// after ours has failed, perhaps because of it.
	competitorTimeout = time.Second
)

// detach runs `trl serve --detach` with the rest of the command line.
func (a *app) detach(ctx context.Context, path string) error {
	before, _, err := a.daemonStatus(ctx, path)
	if err == nil {
		fmt.Fprintf(a.stdout, "trl: a daemon is already serving on %s (version %s, pid %d)\n", path, before.Version, before.PID)
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
		fmt.Fprintf(a.stdout, "trl: serving on %s%s (pid %d); `trl stop` ends it\n", path, httpAddress(after.Config), after.PID)
	}
	return err
}

// httpAddress returns the address in a daemon's settings by which it serves HTTP,
// to go after the socket's path; "" if there is none.
func httpAddress(config map[string]any) string {
	text := func(key string) string { s, _ := config[key].(string); return s }
	switch {
	case text("http") == "":
		return ""
	case text("http_tls_cert") != "":
		return " and https://" + visible(text("http"))
	default:
		return " and http://" + visible(text("http"))
	}
}

// ensureDaemon starts a daemon with this user's settings.
func (a *app) ensureDaemon(ctx context.Context) error {
	if !daemon.HasLocalPlace { // it could not serve what it is started for
		return localError{api.Errorf(api.CodeRuntimeUnavailable, "no daemon is running, and one on this machine would have no sessions: they need Linux").
			WithHint("set default_runtime to a place, such as docker:NAME or ssh:HOST, and run `trl serve`; or connect to a daemon on a Linux machine with --address")}
	}
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

// startDaemon starts this program as a background daemon that outlives it, in
// dir or else in the current directory, and returns when a daemon answers on
// path. A daemon that another process started meanwhile will do.
func (a *app) startDaemon(ctx context.Context, path, dir string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	logFile, err := a.openLog(path)
	if err != nil {
		return err
	}
	defer logFile.Close() // the daemon has its own descriptor
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
	var other <-chan time.Time // fires when a competing daemon has had its time
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
			return localError{api.Errorf(api.CodeRuntimeUnavailable, "started a daemon, but it does not answer on %s: %w", path, err).
				WithHint("see its log %s, or run `trl doctor`", logFile.Name())}
		case failure = <-ended:
			other = time.After(competitorTimeout)
		case <-other:
			why, hint := startFailure(logFile.Name(), begun, failure)
			if hint == "" {
				hint = fmt.Sprintf("see its log %s, or run `trl doctor`", logFile.Name())
			}
			return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon could not be started: %s", why).WithHint("%s", hint)}
		case <-time.After(pollInterval):
		}
	}
}

// launcherCommand is the hidden subcommand that starts a daemon and exits.
const launcherCommand = "be-launcher"

// launch starts a daemon and exits when stdin is closed at the latest. The
// daemon then has no parent among the agent's processes: some agents kill all
// of their descendants. launch fails if the daemon exits first.
func (a *app) launch(args []string) int {
	program, err := os.Executable()
	if err != nil {
		return 1
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = a.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to the starter's group must not reach the daemon
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

// openLog opens the log of a background daemon on socket, or /dev/null if it can't
// be opened. The daemon bounds its size.
func (a *app) openLog(socket string) (*os.File, error) {
	path := a.environment.LogFile(socket)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
			return file, nil
		}
	}
	fmt.Fprintf(a.stderr, "trl: cannot open the daemon's log: %v\n", err)
	return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
}

// startFailure returns the last line that the daemon logged after offset begun,
// and its hint; without one, how the process ended.
func startFailure(path string, begun int64, failure error) (why, hint string) {
	text, err := os.ReadFile(path)
	if begun > int64(len(text)) {
		begun = 0 // the daemon has begun the log anew
	}
	if err == nil {
		lines := strings.Split(strings.TrimSpace(string(text[begun:])), "\n")
		if last := len(lines) - 1; last > 0 && strings.HasPrefix(lines[last], hintPrefix) {
			hint, lines = visible(strings.TrimPrefix(lines[last], hintPrefix)), lines[:last]
		}
		if last := lines[len(lines)-1]; last != "" {
			return visible(strings.TrimPrefix(last, "trl: ")), hint
		}
	}
	if failure == nil {
		failure = errors.New("it exited at once")
	}
	return failure.Error(), ""
}

// hintPrefix starts the line with the hint that follows an error.
const hintPrefix = "hint: "

// daemonVariables returns the environment for a daemon that an agent starts. It
// leaves out the agent's secrets: commands of the daemon can read its
// environment. What only programs that reach places need has another name there.
func daemonVariables(variables []string) (out []string) {
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case strings.HasPrefix(name, secretPrefix), name == daemon.TokenVariable, name == daemon.AddressVariable:
		case environ.IsBase(name), strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "TRL_"):
			out = append(out, variable)
		case environ.IsForPlaces(name):
			out = append(out, environ.PlacePrefix+variable)
		}
	}
	return out
}
