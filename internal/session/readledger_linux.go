package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// found is what the ledger has of one session.
type foundSession struct {
	id     string
	state  *sessionState // nil: there is none, or none that can be read
	tree   uint32        // 0: not known
	shell  []byte
	screen *screenSnapshot
	execs  []foundExec            // in their order
	inputs map[string]*inputState // by exec
	keys   []string               // of all its records, but for the session's own
	bad    error                  // why a record that is needed can't be read
}

type foundExec struct {
	id    string
	state *execState
}

// CheckRecord returns an error for a record that Adopt could not read. Records
// of other packages pass.
func CheckRecord(key string, value []byte) error {
	var r ledgerReader
	err := r.add(key, value)
	for _, f := range r.sessions {
		for _, e := range f.execs {
			if len(e.state.journal) > 0 {
				err = errors.Join(err, journal.CheckValue(e.state.journal))
			}
		}
	}
	return err
}

// reading puts the records of sessions together.
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

// add takes one record in. An error says that it can't be read.
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
		if f.screen, err = decodeScreenSnapshot(value); err != nil {
			f.screen = nil // it is shown from what is kept of its output
		}
	case execPrefix:
		var e *execState
		if e, err = decodeExecState(value); e.session == "" {
			break // nobody knows whose it was; see commandOf
		}
		f = r.session(e.session)
		if err == nil {
			f.execs = append(f.execs, foundExec{id, e})
		}
	case inputPrefix:
		in := &inputState{}
		if err = state.Decode(value, in.fields); in.session == "" {
			break
		}
		f = r.session(in.session)
		if err == nil {
			if f.inputs == nil {
				f.inputs = map[string]*inputState{}
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

// record is one record of the ledger.
type ledgerEntry struct {
	key    string
	before bool   // an earlier daemon could not read it, and it has the key of such
	value  []byte // nil: it is still to be read
}

// ledgerKey is where the ledger has it.
func (r ledgerEntry) ledgerKey() string {
	if r.before {
		return unreadablePrefix + r.key
	}
	return r.key
}

// read takes a record in. One that can't be read is told of and kept.
func (p *Pool) readEntry(to *ledgerReader, r ledgerEntry) {
	if r.value == nil {
		var ok bool
		if r.value, ok = p.cfg.Ledger.Get(r.ledgerKey()); !ok {
			return // it has been erased since
		}
	}
	err := to.add(r.key, r.value)
	switch {
	case err != nil:
		p.cfg.Log.Error("cannot read a record of an earlier daemon", "event", "unreadable", "record", r.key, "error", err)
		if !r.before {
			p.put(unreadablePrefix+r.key, r.value)
			p.erase(r.key)
		}
	case r.before:
		p.put(r.key, r.value)
		p.erase(unreadablePrefix + r.key)
	}
}

// find reads what the ledger has of living sessions. The records of others are
// only named: there may be many, and nobody waits for them.
func (p *Pool) readLedger() (live []*foundSession, others []ledgerEntry) {
	type some struct {
		ledgerEntry
		session string
	}
	var now []ledgerEntry
	var later []some // of living sessions or of others
	ended := map[string]bool{}
	err := p.cfg.Ledger.View(func(key string, value []byte) {
		name, before := strings.CutPrefix(key, unreadablePrefix)
		rec := ledgerEntry{key: name, before: before}
		kind, id, _ := strings.Cut(name, "/")
		switch kind + "/" {
		case endedPrefix:
			ended[id] = true
			others = append(others, rec)
		case screenPrefix:
			later = append(later, some{rec, id})
		case execPrefix, inputPrefix:
			later = append(later, some{rec, state.FirstText(value)})
		default:
			rec.value = slices.Clone(value)
			now = append(now, rec)
		}
	})
	if err != nil {
		p.cfg.Log.Error("cannot read the records of an earlier daemon", "event", "unreadable", "record", "", "error", err)
	}
	var r ledgerReader
	for _, rec := range now {
		p.readEntry(&r, rec)
	}
	unknown := p.readDamage(&r)
	if unknown {
		for id, tree := range p.host.FoundTrees() {
			if strings.HasPrefix(id, sessionIDPrefix) {
				f := r.session(id)
				f.tree = cmp.Or(f.tree, tree)
			}
		}
	}
	for id, f := range r.sessions {
		switch {
		case unknown && f.state == nil && f.bad == nil && !ended[id]:
			f.bad = errors.New("its record may be what is damaged in the ledger")
			f.state = &sessionState{tree: f.tree}
		case ended[id] || f.state == nil && f.bad == nil: // it ended, was just being made, or was forgotten
			p.erase(sessionPrefix + id)
			for _, key := range f.keys {
				p.erase(key)
			}
			delete(r.sessions, id)
		case f.state == nil:
			f.state = &sessionState{tree: f.tree}
		}
	}
	for _, k := range r.usedKeys {
		if k.session == "" || ended[k.session] || r.sessions[k.session] != nil {
			p.usedKeys.add(k)
		} else {
			p.erase(k.ledgerKey())
		}
	}
	for _, s := range later {
		if r.sessions[s.session] != nil {
			p.readEntry(&r, s.ledgerEntry)
		} else {
			others = append(others, s.ledgerEntry)
		}
	}
	return r.sorted(), others
}

// readDamage marks the sessions of which the ledger could not read a record, and
// reports whether there is something of which it is not known what it was.
func (p *Pool) readDamage(r *ledgerReader) (unknown bool) {
	for _, d := range p.cfg.Ledger.Damage() {
		kind, id, _ := strings.Cut(strings.TrimPrefix(d.Key, unreadablePrefix), "/")
		switch kind + "/" {
		case sessionPrefix, shellPrefix:
			r.session(id).bad = errors.New("a record of it is damaged in the ledger")
		case endedPrefix, treePrefix, screenPrefix, execPrefix, inputPrefix, usedKeyPrefix:
		default:
			unknown = true
		}
	}
	return unknown
}

// sorted returns the sessions in the order of their creation, each with its
// execs in theirs.
func (r *ledgerReader) sorted() []*foundSession {
	all := slices.Collect(maps.Values(r.sessions))
	for _, f := range all {
		slices.SortFunc(f.execs, func(a, b foundExec) int { return cmp.Compare(a.state.number, b.state.number) })
	}
	slices.SortFunc(all, func(a, b *foundSession) int { return cmp.Compare(a.state.number, b.state.number) })
	return all
}

// restore makes the sessions again that had ended.
func (p *Pool) restoreEnded(records []ledgerEntry) {
	var r ledgerReader
	for _, rec := range records {
		p.readEntry(&r, rec)
	}
	maps.DeleteFunc(r.sessions, func(_ string, f *foundSession) bool {
		if f.state == nil && f.bad == nil { // of one that was just being forgotten
			for _, key := range f.keys {
				p.erase(key)
			}
		}
		return f.state == nil
	})
	for _, f := range r.sorted() {
		p.rebuildSession(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(p.order, func(a, b *Session) int { return cmp.Compare(a.number, b.number) })
}
