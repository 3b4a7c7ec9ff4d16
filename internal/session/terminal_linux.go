package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/vt"
)

// terminal is that of a tty session: what its commands have for stdin, stdout
// and stderr. It outlives them, and so does what they do to its screen.
type Terminal struct {
	pool   *Pool
	master *os.File
	raw    syscall.RawConn // of master
	turn   turn            // of who types
	// slave is kept open, so that the master does not hang up between commands.
	slave  *os.File
	leader *process.Terminal // nil in a direct session, whose command leads
	stage  [2]int            // a pipe through which output gets to the journal
	slots  *terminalSlots

	settings unix.Termios // those that every command begins with

	muteAnswers atomic.Bool // programs get their answers from the terminal of who holds the session

	mu     sync.Mutex // one pull at a time; guards what follows
	output *Exec      // whose output it is: the one that runs, or the last
	screen *vt.Screen // what the output looks like
	buf    []byte
	gone   bool
	// What a later daemon knows of the screen is what was noted; next is the
	// picture that will be, since when so many bytes were shown.
	persisted, nextSnapshot *screenSnapshot
	sinceSnapshot           int
}

// terminalSlots are where the holder has a terminal.
type terminalSlots struct {
	Master, Slave holder.Slot
	Stage         [2]holder.Slot
	Leader        holder.Slot // 0: its command leads
	LeaderPID     int
}

// scrollback is how many lines are kept of what has left the screen: some
// pages, for who looks at it; the journal has it all.
const scrollback = 1000

// terminalBytes is what one read takes: as much as the kernel ever gives of a
// terminal at once.
const terminalBytes = 4 << 10

// openTerminal makes the terminal that was asked for.
func (p *Pool) openTerminal(size api.TTYSize) (*Terminal, error) {
	master, slave, err := pty.Open(pty.Size{Rows: size.Rows, Cols: size.Cols})
	if err != nil {
		return nil, err
	}
	t := p.newTerminal(master, slave, size)
	if t.raw, err = master.SyscallConn(); err == nil {
		err = unix.Pipe2(t.stage[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	}
	if err == nil {
		err = t.setDefaults()
	}
	if err == nil {
		err = t.keep()
	}
	if err != nil {
		t.release()
		return nil, err
	}
	t.startReading()
	return t, nil
}

func (p *Pool) newTerminal(master, slave *os.File, size api.TTYSize) *Terminal {
	return &Terminal{
		pool: p, master: master, slave: slave, buf: make([]byte, terminalBytes),
		screen: newScreen(size), stage: [2]int{-1, -1}, slots: &terminalSlots{},
	}
}

// read moves output as it comes, from now on.
func (t *Terminal) startReading() {
	t.pool.spawn(func() {
		_ = t.raw.Read(func(fd uintptr) bool { return t.pull(int(fd), -1) }) // an error means closed
	})
}

// keep gives the terminal to the holder, so that it does not hang up when this
// process dies.
func (t *Terminal) keep() error {
	keep := t.pool.cfg.Keeper
	var err error
	control := t.raw.Control(func(fd uintptr) { t.slots.Master, err = keep.Keep(int(fd)) })
	slave := t.onSlave(func(fd int) (err error) {
		t.slots.Slave, err = keep.Keep(fd)
		return err
	})
	err = errors.Join(err, control, slave)
	for i, fd := range t.stage {
		if err == nil {
			t.slots.Stage[i], err = keep.Keep(fd)
		}
	}
	return err
}

// keepLeader gives the way to the leader to the holder too.
func (t *Terminal) keepLeader() (err error) {
	t.slots.LeaderPID = t.leader.PID()
	t.slots.Leader, err = t.pool.cfg.Keeper.Keep(t.leader.Conn())
	return err
}

// closeOwn closes the descriptors that this process has of the terminal.
func (t *Terminal) closeFDs() {
	_, _ = t.master.Close(), t.slave.Close()
	for _, fd := range t.stage {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if t.leader != nil {
		_ = t.leader.Close()
	}
}

// give gives up all that the terminal holds, here and at the holder.
func (t *Terminal) release() {
	t.closeFDs()
	for _, slot := range []holder.Slot{t.slots.Master, t.slots.Slave, t.slots.Stage[0], t.slots.Stage[1], t.slots.Leader} {
		if slot != 0 {
			t.pool.cfg.Keeper.Drop(slot)
		}
	}
}

// onSlave calls fn with the descriptor of the slave, which is not closed
// meanwhile: the number of one that is may be another session's.
func (t *Terminal) onSlave(fn func(fd int) error) error {
	raw, err := t.slave.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (t *Terminal) currentSettings() (settings *unix.Termios, err error) {
	err = t.onSlave(func(fd int) (err error) {
		settings, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return settings, err
}

// sane makes the settings those of a terminal for text in UTF-8. The key that
// stops a program is taken away: nobody would be there to continue it.
func (t *Terminal) setDefaults() error {
	settings, err := t.currentSettings()
	if err != nil {
		return err
	}
	settings.Iflag |= unix.IUTF8
	settings.Cc[unix.VSUSP] = noKey
	t.settings = *settings
	return t.onSlave(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, settings) })
}

// rememberSettings is sane for a terminal on which a command may run: what every
// command begins with, whatever this one has done to it.
func (t *Terminal) loadDefaults() error {
	master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80})
	if err != nil {
		return err
	}
	fresh := &Terminal{master: master, slave: slave}
	err = fresh.setDefaults()
	t.settings = fresh.settings
	return errors.Join(err, master.Close(), slave.Close())
}

// noKey is the character of a function of the terminal that has no key.
const noKey = 0

// take makes the terminal's output that of e. What an earlier command left on
// its settings or unread does not concern it. (A terminal that is gone already
// has no command to disturb.)
func (t *Terminal) assign(e *Exec) {
	_ = t.onSlave(func(fd int) error {
		return errors.Join(unix.IoctlSetTermios(fd, unix.TCSETS, &t.settings), unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH))
	})
	t.drain()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.output != nil {
		t.output.closeJournal()
	}
	first := t.output == nil
	t.output = e
	if first {
		t.persistScreen() // what came before is in no journal
	}
	e.setInitialSize(t.size())
}

// size is that of the screen. Under mu.
func (t *Terminal) size() api.TTYSize {
	rows, cols := t.screen.Size()
	return api.TTYSize{Rows: rows, Cols: cols}
}

// leads reports whether a process holds the terminal for the others.
func (t *Terminal) leads(pid int) bool { return t.leader != nil && t.leader.PID() == pid }

// pull moves what there is into the journal, at most limit bytes unless that is
// negative, and says whether the terminal is gone.
func (t *Terminal) pull(fd, limit int) (gone bool) {
	for limit != 0 {
		n, done, empty := t.step(fd)
		if done || empty {
			return done
		}
		if limit > 0 {
			limit = max(0, limit-n)
		}
	}
	return false
}

func (t *Terminal) step(fd int) (n int, gone, empty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return 0, true, false
	}
	n, err := t.move(fd)
	switch {
	case n > 0:
		if answers := t.screen.Answers(); len(answers) > 0 && !t.muteAnswers.Load() {
			_, _ = unix.Write(fd, answers) // who asks and does not read gets none
		}
		return n, false, false
	case errors.Is(err, unix.EAGAIN):
		return 0, false, true
	case errors.Is(err, unix.EINTR):
		return 0, false, false
	}
	t.gone = true
	return 0, true, false
}

// move moves what there is into the journal of the command whose output it is,
// and shows it on the screen. Before the first command there is no journal.
// Under mu.
func (t *Terminal) move(fd int) (n int, err error) {
	if t.output == nil {
		if n, err = unix.Read(fd, t.buf); n > 0 {
			_, _ = t.screen.Write(t.buf[:n]) // it takes everything
		}
		return n, err
	}
	j := t.output.journal
	before := j.Size()
	if n, err = j.AppendFromTerminal(fd, t.stage[0], t.stage[1]); n > 0 {
		t.output.lastByte.Store(time.Now().UnixNano())
		t.replay(j, before)
		t.persistProgress(n)
	}
	return n, err
}

// replay shows what a journal has from an offset on. Under mu.
func (t *Terminal) replay(j *journal.Journal, from int64) {
	for {
		segs, next, err := j.ReadInto(from, t.buf)
		if err != nil || next == from {
			return
		}
		for _, seg := range segs {
			_, _ = t.screen.Write(seg.Data) // it takes everything; a gap has none
		}
		from = next
	}
}

// settle moves what was written before now. A read of the master makes the
// kernel hand over what it has not yet, so none of it is missed.
func (t *Terminal) drain() {
	_ = t.raw.Control(func(fd uintptr) { t.pull(int(fd), maxPipeBytes) })
}

// close gives the terminal up, when no process can use it any more.
func (t *Terminal) close() {
	t.drain()
	t.mu.Lock()
	t.gone = true
	if t.output != nil {
		t.output.closeJournal()
	}
	// What is kept of a session that has ended is what it showed last.
	rows, cols := t.screen.Size()
	last := vt.New(vt.Config{Rows: rows, Cols: cols})
	_, _ = last.Write(t.screen.ANSI(0))
	t.screen, t.buf = last, nil
	t.persistScreen()
	t.mu.Unlock()
	t.release()
}

// errNoTerminal refuses what only a terminal can do.
func errNoTerminal() *api.Error {
	return api.Errorf(api.CodeInvalidRequest, "the session has no terminal").
		WithHint(`session.create with tty: {"rows": 24, "cols": 80} makes one that has`)
}

// input types data, and the key for end of input at eof. It is the caller's turn.
func (t *Terminal) typeInput(ctx, fence context.Context, e *Exec, data []byte, eof bool) (int, error) {
	settings, err := t.currentSettings()
	if err != nil {
		return 0, api.Errorf(api.CodeInternal, "the terminal: %w", err)
	}
	typed := data
	if eof {
		typed = append(slices.Clone(data), settings.Cc[unix.VEOF])
	}
	// Before it is typed: a program that heeds the key may be gone right after,
	// and so may the command.
	if sig := signalOf(data, settings); sig != 0 && e.shellIsAlone() {
		select {
		case e.keys <- sig:
		default:
		}
	}
	n, err := writeTerminal(ctx, fence, t.master, typed)
	if err != nil {
		return n, err
	}
	e.lastByte.Store(time.Now().UnixNano())
	return min(n, len(data)), nil
}

// signalOf is the signal that the terminal makes of what is typed, if any.
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

// shellIsAlone reports whether the command is all in its shell: a loop, say.
func (e *Exec) shellIsAlone() bool {
	s := e.session
	if s.shell == nil {
		return false
	}
	pid, _ := s.shell.PID()
	return len(s.tree.Marked(e.mark, pid)) == 0
}

// typed is what the terminal sends for an input.
func (t *Terminal) encodeInput(params api.ExecInputParams, data []byte) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := data
	if params.Paste {
		out = t.screen.Paste(string(data))
	}
	for _, name := range params.Keys {
		key, err := t.screen.Key(name)
		if err != nil {
			return nil, api.Errorf(api.CodeInvalidParams, "there is no such key").With("field", "keys").
				WithHint("keys are enter, tab, escape, backspace, up, down, left, right, home, end, pageup, pagedown, insert, delete, f1 to f20, single characters, and these with ctrl-, alt- or shift- before them")
		}
		out = append(slices.Clip(out), key...)
	}
	return out, nil
}

const (
	// inputTick is how often a command whose caller wants to know is looked at:
	// it hears of it within a tenth of a second, by two looks in a row.
	inputPollInterval = 25 * time.Millisecond
	// inputPart is what part of the time that a command has written nothing may
	// pass between two looks, up to inputMost: who asks writes a question first,
	// and a build that is silent for minutes is not looked at forty times a second.
	inputPollPart = 10
	maxInputPoll  = time.Second
)

// inputPause is how long to wait for the next look, the last having found that
// the command waits, or not.
func (e *Exec) inputPollDelay(waits bool) time.Duration {
	if waits {
		return inputPollInterval
	}
	quiet := time.Since(time.Unix(0, e.lastByte.Load()))
	return max(inputPollInterval, min(quiet/inputPollPart, maxInputPoll))
}

// waiting tells what the running command waits for, nil if for nothing that can
// be typed.
func (s *Session) waiting() *api.Waiting {
	s.mu.Lock()
	e := s.running
	s.mu.Unlock()
	if s.term == nil || e == nil {
		return nil
	}
	return s.term.waiting(e)
}

func (t *Terminal) waiting(e *Exec) *api.Waiting {
	var reader process.Reader
	found := false
	pids := e.session.tree.Marked(e.mark, 0)
	_ = t.raw.Control(func(fd uintptr) { reader, found = process.ReaderOf(pids, int(fd)) }) // an error means closed
	if !found {
		return nil
	}
	t.drain() // who is told that it waits finds what it asked
	w := &api.Waiting{
		For: api.WaitingInput, PID: reader.PID, Process: e.session.displayCommand(reader.Command),
		Since: api.Time{Time: time.Unix(0, e.lastByte.Load())},
	}
	if reader.Hidden {
		w.For = api.WaitingPassword
	}
	return w
}

// awaitInput returns a channel that is closed when the command waits for input,
// looking until ctx is done.
func (e *Exec) awaitInput(ctx context.Context) <-chan struct{} {
	found := make(chan struct{})
	e.session.pool.spawn(func() {
		timer := time.NewTimer(inputPollInterval)
		defer timer.Stop()
		before := 0
		for {
			select {
			case <-timer.C:
			case <-e.done:
				return
			case <-ctx.Done():
				return
			}
			pid := 0
			if w := e.session.term.waiting(e); w != nil {
				pid = w.PID
			}
			if pid != 0 && pid == before {
				close(found)
				return
			}
			before = pid
			timer.Reset(e.inputPollDelay(pid != 0))
		}
	})
	return found
}

// terminalEnv tells programs what they are shown on, unless the caller did.
func terminalEnv(env []string) []string {
	const name = "TERM="
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name) })
	return append(env, name+api.TerminalType)
}
