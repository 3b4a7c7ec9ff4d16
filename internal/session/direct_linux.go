package session

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/label"
	"github.com/terminal-runtime/trl/internal/process"
)

// startDirect starts the command of a direct session. Its stdin stays open for
// exec.input; the session ends with it.
func (s *Session) startDirect() error {
	path, err := s.lookPath(s.params.Argv[0])
	if err != nil {
		return err
	}
	described := exec.Spec{ID: newNodeID("e-", s.shared.cfg.Node), SessionID: s.id, Timeout: s.timeout, Terminal: s.term}
	if !s.shared.cfg.NoLabels {
		described.Params.Label = label.OfArgv(s.params.Argv)
	}
	e := exec.New(s.shared.execEnv, described)
	e.SetNumber(1, 0)
	spec := process.Spec{Path: path, Argv: s.params.Argv, Env: s.env, Dir: s.params.Cwd}
	if err := e.OpenFiles(&spec); err != nil {
		e.Abandon()
		return api.Errorf(api.CodeInternal, "open pipes: %w", err)
	}
	defer e.SealOutput()
	waiting, err := s.tree.Prepare(spec)
	if err == nil {
		err = s.openGate(e, waiting)
	}
	if err != nil {
		e.Abandon()
		s.shared.ledger.Erase(sessionPrefix + s.id)
		return api.Errorf(api.CodeShellNotFound, "start %s: %w", path, err).WithHint("argv[0] must be an executable program")
	}
	e.PumpOutput()
	s.mu.Lock()
	s.execCount = 1
	s.running = e
	s.mu.Unlock()
	s.addExec(e)
	s.started(api.StateRunning)
	s.shared.spawn(func() { s.runDirect(e) })
	return nil
}

// openGate persists a command and the slot of its gate before it lets the command
// run. If this process is killed between, the next one opens the gate, and a repeat
// of session.create starts nothing.
func (s *Session) openGate(e *exec.Exec, w *process.Gated) error {
	keep := s.shared.cfg.Keeper
	gate, err := keep.Keep(w.Gate())
	if err == nil {
		defer keep.Drop(gate)
		err = keep.Sync()
	}
	if err != nil {
		return errors.Join(err, w.Close())
	}
	s.begin(e, time.Now()) // first: a session without a record of its command can't be adopted
	s.mu.Lock()
	s.proc, s.gate = w.Proc, gate
	s.persist()
	s.mu.Unlock()
	err = w.Open()
	s.clearGate()
	return err
}

// openAdoptedGate lets a command run that an earlier process has persisted, unless
// that process let it run.
func (s *Session) openAdoptedGate() {
	if s.gate == 0 {
		return
	}
	keep := s.shared.cfg.Keeper
	fd, err := keep.Take(s.gate)
	if err == nil {
		err = s.proc.AtGate(fd).Open()
	}
	if err != nil { // the command then ends, too
		s.shared.cfg.Log.Error("cannot start a command of an earlier daemon", "session", s.id, "error", err)
	}
	keep.Drop(s.clearGate())
}

// clearGate persists that the gate is no longer needed, and returns its slot.
func (s *Session) clearGate() holder.Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := s.gate
	s.gate = 0
	s.persist()
	return gate
}

// lookPath finds a program as the session would: by its own PATH and relative to
// its own directory.
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
		return "", notFound(osexec.ErrNotFound)
	}
	if !filepath.IsAbs(name) && s.params.Cwd != "" {
		name = filepath.Join(s.params.Cwd, name)
	}
	if _, err := os.Stat(name); err != nil {
		return "", notFound(err)
	}
	return filepath.Abs(name)
}

// runDirect waits for the end of a direct command, and ends the session with it.
func (s *Session) runDirect(e *exec.Exec) {
	s.shared.execsRunning.Add(1)
	defer s.shared.execsRunning.Add(-1)
	e.StartInput() // what an earlier daemon has buffered
	disarm := func() {}
	if !s.proc.Exited() { // if it has, while no daemon ran, it has not timed out
		disarm = e.StartTimeouts()
	}
	select {
	case <-s.proc.Done():
	case <-e.Stopped():
		s.stopDirect()
	}
	disarm()
	st := s.proc.Status()
	e.DrainOutput()
	e.CloseInput()
	e.FinishDirect(st, s.reached(e, st.Signal))
	s.mu.Lock()
	s.running = nil
	s.retain(e)
	s.execOver(e)
	ending := s.ending
	s.ending = true
	s.mu.Unlock()
	e.PersistEnd()
	s.proc.Forget()
	e.SetDone()
	if !ending {
		s.end(api.ReasonExited, &st)
	}
}

// stopDirect ends the whole tree: SIGTERM, the grace, SIGKILL.
func (s *Session) stopDirect() {
	asked := process.TermSent{}
	deadline := time.Now().Add(s.shared.cfg.Grace)
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
