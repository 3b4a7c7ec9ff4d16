package session

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/state"
)

// readEntry adds a record to the reader. One that can't be read is logged and kept.
func (p *Pool) readEntry(to *ledgerReader, r ledgerEntry) {
	if r.value == nil {
		var ok bool
		if r.value, ok = p.cfg.Ledger.Get(r.ledgerKey()); !ok {
			return // it was erased meanwhile
		}
	}
	err := to.add(r.key, r.value)
	switch {
	case err != nil:
		p.cfg.Log.Error("cannot read a record of an earlier daemon", "event", "unreadable", "record", r.key, "error", err)
		if !r.before {
			p.ledger.Put(unreadablePrefix+r.key, r.value)
			p.ledger.Erase(r.key)
		}
	case r.before:
		p.ledger.Put(r.key, r.value)
		p.ledger.Erase(unreadablePrefix + r.key)
	}
}

// readLedger reads the records of live sessions. Those of others are only listed:
// there may be many, and no client waits for them.
func (p *Pool) readLedger() (live []*foundSession, others []ledgerEntry) {
	type some struct {
		ledgerEntry
		session string
	}
	var now []ledgerEntry
	var later []some // of live sessions or others
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
		case exec.StatePrefix, exec.InputPrefix:
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
			f.bad = errors.New("its record may be among the damaged ones in the ledger")
			f.state = &sessionState{tree: f.tree}
		case ended[id] || f.state == nil && f.bad == nil: // it has ended, was just being created, or was forgotten
			p.ledger.Erase(sessionPrefix + id)
			for _, key := range f.keys {
				p.ledger.Erase(key)
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
			p.ledger.Erase(k.ledgerKey())
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

// readDamage marks the sessions that have a damaged record in the ledger, and
// reports whether there is damage whose key is unknown.
func (p *Pool) readDamage(r *ledgerReader) (unknown bool) {
	for _, d := range p.cfg.Ledger.Damage() {
		kind, id, _ := strings.Cut(strings.TrimPrefix(d.Key, unreadablePrefix), "/")
		switch kind + "/" {
		case sessionPrefix, shellPrefix:
			r.session(id).bad = errors.New("a record of it is damaged in the ledger")
		case endedPrefix, treePrefix, screenPrefix, exec.StatePrefix, exec.InputPrefix, usedKeyPrefix:
		default:
			unknown = true
		}
	}
	return unknown
}
