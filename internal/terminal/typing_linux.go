package terminal

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

// Type types data, followed by the end-of-file key if eof is set, and returns how
// many bytes of data were typed. It stops when epoch is done. The caller must have
// the turn.
//
// onSignal is called before a key is typed that the terminal turns into a signal.
func (t *Terminal) Type(ctx, epoch context.Context, data []byte, eof bool, onSignal func(unix.Signal)) (int, error) {
	settings, err := t.currentSettings()
	if err != nil {
		return 0, api.Errorf(api.CodeInternal, "the terminal: %w", err)
	}
	typed := data
	if eof {
		typed = append(slices.Clone(data), settings.Cc[unix.VEOF])
	}
	// Before typing: a program that obeys the key may be gone right after, and the
	// command with it.
	if sig := signalOf(data, settings); sig != 0 {
		onSignal(sig)
	}
	n, err := writeTerminal(ctx, epoch, t.master, typed)
	if err != nil {
		return n, err
	}
	return min(n, len(data)), nil
}

// writeTerminal writes data until all is taken, ctx is done, or epoch is done
// because another client types from then on. The caller must have the turn.
func writeTerminal(ctx, epoch context.Context, to *os.File, data []byte) (int, error) {
	if err := epoch.Err(); err != nil {
		return 0, err
	}
	// A context has no descriptor to poll, so its end becomes a deadline in the
	// past.
	interrupt := func() { _ = to.SetWriteDeadline(time.Unix(1, 0)) }
	stopped, ended := context.AfterFunc(ctx, interrupt), context.AfterFunc(epoch, interrupt)
	n, err := to.Write(data)
	if a, b := stopped(), ended(); !a || !b {
		_ = to.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return n, ErrNotTaken(err).With("bytes", n)
	}
	return n, nil
}

// signalOf returns the signal that the terminal makes of data, 0 for none.
func signalOf(data []byte, settings *unix.Termios) unix.Signal {
	switch {
	case settings.Lflag&unix.ISIG == 0:
		return 0
	case containsKey(data, settings.Cc[unix.VINTR]):
		return unix.SIGINT
	case containsKey(data, settings.Cc[unix.VQUIT]):
		return unix.SIGQUIT
	}
	return 0
}

func containsKey(data []byte, key byte) bool { return key != noKey && bytes.IndexByte(data, key) >= 0 }

// Unread returns how many typed bytes no program has read, at most as many as the
// kernel buffers. The next Assign drops them.
//
// While a terminal edits lines, the kernel counts only whole ones. So editing is
// off while they are counted, and polling for more than there can be makes the
// kernel move what it has not processed yet.
func (t *Terminal) Unread() (n int) {
	_ = t.onSlave(func(fd int) error { // an error means that the terminal is gone
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		raw := *settings
		raw.Lflag &^= unix.ICANON
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 255, 0
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
			return err
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // for its effect only
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return errors.Join(err, unix.IoctlSetTermios(fd, unix.TCSETS, settings))
	})
	return n
}

// EncodeInput returns the bytes that the terminal sends for an input, with its keys
// and as a paste if it is one.
func (t *Terminal) EncodeInput(params api.ExecInputParams, data []byte) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := data
	if params.Paste {
		out = t.screen.Paste(string(data))
	}
	for _, name := range params.Keys {
		key, err := t.screen.Key(name)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalidParams, "no such key").With("field", "keys").
				WithHint("keys are enter, tab, escape, backspace, up, down, left, right, home, end, pageup, pagedown, insert, delete, f1 to f20, single characters, each with an optional prefix ctrl-, alt- or shift-")
		}
		out = append(slices.Clip(out), key...)
	}
	return out, nil
}

// AwaitTyping returns when the typing that was under way at the time of the call
// has ended.
func (t *Terminal) AwaitTyping() { t.turn.AwaitCurrent() }
