package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/internal/peer"
)

// toolbox runs shell scripts in a place.
type toolbox interface {
	// command returns the words of a command that runs a script in the place, with
	// arguments and with its standard input: `docker exec -i NAME sh -c SCRIPT …`.
	command(script string, args ...string) []string
	explainer
}

// explainer knows what the failure of a command means.
type explainer interface {
	// explain returns why the place could not be reached. err is often a
	// *peer.CommandError; stderr has its last words.
	explain(err error, stderr string) *refusal
}

// starter is a toolbox that can start a program whose parent is not in the place. A
// container's first process may not reap what is left to it.
type starter interface {
	// start returns the words of a command that starts a script in the place and does
	// not wait for it.
	start(script string, args ...string) []string
}

// neighbour is a toolbox whose place may be on this machine, where it takes longer to
// compress a program than to send it.
type neighbour interface{ near() bool }

const (
	// maxToolOutput is how much a tool may print; the rest is dropped. A list of
	// users is the longest that is read.
	maxToolOutput = 64 << 10
	// toolGrace is how long a tool may keep its output open after it was killed.
	toolGrace = 2 * time.Second
)

// run runs a command to its end, or to that of ctx, which kills it with all of its
// process group. It returns the beginning of what the command printed. The error is
// that of ctx, a *peer.CommandError, or says that the command did not start.
func run(ctx context.Context, env, argv []string, stdin io.Reader) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	stdout, stderr := &head{}, &peer.Tail{}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = toolGrace
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil && cmd.ProcessState != nil && !cmd.ProcessState.Success():
		failed := &peer.CommandError{
			Message: fmt.Sprintf("%s failed (%s)", filepath.Base(argv[0]), cmd.ProcessState),
			Status:  cmd.ProcessState.ExitCode(), Stderr: stderr.String(),
		}
		if failed.Stderr == "" {
			failed.Stderr = peer.LastWords(stdout.Bytes()) // where docker 20 complains
		}
		err = failed
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // a process that it left in the background has its output open
	}
	return stdout.String(), err
}

// produced returns what produce writes, as it is read. The caller must close it.
func produced(produce func(io.Writer) error) io.ReadCloser {
	out, in := io.Pipe()
	go func() { _ = in.CloseWithError(produce(in)) }() // never fails
	return out
}

// head keeps the first bytes written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(b []byte) (int, error) {
	h.Buffer.Write(b[:min(len(b), maxToolOutput-h.Len())])
	return len(b), nil
}

// lastWords returns what a failed command wrote to standard error.
func lastWords(err error) string {
	if e, ok := errors.AsType[*peer.CommandError](err); ok {
		return e.Stderr
	}
	return ""
}
