package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// signalError is the cancellation cause of an interrupted run.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return e.signal.String() }

// signalled returns the signal that interrupted this run, if any.
func (r *runInvocation) signalled() (syscall.Signal, bool) {
	cause, ok := errors.AsType[signalError](context.Cause(r.interrupted))
	return cause.signal, ok
}

// finalTimeout bounds the cleanup after the user pressed Ctrl-C twice.
const finalTimeout = 2 * time.Second

// watchSignals cancels the command at the first signal; if the daemon does not
// answer, the program exits without it. At the second signal it stops waiting:
// it kills the session if that was created for the command, and exits even if
// the reader of its output blocks it. ctx is done when the run is.
func (r *runInvocation) watchSignals(ctx context.Context, interrupt context.CancelCauseFunc) {
	first := signalNumber(<-r.signals)
	interrupt(signalError{first})
	go r.app.exitIfDaemonSilent(ctx, r.client, first)
	second := <-r.signals
	last, cancel := context.WithTimeout(context.Background(), finalTimeout)
	defer cancel()
	if r.created.Load() != nil {
		r.endSession(last, true)
	}
	r.app.exit(statusSignal + int(signalNumber(second)))
}

// cancelWhenInterrupted turns the first signal into a cancellation.
func (r *runInvocation) cancelWhenInterrupted(done context.Context) {
	select {
	case <-r.interrupted.Done():
	case <-done.Done():
		return
	}
	// An error means that the command or the daemon is gone, which the stream
	// reports.
	_, _ = r.client.Cancel(done, api.ExecCancelParams{ExecID: r.exec})
}

func signalNumber(s os.Signal) syscall.Signal {
	if n, ok := s.(syscall.Signal); ok {
		return n
	}
	return syscall.SIGTERM
}
