package session

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/process"
)

// startDirect starts the one command of a direct session. Its stdin stays open
// for exec.input; its end is the session's.
func (s *Session) startDirect() error {
	path, err := s.lookPath(s.params.Argv[0])
	if err != nil {
		return err
	}
	e := s.newExec("")
	e.mark, e.number, e.timeout = 0, 1, s.timeout
	spec := process.Spec{Path: path, Argv: s.params.Argv, Env: s.env, Dir: s.params.Cwd}
	if err := e.openFiles(&spec); err != nil {
		e.abandon()
		return api.Errorf(api.CodeInternal, "open pipes: %w", err)
	}
	defer e.sealOutput()
	waiting, err := s.tree.Prepare(spec)
	if err == nil {
		err = s.openGate(e, waiting)
	}
	if err != nil {
		e.abandon()
		s.pool.erase(sessionPrefix + s.id)
		return api.Errorf(api.CodeShellNotFound, "start %s: %w", path, err).WithHint("argv[0] must be an executable program")
	}
	e.pumpOutput()
	s.mu.Lock()
	s.execCount = 1
	s.running = e
	s.mu.Unlock()
	s.pool.addExec(e)
	s.started(api.StateRunning)
	s.pool.spawn(e.runDirect)
	return nil
}

// letRun notes a command before it runs, and where its gate is. If this process is
// killed the next one opens it, and who asks again for the session starts nothing.
func (s *Session) openGate(e *Exec, w *process.Gated) error {
	keep := s.pool.cfg.Keeper
	gate, err := keep.Keep(w.Gate())
	if err == nil {
		defer keep.Drop(gate)
		err = keep.Sync()
	}
	if err != nil {
		return errors.Join(err, w.Close())
	}
	e.begin(time.Now())
	e.persist() // first: a session whose command is not known can't be gone on with
	s.mu.Lock()
	s.proc, s.gate = w.Proc, gate
	s.persist()
	s.mu.Unlock()
	err = w.Open()
	s.clearGate()
	return err
}

// letGoOn lets a command run that an earlier process noted, if that has not.
func (s *Session) openAdoptedGate() {
	if s.gate == 0 {
		return
	}
	keep := s.pool.cfg.Keeper
	fd, err := keep.Take(s.gate)
	if err == nil {
		err = s.proc.AtGate(fd).Open()
	}
	if err != nil { // which shows as its end too
		s.pool.cfg.Log.Error("a command of an earlier daemon could not be started", "session", s.id, "error", err)
	}
	keep.Drop(s.clearGate())
}

// pastGate notes that the gate is not needed any more, and returns its slot.
func (s *Session) clearGate() holder.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := s.gate
	s.gate = 0
	s.persist()
	return gate
}

// openFiles makes what a direct command has for stdin, stdout and stderr.
func (e *Exec) openFiles(spec *process.Spec) error {
	if err := e.openOutput(); err != nil {
		return err
	}
	if t := e.session.term; t != nil {
		fd := int(t.slave.Fd()) // a session that is being created is not closed meanwhile
		spec.Files, spec.SessionLeader = [3]int{fd, fd, fd}, true
		return nil
	}
	err := e.newInput(nil, true)
	if err != nil {
		return err
	}
	spec.Files[0] = e.stdin.read
	if spec.Files[1], err = e.stdout.inherited(); err == nil {
		spec.Files[2], err = e.stderr.inherited()
	}
	return err
}

// sealOutput says that whoever is to write to its pipes has them now.
func (e *Exec) sealOutput() {
	for c := range e.pumps() {
		c.seal()
	}
}

// abandon gives up what was made for a command that could not be started.
func (e *Exec) abandon() {
	e.closeOutput()
	e.forget()
}

// lookPath finds a program as the session itself would: by its own PATH and
// relative to its own directory.
func (s *Session) lookPath(name string) (string, error) {
	notFound := func(err error) error {
		return api.Errorf(api.CodeShellNotFound, "no such program: %w", err).WithHint("argv[0] is a name on the session's PATH or a path")
	}
	if filepath.Base(name) == name {
		for _, kv := range s.env {
			if list, ok := strings.CutPrefix(kv, "PATH="); ok {
				for _, dir := range filepath.SplitList(list) {
					path := filepath.Join(dir, name)
					if st, err := os.Stat(path); err == nil && !st.IsDir() && unix.Access(path, unix.X_OK) == nil {
						return path, nil
					}
				}
			}
		}
		return "", notFound(exec.ErrNotFound)
	}
	if !filepath.IsAbs(name) && s.params.Cwd != "" {
		name = filepath.Join(s.params.Cwd, name)
	}
	if _, err := os.Stat(name); err != nil {
		return "", notFound(err)
	}
	return filepath.Abs(name)
}

// runDirect is the life of a direct command after its start.
func (e *Exec) runDirect() {
	s := e.session
	s.pool.execsRunning.Add(1)
	defer s.pool.execsRunning.Add(-1)
	if e.stdin != nil {
		e.stdin.startMove() // what an earlier daemon was given
	}
	disarm := func() {}
	if !s.proc.Exited() { // as it may have while there was no daemon: it is not late then
		disarm = e.startTimeouts()
	}
	select {
	case <-s.proc.Done():
	case <-e.stopped:
		e.stopDirect()
	}
	disarm()
	st := s.proc.Status()
	e.drainOutput()
	e.closeInput()
	e.finish(func(r *api.ExecResult) {
		r.ExitCode = &st.Code
		r.Signal = process.SignalName(st.Signal)
		// Not its memory: the kernel counts in that of the helper it started as.
		r.Usage = &api.Usage{CPUMS: st.CPU.Milliseconds()}
		r.Outcome = api.OutcomeExited
		if st.Signal != 0 {
			r.Outcome = api.OutcomeSignaled
		}
	})
	s.mu.Lock()
	s.running = nil
	s.retain(e)
	ending := s.ending
	s.ending = true
	s.mu.Unlock()
	e.persistEnd()
	s.proc.Forget()
	e.setDone()
	if !ending {
		s.end(api.ReasonExited, &st)
	}
}

// stopDirect ends the whole tree: SIGTERM, the grace, SIGKILL.
func (e *Exec) stopDirect() {
	s := e.session
	asked := process.TermSent{}
	deadline := time.Now().Add(s.pool.cfg.Grace)
	all := func(int, uint32) bool { return true }
	for {
		left := s.tree.Terminate(asked, all)
		if s.proc.Exited() && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.tree.KillMarked(all, time.Now().Add(killTimeout))
			<-s.proc.Done()
			return
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-s.forceKill:
			deadline = time.Now()
		case <-pause.C:
		}
		pause.Stop()
	}
}
