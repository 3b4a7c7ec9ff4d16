package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// foundSession is what the ledger has of one session.
type foundSession struct {
	id     string
	state  *sessionState // nil if there is none, or none that can be read
	tree   uint32        // 0 means unknown
	shell  []byte
	screen *terminal.Snapshot
	execs  []foundExec                 // by number
	inputs map[string]*exec.InputState // by exec
	keys   []string                    // of all its records but the session's own
	bad    error                       // why a record that is needed can't be read
}

type foundExec struct {
	id    string
	state *exec.State
}

// CheckRecord returns an error for a record that Adopt could not read. Records of
// other packages pass.
func CheckRecord(key string, value []byte) error {
	var r ledgerReader
	err := r.add(key, value)
	for _, f := range r.sessions {
		for _, e := range f.execs {
			err = errors.Join(err, e.state.Check())
		}
	}
	return err
}

// ledgerReader collects the records of sessions.
type ledgerReader struct {
	sessions map[string]*foundSession
	usedKeys []usedKey
}

func (r *ledgerReader) session(id string) *foundSession {
	if r.sessions[id] == nil {
		if r.sessions == nil {
			r.sessions = map[string]*foundSession{}
		}
		r.sessions[id] = &foundSession{id: id}
	}
	return r.sessions[id]
}

// add adds one record. An error means that it can't be read.
func (r *ledgerReader) add(key string, value []byte) (err error) {
	kind, id, _ := strings.Cut(key, "/")
	f := &foundSession{} // whose record it is
	switch kind + "/" {
	case sessionPrefix, endedPrefix:
		f = r.session(id)
		if f.state, err = decodeSessionState(value); err != nil {
			f.state = nil
		}
		if err != nil {
			f.bad = fmt.Errorf("its record: %w", err)
		}
		return err
	case treePrefix:
		f = r.session(id)
		var tree treeState
		err = state.Decode(value, tree.fields)
		f.tree = tree.number
	case shellPrefix:
		f = r.session(id)
		f.shell = value
		if err = shell.CheckState(value); err != nil {
			f.bad = fmt.Errorf("the record of its shell: %w", err)
		}
	case screenPrefix:
		f = r.session(id)
		if f.screen, err = terminal.DecodeSnapshot(value); err != nil {
			f.screen = nil // the screen is restored from the output that is kept
		}
	case exec.StatePrefix:
		var e *exec.State
		if e, err = exec.DecodeState(value); e.SessionID() == "" {
			break // its session is unknown; see checkCommand
		}
		f = r.session(e.SessionID())
		if err == nil {
			f.execs = append(f.execs, foundExec{id, e})
		}
	case exec.InputPrefix:
		var in *exec.InputState
		if in, err = exec.DecodeInputState(value); in.SessionID() == "" {
			break
		}
		f = r.session(in.SessionID())
		if err == nil {
			if f.inputs == nil {
				f.inputs = map[string]*exec.InputState{}
			}
			f.inputs[id] = in
		}
	case usedKeyPrefix:
		session, used, _ := strings.Cut(id, "/")
		r.usedKeys = append(r.usedKeys, usedKey{session, used})
	}
	f.keys = append(f.keys, key)
	return err
}

// sorted returns the sessions by number, each with its execs by number.
func (r *ledgerReader) sorted() []*foundSession {
	all := slices.Collect(maps.Values(r.sessions))
	for _, f := range all {
		slices.SortFunc(f.execs, func(a, b foundExec) int { return cmp.Compare(a.state.Number(), b.state.Number()) })
	}
	slices.SortFunc(all, func(a, b *foundSession) int { return cmp.Compare(a.state.number, b.state.number) })
	return all
}

// ledgerEntry is one record of the ledger.
type ledgerEntry struct {
	key    string
	before bool   // an earlier daemon could not read it and moved it below unreadablePrefix
	value  []byte // nil if it was not read yet
}

// ledgerKey returns the key under which the ledger has it.
func (r ledgerEntry) ledgerKey() string {
	if r.before {
		return unreadablePrefix + r.key
	}
	return r.key
}
