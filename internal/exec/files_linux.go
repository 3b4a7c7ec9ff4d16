package exec

import (
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/process"
)

// OpenOutput opens the pipes that the command writes to, each with a pump into the
// journal, or assigns the terminal to the command.
func (e *Exec) OpenOutput() error {
	if e.term != nil {
		e.term.Assign(e)
		return nil
	}
	var err error
	e.streams.Store(2)
	if e.stdout, err = newOutputPump(e.env, e, e.journal, journal.Stdout); err != nil {
		return err
	}
	if e.merged() {
		e.streams.Store(1)
		return nil
	}
	if e.stderr, err = newOutputPump(e.env, e, e.journal, journal.Stderr); err != nil {
		e.stdout.abort()
		return err
	}
	return nil
}

// OpenFiles opens stdin, stdout and stderr of a direct command.
func (e *Exec) OpenFiles(spec *process.Spec) error {
	if err := e.OpenOutput(); err != nil {
		return err
	}
	if e.term != nil {
		fd := e.term.SlaveFD() // the session is being created, so the terminal is not closed meanwhile
		spec.Files, spec.SessionLeader = [3]int{fd, fd, fd}, true
		return nil
	}
	err := e.NewInput(nil, true)
	if err != nil {
		return err
	}
	spec.Files[0] = e.stdin.read
	if spec.Files[1], err = e.stdout.inherited(); err == nil {
		spec.Files[2], err = e.stderr.inherited()
	}
	return err
}

// NewInput makes the command's stdin with data to read. If open is set it stays
// open after data.
func (e *Exec) NewInput(data []byte, open bool) error {
	in := e.makeInput()
	err := in.open(data, open)
	if err == nil {
		err = in.keeper.Sync()
	}
	if err != nil {
		in.close()
		_, unused := in.slotsToPersist()
		in.dropSlots(unused)
		return err
	}
	e.stdin = in
	return nil
}

// StartInput starts to move pending input to the command.
func (e *Exec) StartInput() {
	if e.stdin != nil {
		e.stdin.startMove()
	}
}

// PumpOutput starts to move the output as it comes.
func (e *Exec) PumpOutput() {
	for c := range e.pumps() { // a terminal is always read
		c.startPump()
	}
}

// SealOutput marks the pipes as open in all processes that are to write to them.
func (e *Exec) SealOutput() {
	for c := range e.pumps() {
		c.seal()
	}
}

// DrainOutput moves what the command wrote before it ended. A process that it left
// behind keeps its pipe, and that output goes on into the journal.
func (e *Exec) DrainOutput() {
	if e.term != nil {
		e.term.Drain()
		return
	}
	for c := range e.pumps() {
		c.seal()
	}
	e.finishEmpty()
	for c := range e.pumps() {
		c.drain()
	}
}

// finishEmpty finishes the streams that have no data and no writer: in most
// commands one, in many both. One poll for both costs less than a read from each.
func (e *Exec) finishEmpty() {
	var asked [2]*outputPump
	var polls [2]unix.PollFd
	n := 0
	for c := range e.pumps() {
		if fd := c.pollFD(); fd >= 0 {
			asked[n], polls[n] = c, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			n++
		}
	}
	if n == 0 {
		return
	}
	if _, err := nowait.Poll(polls[:n]); err != nil {
		return // then they are read from
	}
	for i, c := range asked[:n] {
		if polls[i].Revents == unix.POLLHUP {
			c.finishClean()
		}
	}
}

// CloseOutput stops the pumps and closes the input. No process may write any more.
func (e *Exec) CloseOutput() {
	for c := range e.pumps() {
		c.abort()
	}
	e.CloseInput()
}

func (e *Exec) makeInput() *input {
	return &input{keeper: e.env.cfg.Keeper, spawn: e.env.cfg.Spawn, persist: func() { e.Persist() }, read: -1, ended: make(chan struct{})}
}

// Abandon releases everything of a command that could not be started.
func (e *Exec) Abandon() {
	e.CloseOutput()
	e.Forget()
}
