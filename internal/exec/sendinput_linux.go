package exec

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// maxKeyedInputs is how many inputs of an exec are remembered by their keys: more
// than clients have in flight when a connection breaks. All are persisted with
// every input.
const maxKeyedInputs = 128

// CheckInput returns an error if the command can't take this input.
func (e *Exec) CheckInput(params api.ExecInputParams) error {
	if e.term != nil {
		switch {
		case e.IsDone():
			return e.errEnded()
		case params.At != nil, params.Whole:
			return api.Errorf(api.CodeInvalidParams, "at and whole do not apply to a terminal").
				With("exec_id", e.id).WithHint("send a key instead: a repeat with the same key types nothing")
		}
		return nil
	}
	if len(params.Keys) > 0 || params.Paste {
		return terminal.ErrNoTerminal().With("session_id", e.session)
	}
	if e.stdin == nil {
		return api.Errorf(api.CodeInvalidParams, "the command was started without an open stdin").
			WithHint("start it with stdin_open: true, then exec.input writes to it")
	}
	return nil
}

func (e *Exec) errEnded() error {
	return api.Errorf(api.CodeInvalidParams, "the command has ended").With("exec_id", e.id).
		WithHint("call exec.info to see how; type to the command that runs")
}

// SendInput types or writes the input. CheckInput must have returned nil for it.
func (e *Exec) SendInput(ctx, epoch context.Context, r *InputRequest) error {
	if e.term != nil {
		return e.typeOnce(ctx, epoch, r)
	}
	return e.send(ctx, epoch, r)
}

// keyed returns the earlier input with the same key, if there was one. The caller
// must have the turn.
func (e *Exec) keyed(s *InputRequest) (k keyedInput, found bool, err error) {
	if s.KeyHash == 0 {
		return k, false, nil
	}
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	i := slices.IndexFunc(e.keyedInputs, func(k keyedInput) bool { return k.key == s.KeyHash })
	if i < 0 {
		return k, false, nil
	}
	if k = e.keyedInputs[i]; k.sum != s.Sum {
		return k, true, ErrOtherParams()
	}
	return k, true, nil
}

// setKeyed records what is known of the input with the key of k. The caller must
// hold persistMu.
func (e *Exec) setKeyed(k keyedInput) {
	i := slices.IndexFunc(e.keyedInputs, func(other keyedInput) bool { return other.key == k.key })
	switch {
	case i >= 0:
		e.keyedInputs[i] = k
		return
	case len(e.keyedInputs) == maxKeyedInputs:
		e.keyedInputs = slices.Delete(e.keyedInputs, 0, 1)
	}
	e.keyedInputs = append(e.keyedInputs, k)
}

// dropKeyed forgets an input of which nothing was typed. The caller must hold
// persistMu.
func (e *Exec) dropKeyed(key uint64) {
	e.keyedInputs = slices.DeleteFunc(e.keyedInputs, func(k keyedInput) bool { return k.key == key })
}

// LookupAnswer reports whether the same input was sent completely before, and sets
// the answer in s. That works for a command that has ended too.
func (e *Exec) LookupAnswer(s *InputRequest) (bool, error) {
	k, found, err := e.keyed(s)
	if err != nil || !found || !k.whole {
		return false, err
	}
	s.Sent, s.Next, s.Uncertain = int(k.taken), k.next, k.typing
	return true, nil
}

// send writes the input behind what was sent before.
func (e *Exec) send(ctx, epoch context.Context, s *InputRequest) error {
	in := e.stdin
	place := in.turn.Join()
	arrival.MarkQueued(ctx)
	if err := in.turn.Await(ctx, place); err != nil {
		return err
	}
	err := e.bufferInput(ctx, epoch, s)
	in.turn.Next()
	if err != nil {
		return err
	}
	if !s.Whole {
		err = in.awaitTaken(ctx, epoch, s.Next)
	}
	if err == nil || epoch.Err() != nil {
		in.accept(s.Next)
		return nil // the command has it, whoever types next
	}
	s.Sent -= int(min(max(s.Next-in.taken(), 0), int64(s.Sent)))
	return err
}

// bufferInput adds what the command does not have yet to its input.
func (e *Exec) bufferInput(ctx, epoch context.Context, s *InputRequest) error {
	in := e.stdin
	if done, err := e.locate(s); done || err != nil {
		return err
	}
	if err := in.errClosed(); err != nil {
		return err
	}
	if s.Whole && int64(len(s.Data)) > s.MaxBuffer {
		return api.Errorf(api.CodeInputFull, "an input with whole is larger than the input buffer").
			With("bytes", len(s.Data)).With("input_buffer_bytes", s.MaxBuffer).
			WithHint("send it in parts, leave whole out, or raise input_buffer_bytes of the daemon")
	}
	if err := in.ensureBuffer(); err != nil {
		return err
	}
	e.persistFirstInput()
	for {
		if err := epoch.Err(); err != nil {
			return err
		}
		rest := s.Data[s.Sent:]
		n, err := in.room(ctx, epoch, s, len(rest))
		if err == nil {
			err = in.put(rest[:n])
		}
		if err != nil {
			return err
		}
		last := n == len(rest)
		e.persistInput(func() {
			s.Sent, s.Next = s.Sent+n, in.extend(n, last && s.EOF)
			if s.KeyHash != 0 {
				e.setKeyed(keyedInput{key: s.KeyHash, sum: s.Sum, taken: int64(s.Sent), next: s.Next, whole: last})
			}
		})
		in.commit()
		if last {
			return nil
		}
	}
}

// persistFirstInput persists, before the first input that comes later than with the
// command, that the buffer is complete up to now: what is written next is not yet.
func (e *Exec) persistFirstInput() {
	e.persistMu.Lock()
	persisted := e.inputPersisted
	e.persistMu.Unlock()
	if !persisted {
		e.persistInput(func() {})
	}
}

// locate finds out how much of the input the command has already, and reports
// whether it is all.
func (e *Exec) locate(s *InputRequest) (all bool, err error) {
	k, found, err := e.keyed(s)
	if err != nil {
		return false, err
	}
	size := e.stdin.size()
	s.Next = size
	switch {
	case found && k.whole: // it was sent while this request waited for its turn
		s.Sent, s.Next = int(k.taken), k.next
		return true, nil
	case found:
		s.Sent = int(k.taken)
	case s.At != nil && *s.At > size:
		return false, api.Errorf(api.CodeInvalidParams, "input before this offset is missing").With("field", "at").With("next", size).
			WithHint("send the input from data.next on first")
	case s.At != nil:
		end := *s.At + int64(len(s.Data))
		if end <= size && (!s.EOF || e.stdin.atEOF()) {
			s.Sent, s.Next = len(s.Data), end
			return true, nil
		}
		s.Sent = int(min(size, end) - *s.At)
	}
	return false, nil
}

// typeOnce types the input unless it was typed with its key before. A terminal
// can't be asked what it has taken, so the attempt is persisted first.
func (e *Exec) typeOnce(ctx, epoch context.Context, s *InputRequest) error {
	turn := e.term.Turn()
	place := turn.Join()
	arrival.MarkQueued(ctx)
	if err := turn.Await(ctx, place); err != nil {
		return err
	}
	defer turn.Next()
	if done, err := e.LookupAnswer(s); done || err != nil {
		return err
	}
	if s.KeyHash == 0 {
		var err error
		s.Sent, err = e.typeInput(ctx, epoch, s)
		return err
	}
	k := keyedInput{key: s.KeyHash, sum: s.Sum, whole: true, typing: true}
	e.persistInput(func() { e.setKeyed(k) })
	var err error
	s.Sent, err = e.typeInput(ctx, epoch, s)
	e.persistInput(func() {
		if k.typing, k.taken = false, int64(s.Sent); s.Sent > 0 || err == nil {
			e.setKeyed(k)
		} else {
			e.dropKeyed(k.key)
		}
	})
	return err
}

// typeInput types the data of a request. If the terminal turns a key into a signal
// while the command runs in its shell alone, the shell gets the signal too.
func (e *Exec) typeInput(ctx, epoch context.Context, s *InputRequest) (int, error) {
	if e.State() == api.ExecExited { // its result says what it did not read
		return 0, e.errEnded()
	}
	e.typed.Store(true)
	n, err := e.term.Type(ctx, epoch, s.Data, s.EOF, func(sig unix.Signal) {
		if !s.ShellIsAlone() {
			return
		}
		select {
		case e.keys <- sig:
		default:
		}
	})
	if err == nil {
		e.Touch()
	}
	return n, err
}

// unreadInput returns how much input the command has left unread. It must have
// ended, and its stdin must be closed.
func (e *Exec) unreadInput() int64 {
	switch {
	case e.stdin != nil:
		return e.stdin.unread
	case e.typed.Load():
		return int64(e.term.Unread())
	}
	return 0
}

// ErrOtherParams is the error for a key that was used with other params.
func ErrOtherParams() *api.Error {
	return api.Errorf(api.CodeInvalidParams, "the key was used with other params").With("field", "key").
		WithHint("repeat the request with the same params, or send another key")
}

// AwaitTyping returns when the writes to the command's stdin that were under way at
// the time of the call have ended.
func (e *Exec) AwaitTyping() {
	if e.stdin != nil {
		e.stdin.turn.AwaitCurrent()
	}
}
