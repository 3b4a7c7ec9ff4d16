package terminal

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/vt"
)

// Open opens a terminal of the given size and starts to read its output.
func Open(cfg Config, size api.TTYSize) (*Terminal, error) {
	master, slave, err := pty.Open(pty.Size{Rows: size.Rows, Cols: size.Cols})
	if err != nil {
		return nil, err
	}
	t := newTerminal(cfg, master, slave, size)
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
	t.StartReading()
	return t, nil
}

func newTerminal(cfg Config, master, slave *os.File, size api.TTYSize) *Terminal {
	return &Terminal{
		cfg: cfg, master: master, slave: slave, buf: make([]byte, terminalBytes),
		screen: newScreen(size), stage: [2]int{-1, -1}, slots: &Slots{},
	}
}

// Adopt takes over a terminal of an earlier process. The caller must call
// RestoreScreen and then StartReading.
func Adopt(cfg Config, tree *process.Tree, slots *Slots, size api.TTYSize) (*Terminal, error) {
	keep := cfg.Keeper
	fds := [5]int{-1, -1, -1, -1, -1}
	closeOwn := func() {
		for _, fd := range fds {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}
	for i, slot := range []holder.Slot{slots.Master, slots.Slave, slots.Stage[0], slots.Stage[1], slots.Leader} {
		if slot == 0 {
			continue
		}
		fd, err := keep.Take(slot)
		if err != nil {
			closeOwn()
			return nil, err
		}
		fds[i] = fd
	}
	if fds[0] < 0 || fds[1] < 0 { // before an os.File owns the other one
		closeOwn()
		return nil, errors.New("the holder does not have its terminal")
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fds[1]))
	if err != nil {
		name = "tty"
	}
	t := newTerminal(cfg, os.NewFile(uintptr(fds[0]), "ptmx"), os.NewFile(uintptr(fds[1]), name), size)
	t.stage, t.slots = [2]int{fds[2], fds[3]}, slots
	t.raw, err = t.master.SyscallConn()
	if err == nil && slots.Leader != 0 {
		t.leader, err = tree.AdoptTerminal(slots.LeaderPID, fds[4])
	}
	if err == nil {
		err = t.loadDefaults()
	}
	if err != nil {
		t.CloseFDs()
		return nil, err
	}
	return t, nil
}

// keep gives the descriptors to the holder, so that the terminal does not hang up
// when this process dies.
func (t *Terminal) keep() error {
	keep := t.cfg.Keeper
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

// Lead starts the process that leads the terminal for the commands of a shell.
func (t *Terminal) Lead(tree *process.Tree) error {
	leader, err := tree.NewTerminal(t.slave)
	if err != nil {
		return err
	}
	t.leader = leader
	return t.keepLeader()
}

// keepLeader gives the connection to the leader to the holder.
func (t *Terminal) keepLeader() (err error) {
	t.slots.LeaderPID = t.leader.PID()
	t.slots.Leader, err = t.cfg.Keeper.Keep(t.leader.Conn())
	return err
}

// setDefaults sets up the terminal for UTF-8 text. The suspend key is disabled:
// there is no job control that could continue a stopped program.
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

// loadDefaults sets the settings that every command begins with, for a terminal
// that a running command may have changed.
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

// StartReading starts to move output as it comes.
func (t *Terminal) StartReading() {
	t.cfg.Spawn(func() {
		_ = t.raw.Read(func(fd uintptr) bool { return t.pull(int(fd), -1) }) // an error means that it was closed
	})
}

// Close releases the terminal. No process may use it any more.
func (t *Terminal) Close() {
	t.Drain()
	t.mu.Lock()
	t.gone = true
	if t.output != nil {
		t.output.CloseJournal()
	}
	// Of an ended session only the last screen is kept.
	rows, cols := t.screen.Size()
	last := vt.New(vt.Config{Rows: rows, Cols: cols})
	_, _ = last.Write(t.screen.ANSI(0))
	t.screen, t.buf = last, nil
	t.persistScreen()
	t.mu.Unlock()
	t.release()
}

// release closes all descriptors, here and at the holder.
func (t *Terminal) release() {
	t.CloseFDs()
	for _, slot := range []holder.Slot{t.slots.Master, t.slots.Slave, t.slots.Stage[0], t.slots.Stage[1], t.slots.Leader} {
		if slot != 0 {
			t.cfg.Keeper.Drop(slot)
		}
	}
}

// CloseFDs closes this process's descriptors of the terminal. The holder keeps its
// own.
func (t *Terminal) CloseFDs() {
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

// NewEnded returns the terminal of an ended session, which only shows its screen.
// The caller must call RestoreScreen.
func NewEnded(cfg Config, size api.TTYSize) *Terminal {
	t := newTerminal(cfg, nil, nil, size)
	t.gone = true
	return t
}
