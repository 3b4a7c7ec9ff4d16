package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// attachOptions is what `trl attach` was told.
type attachOptions struct {
	write, readOnly bool
	detach          keyFlag
}

func (a *app) attachCommand() *cobra.Command {
	o := attachOptions{detach: defaultDetach}
	cmd := &cobra.Command{
		Use:   "attach SESSION",
		Short: "Look at a session's terminal, and type on it",
		Long: "Show the terminal of a session that was made with --tty, and type on it, until the\n" +
			"detach key is pressed. The session goes on.\n\n" +
			"While you type, others are refused and told who you are. It is read-only if the\n" +
			"session is a shell, which is somebody's, if somebody else is typing, or has within\n" +
			"the last minute: then q leaves, and --write takes over.",
		Example:           "  trl attach $id\n  trl attach --write $id        # take the keyboard from whoever has it",
		ValidArgsFunction: a.completeSessions,
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().BoolVarP(&o.write, "write", "w", false, "type, and take the keyboard from whoever has it")
	cmd.Flags().BoolVarP(&o.readOnly, "read-only", "r", false, "only look")
	cmd.Flags().Var(&o.detach, "detach-key", "the `KEY` that detaches")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if o.write && o.readOnly {
			return usage("--write and --read-only exclude each other")
		}
		return exactArgs("SESSION")(cmd, args)
	}, func(ctx context.Context, args []string) error { return a.attach(ctx, &o, args[0]) })
	return cmd
}

// keyFlag is a key on the command line, such as ctrl-\. It is the byte that the
// key sends.
type keyFlag byte

// defaultDetach is ctrl-\, which few programs want and shells don't.
const defaultDetach keyFlag = 0x1c

func (k *keyFlag) String() string {
	if *k == 0x7f {
		return "ctrl-?"
	}
	return "ctrl-" + strings.ToLower(string(rune(*k|0x40)))
}

// Type is what stands for the value in the help.
func (*keyFlag) Type() string { return "key" }

// Set reads the value.
func (k *keyFlag) Set(text string) error {
	name, ok := strings.CutPrefix(strings.ToLower(text), "ctrl-")
	if !ok {
		name, ok = strings.CutPrefix(text, "^")
		name = strings.ToLower(name)
	}
	if !ok || len(name) != 1 || name[0] < '\\' || name[0] > 'z' || name[0] == '`' {
		return errors.New(`write a key such as ctrl-\, ctrl-] or ctrl-t`)
	}
	*k = keyFlag(name[0] & 0x1f)
	return nil
}

// attachment is a person at a session's terminal. Its fields belong to the
// goroutine of attach.
type attachment struct {
	app     *app
	options *attachOptions
	session string
	client  *client.Client
	local   *localTerminal
	display *display
	keys    *keyboard

	typing  bool   // what is typed goes to the session
	reason  string // it does not: why
	exec    string // the command that runs; "": none
	updates chan update
	done    chan error // the follower has ended
}

// told is something that the attachment hears of from another goroutine.
type update struct {
	info  *api.SessionInfo
	event *api.SessionEvent
	err   error
}

func (a *app) attach(ctx context.Context, o *attachOptions, session string) error {
	if !isTerminal(a.stdin) || !isTerminal(a.stdout) {
		return localError{api.Errorf(api.CodeInvalidRequest, "`trl attach` needs a terminal as its stdin and stdout").
			WithHint("`trl screen %s` prints what is on the session's terminal, and `trl exec output --follow EXEC` what a command writes", session)}
	}
	ctx, cancel := context.WithCancel(ctx) // when the keyboard is given back too
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.SessionInfo(ctx, api.SessionParams{SessionID: session})
	if err != nil {
		return err
	}
	if err := attachable(info); err != nil {
		return err
	}
	t := &attachment{
		app: a, options: o, session: session, client: c, keys: newKeyboard(c, session), exec: info.ExecID,
		updates: make(chan update), done: make(chan error, 1),
	}
	if err := t.claimKeyboard(ctx, info); err != nil {
		return err
	}
	return t.finish(t.run(ctx, *info.TTY))
}

// attachable refuses a session that has nothing to attach to.
func attachable(info *api.SessionInfo) error {
	id := visible(info.SessionID)
	if info.TTY == nil {
		hint := fmt.Sprintf("`trl exec list %s` lists its commands, and `trl exec output --follow EXEC` follows one", id)
		if len(info.Argv) == 0 {
			hint += fmt.Sprintf("; `trl shell %s` works in it", id)
		}
		return localError{api.Errorf(api.CodeInvalidRequest, "session %s has no terminal", id).WithHint("%s", hint)}
	}
	if info.State == api.StateTerminated {
		return localError{api.Errorf(api.CodeSessionTerminated, "session %s %s", id, (&sessionEnded{info.Terminated}).Error()).
			WithHint("`trl screen %s` prints what was on its terminal last", id)}
	}
	return nil
}

// recently is for how long a session counts as somebody's who has typed in it.
const recentTyping = time.Minute

// decide takes the keyboard, if that disturbs nobody or is what was asked for.
func (t *attachment) claimKeyboard(ctx context.Context, info *api.SessionInfo) error {
	o := t.options
	switch {
	case o.write:
		if err := t.keys.take(ctx, true); err != nil {
			return err
		}
		t.typing = true
	case o.readOnly:
	case info.Held != nil:
		t.reason = visible(info.Held.Holder) + " is typing"
	case len(info.Argv) == 0:
		t.reason = "its commands are somebody's"
	case info.TypedAt != nil && time.Since(info.TypedAt.Time) < recentTyping:
		t.reason = fmt.Sprintf("somebody typed %s ago", formatDuration(time.Since(info.TypedAt.Time)))
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

// run shows the session, whose terminal has a size, until the person leaves or it
// ends.
func (t *attachment) run(ctx context.Context, size api.TTYSize) error {
	defer t.keys.release() // before it is said that the person has left
	local, err := t.app.newLocalTerminal()
	if err != nil {
		return err
	}
	defer local.close()
	defer local.restoreOnPanic()
	if t.typing {
		size = local.size()
	}
	t.local, t.display = local, newDisplay(local, size)
	t.app.exitTerminalIfDaemonSilent(ctx, t.client, local, "") // the display says what undoes it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tell := func(what update) {
		select {
		case t.updates <- what:
		case <-ctx.Done():
		}
	}
	t.keys.onError = func(err error) { tell(update{err: err}) }
	t.keys.setExec(t.exec)
	if t.typing {
		// An error is told by what is typed; the size is only how it looks.
		_ = t.keys.resize(ctx, size)
	}
	t.keys.run(ctx, local.start)
	f := follower{client: t.client, session: t.session, display: t.display, notify: func(info *api.SessionInfo, event *api.SessionEvent) {
		tell(update{info: info, event: event})
	}}
	local.start(func() { t.done <- f.run(ctx) })
	local.start(t.display.run)
	t.display.notice(t.statusText())

	err = t.loop(ctx)
	local.close()
	return err
}

// errDetached is how an attachment ends by the person's wish.
var errDetached = errors.New("detached")

// resizePause is how long a window has to keep its size before the session
// hears of it: programs redraw everything each time.
const resizeDelay = 50 * time.Millisecond

func (t *attachment) loop(ctx context.Context) error {
	settled := time.NewTimer(resizeDelay)
	settled.Stop()
	for {
		t.display.status(t.session+": "+t.statusText(), t.typing)
		select {
		case b, ok := <-t.local.keys:
			if !ok {
				return exitStatus(statusSignal + int(syscall.SIGHUP)) // the terminal is gone
			}
			if err := t.handleKeys(b); err != nil {
				return err
			}
		case sig := <-t.local.signals:
			return exitStatus(statusSignal + int(signalNumber(sig)))
		case <-t.local.resized:
			settled.Reset(resizeDelay)
		case <-settled.C:
			size := t.local.size()
			t.display.resize(size)
			if t.typing {
				t.local.start(func() { _ = t.keys.resize(ctx, size) }) // as above
			}
		case what := <-t.updates:
			t.handleUpdate(what)
		case err := <-t.done:
			return err
		}
	}
}

// typed does what the person wants with keys.
func (t *attachment) handleKeys(b []byte) error {
	before, _, detach := strings.Cut(string(b), string(rune(t.options.detach)))
	switch {
	case !t.typing:
		// Several keys come at once when this program was kept waiting.
		if detach || strings.HasSuffix(before, "q") || strings.HasSuffix(before, "\x03") {
			return errDetached
		}
		t.display.notice(t.statusText())
		return nil
	case before != "" && t.exec == "":
		t.display.notice(fmt.Sprintf("no command is running: what you type goes nowhere (`trl shell %s` runs one)", t.session))
	case before != "" && !t.keys.enqueue([]byte(before)):
		t.display.notice("the program does not read what is typed: this was not taken")
	}
	if detach {
		return errDetached
	}
	return nil
}

// hear takes in what happened.
func (t *attachment) handleUpdate(what update) {
	switch {
	case what.err != nil:
		t.inputRefused(what.err)
	case what.info != nil:
		t.setExec(what.info.ExecID, what.info.State)
		if t.typing {
			t.keys.recheck()
		} else if !t.options.readOnly && what.info.Held != nil {
			t.reason = visible(what.info.Held.Holder) + " is typing"
		}
	case what.event != nil:
		t.handleEvent(what.event)
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
				t.keys.recheck() // it may be from before this hold
			}
			return
		}
		t.reason = visible(e.Holder) + " is typing"
		t.display.notice(t.statusText())
	case api.EventReleased:
		if !t.typing {
			t.reason = "nobody is typing now"
		}
	}
}

// runs notes which command runs, if any.
func (t *attachment) setExec(exec string, state api.State) {
	if state != api.StateRunning {
		exec = ""
	}
	t.exec = exec
	t.keys.setExec(exec)
}

// refused says why something was not typed.
func (t *attachment) inputRefused(err error) {
	if lost, ok := errors.AsType[errLeaseLost](err); ok {
		t.typing = false
		t.reason = "the keyboard was given up"
		if lost.by != "" {
			t.reason = lost.by + " has taken over"
		}
		t.display.notice(t.statusText())
		return
	}
	message := visible(err.Error())
	if refused, ok := errors.AsType[*api.Error](err); ok {
		message = visible(refused.Message)
	}
	if unreachable(err) {
		message = "the connection to the daemon is lost, and maybe what you typed last"
	}
	t.display.notice(message)
}

// describe says who types, and how to leave. It fits in 80 columns, mostly.
func (t *attachment) statusText() string {
	var parts []string
	if t.display != nil {
		if shown, of, cropped := t.display.cropped(); cropped {
			parts = append(parts, fmt.Sprintf("%dx%d of %dx%d shown", shown.Rows, shown.Cols, of.Rows, of.Cols))
		}
	}
	switch {
	case t.typing:
		parts = append(parts, fmt.Sprintf("you are typing; %s detaches", t.options.detach.String()))
	case t.options.readOnly:
		parts = append(parts, "read-only; q leaves")
	default:
		parts = append(parts, "read-only: "+t.reason+"; q leaves, --write takes over")
	}
	if t.exec == "" {
		parts = append(parts, "no command runs")
	}
	return strings.Join(parts, "; ")
}

// leave says how it ended, now that the terminal is the person's again.
func (t *attachment) finish(err error) error {
	if ended, ok := errors.AsType[*sessionEnded](err); ok {
		fmt.Fprintf(t.app.stderr, "trl: session %s %s\n", t.session, ended.Error())
		return nil
	}
	if errors.Is(err, errDetached) {
		fmt.Fprintf(t.app.stderr, "trl: detached; `trl attach %s` comes back\n", t.session)
		return nil
	}
	return err
}
