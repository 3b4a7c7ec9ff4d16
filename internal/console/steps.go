package console

import (
	"context"
	"fmt"
	"os"
)

// Steps is the terminal of a user who continues from step to step with a key.
// It must be closed.
type Steps struct{ local *localTerminal }

// NewSteps takes over the terminal that in and out are. Between two steps it is
// in its original mode, so that programs can print to it.
func NewSteps(in, out *os.File) (*Steps, error) {
	local, err := newLocalTerminal(in, out)
	if err != nil {
		return nil, err
	}
	local.makeCooked()
	return &Steps{local}, nil
}

// Signals returns the signals that ask this program to exit.
func (s *Steps) Signals() <-chan os.Signal { return s.local.signals }

// Close restores the terminal.
func (s *Steps) Close() { s.local.close() }

// AwaitEnter waits for a key: Enter or space returns true; q, ctrl-c or ctrl-d
// returns false.
func (s *Steps) AwaitEnter(ctx context.Context) (bool, error) {
	t := s.local
	fmt.Fprint(t.out, "\n[Enter continues, q quits] ")
	defer fmt.Fprintln(t.out)
	defer t.makeCooked()
	if err := t.makeRaw(); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case keys, ok := <-t.keys:
			if !ok {
				return false, nil
			}
			for _, key := range keys {
				switch key {
				case '\r', '\n', ' ':
					return true, nil
				case 'q', 'Q', 'C' - '@', 'D' - '@': // ctrl-c, ctrl-d
					return false, nil
				}
			}
		}
	}
}
