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
type found struct {
	id     string
	record *sessionRecord // nil: there is none, or none that can be read
	tree   uint32         // 0: not known
	shell  []byte
	screen *picture
	execs  []foundExec             // in their order
	inputs map[string]*inputRecord // by exec
	keys   []string                // of all its records, but for the session's own
	bad    error                   // why a record that is needed can't be read
}

type foundExec struct {
	id     string
	record *execRecord
}

// CheckRecord returns an error for a record that Adopt could not read. Records
// of other packages pass.
func CheckRecord(key string, value []byte) error {
	var r reading
	err := r.add(key, value)
	for _, f := range r.sessions {
		for _, e := range f.execs {
			if len(e.record.journal) > 0 {
				err = errors.Join(err, journal.CheckValue(e.record.journal))
			}
		}
	}
	return err
}

// reading puts the records of sessions together.
type reading struct {
	sessions map[string]*found
	spent    []spentKey
}

func (r *reading) of(id string) *found {
	if r.sessions[id] == nil {
		if r.sessions == nil {
			r.sessions = map[string]*found{}
		}
		r.sessions[id] = &found{id: id}
	}
	return r.sessions[id]
}

// add takes one record in. An error says that it can't be read.
func (r *reading) add(key string, value []byte) (err error) {
	kind, id, _ := strings.Cut(key, "/")
	f := &found{} // whose record it is
	switch kind + "/" {
	case sessionKey, endedKey:
		f = r.of(id)
		if f.record, err = decodeSession(value); err != nil {
			f.record = nil
		}
		if err != nil {
			f.bad = fmt.Errorf("its record: %w", err)
		}
		return err
	case treeKey:
		f = r.of(id)
		var tree treeRecord
		err = state.Decode(value, tree.fields)
		f.tree = tree.number
	case shellKey:
		f = r.of(id)
		f.shell = value
		if err = shell.CheckState(value); err != nil {
			f.bad = fmt.Errorf("the record of its shell: %w", err)
		}
	case screenKey:
		f = r.of(id)
		if f.screen, err = decodePicture(value); err != nil {
			f.screen = nil // it is shown from what is kept of its output
		}
	case execKey:
		var e *execRecord
		if e, err = decodeExec(value); e.session == "" {
			break // nobody knows whose it was; see commandOf
		}
		f = r.of(e.session)
		if err == nil {
			f.execs = append(f.execs, foundExec{id, e})
		}
	case inputKey:
		in := &inputRecord{}
		if err = state.Decode(value, in.fields); in.session == "" {
			break
		}
		f = r.of(in.session)
		if err == nil {
			if f.inputs == nil {
				f.inputs = map[string]*inputRecord{}
			}
			f.inputs[id] = in
		}
	case spentPrefix:
		session, used, _ := strings.Cut(id, "/")
		r.spent = append(r.spent, spentKey{session, used})
	}
	f.keys = append(f.keys, key)
	return err
}

// record is one record of the ledger.
type record struct {
	key    string
	before bool   // an earlier daemon could not read it, and it has the key of such
	value  []byte // nil: it is still to be read
}

// ledgerKey is where the ledger has it.
func (r record) ledgerKey() string {
	if r.before {
		return unreadableKey + r.key
	}
	return r.key
}

// read takes a record in. One that can't be read is told of and kept.
func (p *Pool) read(to *reading, r record) {
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
			p.put(unreadableKey+r.key, r.value)
			p.erase(r.key)
		}
	case r.before:
		p.put(r.key, r.value)
		p.erase(unreadableKey + r.key)
	}
}

// find reads what the ledger has of living sessions. The records of others are
// only named: there may be many, and nobody waits for them.
func (p *Pool) find() (live []*found, others []record) {
	type some struct {
		record
		session string
	}
	var now []record
	var later []some // of living sessions or of others
	ended := map[string]bool{}
	err := p.cfg.Ledger.View(func(key string, value []byte) {
		name, before := strings.CutPrefix(key, unreadableKey)
		rec := record{key: name, before: before}
		kind, id, _ := strings.Cut(name, "/")
		switch kind + "/" {
		case endedKey:
			ended[id] = true
			others = append(others, rec)
		case screenKey:
			later = append(later, some{rec, id})
		case execKey, inputKey:
			later = append(later, some{rec, state.FirstText(value)})
		default:
			rec.value = slices.Clone(value)
			now = append(now, rec)
		}
	})
	if err != nil {
		p.cfg.Log.Error("cannot read the records of an earlier daemon", "event", "unreadable", "record", "", "error", err)
	}
	var r reading
	for _, rec := range now {
		p.read(&r, rec)
	}
	unknown := p.readDamage(&r)
	if unknown {
		for id, tree := range p.host.FoundTrees() {
			if strings.HasPrefix(id, sessionID) {
				f := r.of(id)
				f.tree = cmp.Or(f.tree, tree)
			}
		}
	}
	for id, f := range r.sessions {
		switch {
		case unknown && f.record == nil && f.bad == nil && !ended[id]:
			f.bad = errors.New("its record may be what is damaged in the ledger")
			f.record = &sessionRecord{tree: f.tree}
		case ended[id] || f.record == nil && f.bad == nil: // it ended, was just being made, or was forgotten
			p.erase(sessionKey + id)
			for _, key := range f.keys {
				p.erase(key)
			}
			delete(r.sessions, id)
		case f.record == nil:
			f.record = &sessionRecord{tree: f.tree}
		}
	}
	for _, k := range r.spent {
		if k.session == "" || ended[k.session] || r.sessions[k.session] != nil {
			p.spent.add(k)
		} else {
			p.erase(k.ledgerKey())
		}
	}
	for _, s := range later {
		if r.sessions[s.session] != nil {
			p.read(&r, s.record)
		} else {
			others = append(others, s.record)
		}
	}
	return r.sorted(), others
}

// readDamage marks the sessions of which the ledger could not read a record, and
// reports whether there is something of which it is not known what it was.
func (p *Pool) readDamage(r *reading) (unknown bool) {
	for _, d := range p.cfg.Ledger.Damage() {
		kind, id, _ := strings.Cut(strings.TrimPrefix(d.Key, unreadableKey), "/")
		switch kind + "/" {
		case sessionKey, shellKey:
			r.of(id).bad = errors.New("a record of it is damaged in the ledger")
		case endedKey, treeKey, screenKey, execKey, inputKey, spentPrefix:
		default:
			unknown = true
		}
	}
	return unknown
}

// sorted returns the sessions in the order of their creation, each with its
// execs in theirs.
func (r *reading) sorted() []*found {
	all := slices.Collect(maps.Values(r.sessions))
	for _, f := range all {
		slices.SortFunc(f.execs, func(a, b foundExec) int { return cmp.Compare(a.record.number, b.record.number) })
	}
	slices.SortFunc(all, func(a, b *found) int { return cmp.Compare(a.record.number, b.record.number) })
	return all
}

// restore makes the sessions again that had ended.
func (p *Pool) restore(records []record) {
	var r reading
	for _, rec := range records {
		p.read(&r, rec)
	}
	maps.DeleteFunc(r.sessions, func(_ string, f *found) bool {
		if f.record == nil && f.bad == nil { // of one that was just being forgotten
			for _, key := range f.keys {
				p.erase(key)
			}
		}
		return f.record == nil
	})
	for _, f := range r.sorted() {
		p.rebuild(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(p.order, func(a, b *Session) int { return cmp.Compare(a.number, b.number) })
}
