package session

import (
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/process"
)

// addExec makes an exec of the session known to callers.
func (s *Session) addExec(e *exec.Exec) {
	s.shared.execs.add(e.ID(), execRef{s, e})
	s.shared.execsTotal.Add(1)
}

// addKey makes an exec known by its key. The caller must hold s.mu.
func (s *Session) addKey(e *exec.Exec) {
	if e.Key() == "" {
		return
	}
	if s.keys == nil {
		s.keys = map[string]*exec.Exec{}
	}
	s.keys[e.Key()] = e
}

// markOf returns the mark of an exec's processes. Marks repeat after a million
// execs; 0 is the driver's own.
func markOf(number int64) uint32 { return uint32((number-1)%process.MaxMark) + 1 }

// retain adds a finished exec to those that are retained. The caller must hold
// s.mu.
func (s *Session) retain(e *exec.Exec) { s.finished = append(s.finished, e) }

// releaseKeys forgets which execs the keys of dropped execs belonged to, but not
// that they were used. The caller must hold s.mu.
func (s *Session) releaseKeys(dropped []*exec.Exec) {
	for _, e := range dropped {
		if e.Key() != "" {
			delete(s.keys, e.Key())
			s.shared.rememberKey(usedKey{s.id, e.Key()})
		}
	}
}

// dropExecs forgets execs of the session with their output.
func (s *Session) dropExecs(dropped []*exec.Exec) {
	for _, e := range dropped {
		s.shared.execs.remove(e.ID())
	}
	for _, e := range dropped {
		if s.term != nil {
			s.term.BeforeForget(e)
		}
		e.Forget()
		e.ReleaseOutput()
	}
}
