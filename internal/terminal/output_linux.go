package terminal

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/journal"
)

// terminalBytes is the size of one read: the most that the kernel returns from a
// terminal at once.
const terminalBytes = 4 << 10

// Assign makes e the command that the output belongs to. The settings are reset and
// unread input of an earlier command is discarded; errors mean that the terminal is
// gone, and then there is no command to disturb.
func (t *Terminal) Assign(e Output) {
	_ = t.onSlave(func(fd int) error {
		return errors.Join(unix.IoctlSetTermios(fd, unix.TCSETS, &t.settings), unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH))
	})
	t.Drain()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.output != nil {
		t.output.CloseJournal()
	}
	first := t.output == nil
	t.output = e
	if first {
		t.persistScreen() // earlier output is in no journal
	}
	e.SetInitialSize(t.size())
}

// pull moves pending output into the journal, at most limit bytes unless limit is
// negative. It reports whether the terminal is gone.
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
			_, _ = unix.Write(fd, answers) // a program that asks and does not read gets no answer
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

// move moves pending output into the journal of the current command, and reads it
// back from there to show it on the screen: so the screen and a screen that is
// restored after a crash are made from the same bytes. Before the first command
// there is no journal. The caller must hold mu.
func (t *Terminal) move(fd int) (n int, err error) {
	if t.output == nil {
		if n, err = unix.Read(fd, t.buf); n > 0 {
			_, _ = t.screen.Write(t.buf[:n]) // Write takes everything
		}
		return n, err
	}
	j := t.output.Journal()
	before := j.Size()
	if n, err = j.AppendFromTerminal(fd, t.stage[0], t.stage[1]); n > 0 {
		t.output.Touch()
		t.replay(j, before)
		t.persistProgress(n)
	}
	return n, err
}

// replay shows a journal's content from an offset on. The caller must hold mu.
func (t *Terminal) replay(j *journal.Journal, from int64) {
	for {
		segs, next, err := j.ReadInto(from, t.buf)
		if err != nil || next == from {
			return
		}
		for _, seg := range segs {
			_, _ = t.screen.Write(seg.Data) // Write takes everything; a gap has no data
		}
		from = next
	}
}

// Drain moves everything that was written before the call. Reading the master makes
// the kernel flush what it has buffered, so nothing is missed.
func (t *Terminal) Drain() {
	_ = t.raw.Control(func(fd uintptr) { t.pull(int(fd), maxDrain) })
}

// BeforeForget must be called before the output of e is forgotten: it persists the
// part of the screen that could not be replayed any more.
func (t *Terminal) BeforeForget(e Output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.persisted == nil || e.Number() >= t.persisted.exec {
		t.persistScreen()
	}
}
