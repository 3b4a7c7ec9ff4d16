package session

import (
	"context"
	"slices"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
)

// sending is one call of exec.input.
type inputRequest struct {
	data      []byte
	eof       bool
	whole     bool   // all of data, or nothing
	at        *int64 // offset of its first byte; nil: after what there is
	key       uint64 // of its key; 0: it has none
	sum       uint32 // of its params
	maxBuffer int64  // what the buffer may hold

	sent      int   // bytes of data that are the command's
	next      int64 // offset after the last of them
	uncertain bool  // a daemon died while it typed them
}

// keyedInput is an input that came with a key.
type keyedInput struct {
	key    uint64 // of the key: keys are long, and there are many
	sum    uint32 // of its params
	taken  int64  // bytes of it that are the command's
	next   int64  // offset after the last of them
	whole  bool   // nothing of it is missing
	typing bool   // it is being typed on a terminal, or was when a daemon died
}

// maxKeyedInputs is how many inputs of an exec are known by their keys: more than
// callers have under way when a connection breaks. They are noted with every input.
const maxKeyedInputs = 128

// keyed returns the input that came with the same key before, if there was one. Its
// turn has come.
func (e *Exec) keyed(s *inputRequest) (k keyedInput, found bool, err error) {
	if s.key == 0 {
		return k, false, nil
	}
	e.persistMu.Lock()
	defer e.persistMu.Unlock()
	i := slices.IndexFunc(e.keyedInputs, func(k keyedInput) bool { return k.key == s.key })
	if i < 0 {
		return k, false, nil
	}
	if k = e.keyedInputs[i]; k.sum != s.sum {
		return k, true, errOtherParams()
	}
	return k, true, nil
}

// setKeyed makes k what is known of the input with its key. Under noting.
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

// dropKeyed forgets an input of which nothing was typed. Under noting.
func (e *Exec) dropKeyed(key uint64) {
	e.keyedInputs = slices.DeleteFunc(e.keyedInputs, func(k keyedInput) bool { return k.key == key })
}

// answered reports whether an input is there already as a whole, and says in s
// what is to be answered. Nothing is needed for that of the command but its exec.
func (e *Exec) lookupAnswer(s *inputRequest) (bool, error) {
	k, found, err := e.keyed(s)
	if err != nil || !found || !k.whole {
		return false, err
	}
	s.sent, s.next, s.uncertain = int(k.taken), k.next, k.typing
	return true, nil
}

// send gives the command what is to be sent, after what was sent before.
func (e *Exec) send(ctx, fence context.Context, s *inputRequest) error {
	in := e.stdin
	place := in.turn.join()
	arrival.MarkQueued(ctx)
	if err := in.turn.await(ctx, place); err != nil {
		return err
	}
	err := e.bufferInput(ctx, fence, s)
	in.turn.next()
	if err != nil || s.whole {
		return err
	}
	if err = in.awaitTaken(ctx, fence, s.next); err == nil || fence.Err() != nil {
		return nil // it is the command's, whoever types next
	}
	s.sent -= int(min(max(s.next-in.taken(), 0), int64(s.sent)))
	return err
}

// buffer puts into the command's input what is not there yet.
func (e *Exec) bufferInput(ctx, fence context.Context, s *inputRequest) error {
	in := e.stdin
	if done, err := e.locate(s); done || err != nil {
		return err
	}
	if err := in.errClosed(); err != nil {
		return err
	}
	if s.whole && int64(len(s.data)) > s.maxBuffer {
		return api.Errorf(api.CodeInputFull, "an input that is to be written as a whole is larger than the buffer of input").
			With("bytes", len(s.data)).With("input_buffer_bytes", s.maxBuffer).
			WithHint("send it in parts, or without whole, or let the daemon have a larger input_buffer_bytes")
	}
	if err := in.ensureBuffer(); err != nil {
		return err
	}
	e.persistFirstInput()
	for {
		if err := fence.Err(); err != nil {
			return err
		}
		rest := s.data[s.sent:]
		n, err := in.room(ctx, fence, s, len(rest))
		if err == nil {
			err = in.put(rest[:n])
		}
		if err != nil {
			return err
		}
		last := n == len(rest)
		e.persistInput(func() {
			s.sent, s.next = s.sent+n, in.extend(n, last && s.eof)
			if s.key != 0 {
				e.setKeyed(keyedInput{key: s.key, sum: s.sum, taken: int64(s.sent), next: s.next, whole: last})
			}
		})
		in.commit()
		if last {
			return nil
		}
	}
}

// noteFirstInput notes, before the first input that comes later than with the
// command, that what is in the buffer is whole: what follows it is not yet.
func (e *Exec) persistFirstInput() {
	e.persistMu.Lock()
	noted := e.inputPersisted
	e.persistMu.Unlock()
	if !noted {
		e.persistInput(func() {})
	}
}

// closeInput ends the use of the command's stdin. What its pipe did not take it was
// not given, whoever repeats it.
func (e *Exec) closeInput() {
	if e.stdin == nil {
		return
	}
	e.stdin.close()
	taken := e.stdin.taken()
	if e.stdin.size() == taken {
		return
	}
	e.persistInput(func() {
		for i := range e.keyedInputs {
			if k := &e.keyedInputs[i]; k.next > taken {
				k.whole, k.taken = false, max(0, k.taken-(k.next-taken))
			}
		}
	})
}

// place finds out how much of an input is there already, and reports whether that
// is all of it.
func (e *Exec) locate(s *inputRequest) (all bool, err error) {
	k, found, err := e.keyed(s)
	if err != nil {
		return false, err
	}
	size := e.stdin.size()
	s.next = size
	switch {
	case found && k.whole: // while this waited for its turn
		s.sent, s.next = int(k.taken), k.next
		return true, nil
	case found:
		s.sent = int(k.taken)
	case s.at != nil && *s.at > size:
		return false, api.Errorf(api.CodeInvalidParams, "input before this offset is missing").With("field", "at").With("next", size).
			WithHint("send what begins at data.next first")
	case s.at != nil:
		end := *s.at + int64(len(s.data))
		if end <= size && (!s.eof || e.stdin.atEOF()) {
			s.sent, s.next = len(s.data), end
			return true, nil
		}
		s.sent = int(min(size, end) - *s.at)
	}
	return false, nil
}

// typeOnce types what is to be sent, and nothing that came with its key before.
// What a terminal has taken nobody can ask it: that something is typed is noted
// first.
func (e *Exec) typeOnce(ctx, fence context.Context, s *inputRequest) error {
	t := e.session.term
	place := t.turn.join()
	arrival.MarkQueued(ctx)
	if err := t.turn.await(ctx, place); err != nil {
		return err
	}
	defer t.turn.next()
	if done, err := e.lookupAnswer(s); done || err != nil {
		return err
	}
	if s.key == 0 {
		var err error
		s.sent, err = t.typeInput(ctx, fence, e, s.data, s.eof)
		return err
	}
	k := keyedInput{key: s.key, sum: s.sum, whole: true, typing: true}
	e.persistInput(func() { e.setKeyed(k) })
	var err error
	s.sent, err = t.typeInput(ctx, fence, e, s.data, s.eof)
	e.persistInput(func() {
		if k.typing, k.taken = false, int64(s.sent); s.sent > 0 || err == nil {
			e.setKeyed(k)
		} else {
			e.dropKeyed(k.key)
		}
	})
	return err
}
