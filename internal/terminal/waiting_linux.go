package terminal

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
)

const (
	// InputPollInterval is how often a command is checked while a caller waits for
	// it to ask for input. Two checks in a row decide, so the caller knows within a
	// tenth of a second.
	InputPollInterval = 25 * time.Millisecond
	// inputPollPart is the fraction of a command's silence that may pass between
	// two checks, up to maxInputPoll: a program that asks writes its question
	// first, and a build that is silent for minutes is not checked forty times a
	// second.
	inputPollPart = 10
	maxInputPoll  = time.Second
)

// InputPollDelay returns how long to wait for the next check. undecided means that
// the last one needs another to confirm it.
func InputPollDelay(lastByte time.Time, undecided bool) time.Duration {
	if undecided {
		return InputPollInterval
	}
	quiet := time.Since(lastByte)
	return max(InputPollInterval, min(quiet/inputPollPart, maxInputPoll))
}

// Waiting returns what one of the processes of e waits for, nil if for nothing that
// can be typed.
func (t *Terminal) Waiting(e Output, pids []int) *api.Waiting {
	var reader process.Reader
	found := false
	_ = t.raw.Control(func(fd uintptr) { reader, found = process.ReaderOf(pids, int(fd)) }) // an error means that it was closed
	if !found {
		return nil
	}
	t.Drain() // so that the caller can read the question
	w := &api.Waiting{
		For: api.WaitingInput, PID: reader.PID, Process: reader.Command,
		Since: api.Time{Time: e.LastByte()},
	}
	if reader.Hidden {
		w.For = api.WaitingPassword
	}
	return w
}

// AwaitInput returns a channel that is closed when a command waits for input: when
// look returns the same process twice in a row. It stops looking when ctx is done
// or done is closed.
func (t *Terminal) AwaitInput(ctx context.Context, e Output, done <-chan struct{}, look func() *api.Waiting) <-chan struct{} {
	found := make(chan struct{})
	t.cfg.Spawn(func() {
		timer := time.NewTimer(InputPollInterval)
		defer timer.Stop()
		before := 0
		for {
			select {
			case <-timer.C:
			case <-done:
				return
			case <-ctx.Done():
				return
			}
			pid := 0
			if w := look(); w != nil {
				pid = w.PID
			}
			if pid != 0 && pid == before {
				close(found)
				return
			}
			before = pid
			timer.Reset(InputPollDelay(e.LastByte(), pid != 0))
		}
	})
	return found
}
