package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/vt"
)

// shellLine is a running command line of `trl shell`. It belongs to the shell's
// goroutine.
type shellLine struct {
	*interactiveShell
	exec        string
	queued      bool   // it waits for another command to end
	hasKeyboard bool   // this program has the keyboard lease
	interrupts  int    // how often the user pressed ctrl-c
	unread      []byte // what the user typed and the command did not read
	// mirror tracks the state of the local terminal, to undo what the command
	// leaves behind on it.
	mirror *vt.Screen
	chunks chan received
}

// received is a piece of output, or the error that ended the stream.
type received struct {
	chunk *api.Chunk
	err   error
}

// run runs a line to its end. io.EOF means that it was asked to exit the shell, and
// did.
func (s *interactiveShell) run(ctx context.Context, command string) error {
	l := s.newLine()
	never := int64(0) // the user is there to end it
	result, err := l.execute(ctx, api.ExecCommand{Command: command, Wait: true, TimeoutMS: &never})
	if l.mirror.Cursor().Column > 0 {
		s.printLine("") // the prompt begins a line
	}
	if err != nil {
		return err
	}
	s.prompt.putBack(l.unread)
	return s.recordResult(command, result, l.interrupts > 0)
}

// ownsUnread reports whether the user typed what the command left unread, and still
// wants it: ctrl-c drops what was typed before it, which a terminal does by itself.
func (l *shellLine) ownsUnread() bool {
	if l.tty {
		return l.hasKeyboard
	}
	return l.interrupts == 0
}

func (s *interactiveShell) newLine() *shellLine {
	size := s.local.size()
	return &shellLine{interactiveShell: s, chunks: make(chan received), mirror: vt.New(vt.Config{Rows: size.Rows, Cols: size.Cols})}
}

// execute runs a command in the session to its end, with the local terminal as
// its own. It sets those fields of the command that name the session and its
// input.
func (l *shellLine) execute(ctx context.Context, command api.ExecCommand) (*api.ExecResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command.SessionID, command.StdinOpen, command.Key = l.session, !l.tty, rand.Text()
	if l.tty {
		if err := l.takeKeyboardIfIdle(ctx); err != nil {
			return nil, err
		}
		defer l.keys.release()
		command.Lease = l.keys.currentLease()
	} else {
		l.local.makeCooked()
		defer func() { _ = l.local.makeRaw() }() // it succeeded before
	}
	st, err := l.client.Stream(ctx, api.ExecStreamParams{ExecCommand: command})
	if err != nil {
		return nil, err
	}
	l.exec = st.ExecID()
	l.local.start(func() { l.receive(ctx, st) })
	defer l.keys.setExec("")
	result, err := l.follow(ctx)
	l.undoModes()
	if result != nil && l.ownsUnread() {
		l.unread = l.keys.takeBack(int(result.InputUnread), l.tty) // while the keyboard has its exec
	}
	return result, err
}

// takeKeyboardIfIdle takes the keyboard if no command runs, so that this one
// starts with the local terminal's size and answers. In a busy session the
// keyboard is taken when the command's turn comes: until then others type.
func (l *shellLine) takeKeyboardIfIdle(ctx context.Context) error {
	info, err := l.client.SessionInfo(ctx, api.SessionParams{SessionID: l.session})
	if err != nil || info.State == api.StateRunning {
		return err
	}
	return l.takeKeyboard(ctx)
}

func (l *shellLine) takeKeyboard(ctx context.Context) error {
	if err := l.keys.take(ctx, false); err != nil {
		return err
	}
	l.hasKeyboard = true
	return l.keys.resize(ctx, l.local.size())
}

// receive passes on what the command writes, up to its exit. It closes the
// stream when ctx is done.
func (l *shellLine) receive(ctx context.Context, st *client.Stream) {
	defer st.Close()
	for chunk, err := range st.Chunks() {
		select {
		case l.chunks <- received{chunk, err}:
		case <-ctx.Done():
			return
		}
	}
}

// turnInterval is how often a queued command is polled.
const turnInterval = 50 * time.Millisecond

// follow passes output to the terminal and keys to the command until the
// command ends.
func (l *shellLine) follow(ctx context.Context) (*api.ExecResult, error) {
	drain(l.keyboardErrs)
	turn, err := l.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	if l.queued {
		err = l.handleTypedAhead(ctx)
	} else { // before handling keys: those typed now are for the command
		turn = nil
		err = l.startInput(ctx)
	}
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-turn:
			turn = nil
			if err := l.startInput(ctx); err != nil {
				return nil, err
			}
		case got := <-l.chunks:
			if got.err != nil {
				return nil, got.err
			}
			if got.chunk.Type == api.ChunkExit {
				return got.chunk.Result, nil
			}
			if err := l.show(*got.chunk); err != nil {
				return nil, err
			}
		case keys, ok := <-l.local.keys:
			if !ok {
				return nil, l.abandon(ctx, syscall.SIGHUP)
			}
			if err := l.handleKeys(ctx, keys); err != nil {
				return nil, err
			}
		case sig := <-l.local.signals:
			switch {
			case sig == syscall.SIGINT:
				_, _ = l.mirror.Write([]byte("^C")) // the terminal echoes the key
				l.interrupt(ctx)
			case sig == syscall.SIGQUIT && l.config.DetachKey != 0:
				return nil, errLeftRunning{l.exec}
			default:
				return nil, l.abandon(ctx, sig)
			}
		case <-l.local.resized:
			l.resize(ctx)
		case err := <-l.keyboardErrs:
			l.inputRefused(err)
		}
	}
}

func drain(c <-chan error) {
	select {
	case <-c:
	default:
	}
}

// awaitTurn returns a channel that is closed once the command is no longer
// queued.
func (l *shellLine) awaitTurn(ctx context.Context) (<-chan struct{}, error) {
	turn := make(chan struct{})
	info, err := l.client.ExecInfo(ctx, api.ExecParams{ExecID: l.exec})
	if err != nil {
		return nil, err
	}
	if info.State != api.ExecQueued {
		close(turn)
		return turn, nil
	}
	l.queued, l.hasKeyboard = true, false
	l.keys.release() // another command is running
	l.printLine("trl: waiting for the command that runs in %s; ctrl-c cancels", l.session)
	l.local.start(func() {
		defer close(turn)
		for pause(ctx, turnInterval) {
			// The stream reports errors.
			if info, err := l.client.ExecInfo(ctx, api.ExecParams{ExecID: l.exec}); err != nil || info.State != api.ExecQueued {
				return
			}
		}
	})
	return turn, nil
}

// startInput starts passing keys to the command.
func (l *shellLine) startInput(ctx context.Context) error {
	l.queued = false
	if l.tty && !l.hasKeyboard && l.interrupts == 0 {
		err := l.takeKeyboard(ctx)
		if by, held := leaseHolder(err); held {
			l.printLine("trl: %s is typing, so you can only watch; ctrl-c interrupts the command", by)
		} else if err != nil {
			return err
		}
	}
	l.keys.setExec(l.exec)
	return l.handleTypedAhead(ctx)
}

// handleTypedAhead handles the keys that were typed right after the line.
func (l *shellLine) handleTypedAhead(ctx context.Context) error {
	ahead := l.prompt.takePending()
	if at := bytes.LastIndexByte(ahead, interruptKey); at >= 0 && !l.tty {
		// The terminal did not turn ctrl-c into a signal, nor drop what was
		// typed before it.
		l.interrupt(ctx)
		ahead = ahead[at+1:]
	}
	if len(ahead) == 0 {
		return nil
	}
	return l.handleKeys(ctx, ahead)
}

// handleKeys sends keys to the command, or acts on those that interrupt or
// leave.
func (l *shellLine) handleKeys(ctx context.Context, keys []byte) error {
	if !l.tty && keys == nil {
		l.keys.enqueueEOF()
		return nil
	}
	if !l.tty {
		keys = l.convertNewlines(keys)
	}
	before, detach := l.config.DetachKey.cut(keys)
	switch {
	case l.queued && bytes.IndexByte(before, interruptKey) >= 0:
		l.interrupt(ctx)
	case l.queued:
		l.prompt.pending = append(l.prompt.pending, before...)
	case l.tty && !l.hasKeyboard:
		if bytes.IndexByte(before, interruptKey) >= 0 {
			l.interrupt(ctx)
		}
	case len(before) > 0 && !l.keys.enqueue(before):
		l.printLine("trl: the command does not read its input; your last keys were dropped")
	}
	if detach && l.tty {
		return errLeftRunning{l.exec}
	}
	return nil
}

// convertNewlines converts lines that were typed before the terminal was in
// cooked mode.
func (l *shellLine) convertNewlines(keys []byte) []byte {
	if bytes.IndexByte(keys, '\r') < 0 {
		return keys
	}
	keys = bytes.ReplaceAll(keys, []byte("\r"), []byte("\n"))
	_ = l.local.write(keys) // they have not been echoed yet
	return keys
}

// interrupt sends SIGINT to the command, and cancels it the second time. A
// queued command is cancelled at once.
func (l *shellLine) interrupt(ctx context.Context) {
	l.interrupts++
	cancel, exec := l.queued || l.interrupts > 1, l.exec
	l.local.start(func() {
		// An error means that the command has ended, which its stream reports.
		if cancel {
			_, _ = l.client.Cancel(ctx, api.ExecCancelParams{ExecID: exec})
		} else {
			_, _ = l.client.Signal(ctx, api.ExecSignalParams{ExecID: exec, Signal: "INT"})
		}
	})
}

// abandon cancels the command of a user who is gone.
func (l *shellLine) abandon(ctx context.Context, sig os.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	_, _ = l.client.Cancel(ctx, api.ExecCancelParams{ExecID: l.exec})
	return SignalError{sig}
}

// resize adapts to the size of the local window.
func (l *shellLine) resize(ctx context.Context) {
	size := l.local.size()
	l.mirror.Resize(size.Rows, size.Cols)
	if l.hasKeyboard {
		l.local.start(func() { _ = l.keys.resize(ctx, size) }) // the next resize may succeed
	}
}

// inputRefused tells the user why keys were not sent.
func (l *shellLine) inputRefused(err error) {
	if _, lost := errors.AsType[errLeaseLost](err); lost {
		l.hasKeyboard = false
		l.printLine("\ntrl: %s; ctrl-c interrupts the command", err)
	} else if unreachable(err) {
		l.printLine("\ntrl: lost the connection to the daemon, and maybe your last keys")
	} // otherwise the command has ended
}

// show prints what the command writes.
func (l *shellLine) show(chunk api.Chunk) error {
	if chunk.Type == api.ChunkGap {
		l.printLine("\ntrl: %d bytes of output are missing here: dropped because of a quota or a full disk", chunk.Bytes)
		return nil
	}
	data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
	if err != nil {
		return err
	}
	shown := data
	if !l.tty {
		shown = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")) // as the terminal does
	}
	_, _ = l.mirror.Write(shown) // it never fails
	l.mirror.Answers()           // discard them: the local terminal answers
	return l.local.write(data)
}

// undoModes undoes what the command has set on the terminal and left behind.
func (l *shellLine) undoModes() {
	undo := l.mirror.ResetSequence()
	_, _ = l.mirror.Write(undo)
	_ = l.local.write(undo) // the next reader of the terminal notices errors
}
