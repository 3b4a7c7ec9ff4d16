package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/units"
)

// Attach shows the terminal of a session, and types on it, until the user
// detaches or the session ends. It returns a SessionError if the session cannot
// be attached to, and a SignalError if a signal ended it.
func Attach(ctx context.Context, config AttachConfig) error {
	ctx, cancel := context.WithCancel(ctx) // canceled after the keyboard is released
	defer cancel()
	info, err := config.Client.SessionInfo(ctx, api.SessionParams{SessionID: config.Session})
	if err != nil {
		return err
	}
	if err := attachable(info); err != nil {
		return err
	}
	t := &attachment{
		config: &config, session: config.Session, client: config.Client, keys: newKeyboard(config.Client, config.Session), exec: info.ExecID,
		updates: make(chan update), done: make(chan error, 1),
	}
	if err := t.claimKeyboard(ctx, info); err != nil {
		return err
	}
	return t.finish(t.run(ctx, *info.TTY))
}

// attachment is a user attached to a session's terminal. Its fields belong to
// the goroutine that runs Attach.
type attachment struct {
	config  *AttachConfig
	session string
	client  *client.Client
	local   *localTerminal
	display *display
	keys    *keyboard

	typing  bool   // keys go to the session
	reason  string // why not, if typing is false
	exec    string // the running command; "" if there is none
	updates chan update
	done    chan error // receives the follower's error when it returns
}

// update is a message to the attachment from another goroutine. One field is
// set.
type update struct {
	info  *api.SessionInfo
	event *api.SessionEvent
	err   error
}

// attachable returns an error for a session that cannot be attached to.
func attachable(info *api.SessionInfo) error {
	id := printable.Text(info.SessionID)
	if info.TTY == nil {
		hint := fmt.Sprintf("`trl exec list %s` lists its commands; `trl exec output --follow EXEC` follows one", id)
		if len(info.Argv) == 0 {
			hint += fmt.Sprintf("; `trl shell %s` opens a prompt in it", id)
		}
		return &SessionError{api.Errorf(api.CodeInvalidRequest, "session %s has no terminal", id).WithHint("%s", hint)}
	}
	if info.State == api.StateTerminated {
		return &SessionError{api.Errorf(api.CodeSessionTerminated, "session %s %s", id, (&sessionEnded{info.Terminated}).Error()).
			WithHint("`trl screen %s` prints its last screen", id)}
	}
	return nil
}

// recentTyping is how long after the last key a session counts as in use by
// whoever typed.
const recentTyping = time.Minute

// claimKeyboard takes the keyboard if the options ask for it, or if that
// disturbs no one.
func (t *attachment) claimKeyboard(ctx context.Context, info *api.SessionInfo) error {
	switch {
	case t.config.Write:
		if err := t.keys.take(ctx, true); err != nil {
			return err
		}
		t.typing = true
	case t.config.ReadOnly:
	case info.Held != nil:
		t.reason = printable.Text(info.Held.Holder) + " is typing"
	case len(info.Argv) == 0:
		t.reason = "another client runs commands"
	case info.TypedAt != nil && time.Since(info.TypedAt.Time) < recentTyping:
		t.reason = fmt.Sprintf("someone typed %s ago", units.Duration(time.Since(info.TypedAt.Time)))
	default:
		err := t.keys.take(ctx, false)
		by, held := leaseHolder(err)
		if err != nil && !held {
			return err
		}
		t.typing = err == nil
		t.reason = by + " is typing"
	}
	return nil
}

// run shows the session, whose terminal has the given size, until the user
// leaves or the session ends.
func (t *attachment) run(ctx context.Context, size api.TTYSize) error {
	defer t.keys.release() // before the message about detaching
	local, err := newLocalTerminal(t.config.Stdin, t.config.Stdout)
	if err != nil {
		return err
	}
	defer local.close()
	defer local.restoreOnPanic()
	if t.typing {
		size = local.size()
	}
	t.local, t.display = local, newDisplay(local, size)
	exitIfDaemonSilent(ctx, &t.config.Config, local, "") // the display resets the terminal itself
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	send := func(u update) {
		select {
		case t.updates <- u:
		case <-ctx.Done():
		}
	}
	t.keys.onError = func(err error) { send(update{err: err}) }
	t.keys.setExec(t.exec)
	if t.typing {
		// Ignore the error: typing reports it, and the size only affects the
		// look.
		_ = t.keys.resize(ctx, size)
	}
	t.keys.run(ctx, local.start)
	f := follower{client: t.client, session: t.session, display: t.display, notify: func(info *api.SessionInfo, event *api.SessionEvent) {
		send(update{info: info, event: event})
	}}
	local.start(func() { t.done <- f.run(ctx) })
	local.start(t.display.run)
	t.display.notice(t.statusText())

	err = t.loop(ctx)
	local.close()
	return err
}

// errDetached reports that the user detached.
var errDetached = errors.New("detached")

// resizeDelay is how long a window must keep its size before the session is
// resized: programs redraw everything each time.
const resizeDelay = 50 * time.Millisecond

func (t *attachment) loop(ctx context.Context) error {
	settled := time.NewTimer(resizeDelay)
	settled.Stop()
	for {
		t.display.status(t.session+": "+t.statusText(), t.typing)
		select {
		case b, ok := <-t.local.keys:
			if !ok {
				return SignalError{syscall.SIGHUP} // the terminal is gone
			}
			if err := t.handleKeys(b); err != nil {
				return err
			}
		case sig := <-t.local.signals:
			return SignalError{sig}
		case <-t.local.resized:
			settled.Reset(resizeDelay)
		case <-settled.C:
			size := t.local.size()
			t.display.resize(size)
			if t.typing {
				t.local.start(func() { _ = t.keys.resize(ctx, size) }) // as in run
			}
		case u := <-t.updates:
			t.handleUpdate(u)
		case err := <-t.done:
			return err
		}
	}
}

// handleKeys sends keys to the session, or acts on those that leave.
func (t *attachment) handleKeys(b []byte) error {
	before, _, detach := strings.Cut(string(b), string(rune(t.config.DetachKey)))
	switch {
	case !t.typing:
		// Several keys arrive at once if this program was kept waiting.
		if detach || strings.HasSuffix(before, "q") || strings.HasSuffix(before, "\x03") {
			return errDetached
		}
		t.display.notice(t.statusText())
		return nil
	case before != "" && t.exec == "":
		t.display.notice(fmt.Sprintf("no command is running, so your keys are dropped (`trl shell %s` runs one)", t.session))
	case before != "" && !t.keys.enqueue([]byte(before)):
		t.display.notice("the program does not read its input; your last keys were dropped")
	}
	if detach {
		return errDetached
	}
	return nil
}

// handleUpdate applies an update from another goroutine.
func (t *attachment) handleUpdate(u update) {
	switch {
	case u.err != nil:
		t.inputRefused(u.err)
	case u.info != nil:
		t.setExec(u.info.ExecID, u.info.State)
		if t.typing {
			t.keys.recheck()
		} else if !t.config.ReadOnly && u.info.Held != nil {
			t.reason = printable.Text(u.info.Held.Holder) + " is typing"
		}
	case u.event != nil:
		t.handleEvent(u.event)
	}
}

func (t *attachment) handleEvent(e *api.SessionEvent) {
	switch e.Type {
	case api.EventState:
		had := t.exec != ""
		t.setExec(e.ExecID, e.State)
		if t.typing && had && t.exec == "" {
			t.display.notice("the command has ended")
		}
	case api.EventHeld:
		if t.typing {
			if e.Holder != t.keys.holder {
				t.keys.recheck() // the event may predate this lease
			}
			return
		}
		t.reason = printable.Text(e.Holder) + " is typing"
		t.display.notice(t.statusText())
	case api.EventReleased:
		if !t.typing {
			t.reason = "no one is typing now"
		}
	}
}

// setExec records which command runs; exec is ignored unless the session is
// running.
func (t *attachment) setExec(exec string, state api.State) {
	if state != api.StateRunning {
		exec = ""
	}
	t.exec = exec
	t.keys.setExec(exec)
}

// inputRefused tells the user why keys were not sent.
func (t *attachment) inputRefused(err error) {
	if lost, ok := errors.AsType[errLeaseLost](err); ok {
		t.typing = false
		t.reason = "the keyboard was released"
		if lost.by != "" {
			t.reason = lost.by + " took the keyboard"
		}
		t.display.notice(t.statusText())
		return
	}
	message := printable.Text(err.Error())
	if refused, ok := errors.AsType[*api.Error](err); ok {
		message = printable.Text(refused.Message)
	}
	if unreachable(err) {
		message = "lost the connection to the daemon, and maybe your last keys"
	}
	t.display.notice(message)
}

// statusText says who types and how to leave. It fits in 80 columns unless a
// name is long.
func (t *attachment) statusText() string {
	var parts []string
	if t.display != nil {
		if shown, of, cropped := t.display.cropped(); cropped {
			parts = append(parts, fmt.Sprintf("%dx%d of %dx%d shown", shown.Rows, shown.Cols, of.Rows, of.Cols))
		}
	}
	switch {
	case t.typing:
		parts = append(parts, fmt.Sprintf("you are typing; %s detaches", t.config.DetachKey.String()))
	case t.config.ReadOnly:
		parts = append(parts, "read-only; q quits")
	default:
		parts = append(parts, "read-only: "+t.reason+". q quits, --write takes the keyboard")
	}
	if t.exec == "" {
		parts = append(parts, "no command is running")
	}
	return strings.Join(parts, "; ")
}

// finish reports how the attachment ended. The terminal must have been
// restored.
func (t *attachment) finish(err error) error {
	if ended, ok := errors.AsType[*sessionEnded](err); ok {
		fmt.Fprintf(t.config.Stderr, "trl: session %s %s\n", t.session, ended.Error())
		return nil
	}
	if errors.Is(err, errDetached) {
		fmt.Fprintf(t.config.Stderr, "trl: detached; `trl attach %s` attaches again\n", t.session)
		return nil
	}
	return err
}
