package cell

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/state"
)

// recordPrefix and the name of a cell are the ledger key of its record.
const recordPrefix = "cell/"

// record is a cell as the ledger has it.
type record struct {
	name    string
	tree    uint32      // the number of its process tree
	pid     int         // of its TRL's holder, the first process of the tree
	way     holder.Slot // to its socket
	proxy   holder.Slot // the listener of its proxy; 0: it has none
	denials holder.Slot // the log of what its proxy refuses; 0: it has none
	session session.RemoteState
	ended   bool // the session has ended, and the cell keeps its output
}

// slots returns the slots of the holder that the cell uses.
func (r *record) slots() []holder.Slot {
	return slices.DeleteFunc([]holder.Slot{r.way, r.proxy, r.denials}, func(s holder.Slot) bool { return s == 0 })
}

func (r *record) fields(c *state.Coder) {
	state.Text(c, 1, &r.name)
	state.Int(c, 2, &r.tree)
	state.Int(c, 3, &r.pid)
	state.Int(c, 4, &r.way)
	state.Int(c, 5, &r.session.Number)
	state.Text(c, 6, &r.session.Owner)
	state.Text(c, 7, &r.session.Key)
	state.Int(c, 8, &r.session.Sum)
	last := encodeSession(c, &r.session.Last)
	state.Bytes(c, 9, &last)
	if c.Reading() && len(last) > 0 {
		if err := json.Unmarshal(last, &r.session.Last); err != nil {
			c.Fail(fmt.Errorf("the session of a cell: %w", err))
		}
	}
	state.Bool(c, 10, &r.ended)
	state.Int(c, 11, &r.proxy)
	state.Int(c, 12, &r.denials)
}

// encodeSession returns a session as JSON, which keeps what other versions add to
// it; nil for a reader, and for a session that does not exist yet.
func encodeSession(c *state.Coder, s *api.Session) []byte {
	if c.Reading() || s.SessionID == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil // it consists of plain data: it always encodes
	}
	return text
}

// save writes the record, if there is a ledger.
func (c *Cells) save(r *record) {
	if c.cfg.Ledger == nil {
		return
	}
	if err := c.cfg.Ledger.Put(recordPrefix+r.name, state.Encode(r.fields)); err != nil {
		c.cfg.Log.Error("cannot persist a cell; it will not survive this daemon", "event", "not_noted", "cell", r.name, "error", err)
	}
}

func (c *Cells) erase(name string) {
	if c.cfg.Ledger != nil {
		_ = c.cfg.Ledger.Delete(recordPrefix + name) // save has logged such errors
	}
}

// records returns the records of an earlier daemon.
func (c *Cells) records() (found []*record) {
	if c.cfg.Ledger == nil {
		return nil
	}
	for key, value := range c.cfg.Ledger.All(recordPrefix) {
		r := &record{}
		if err := state.Decode(value, r.fields); err != nil || recordPrefix+r.name != key {
			// Its tree is not adopted, and so killed.
			c.cfg.Log.Error("cannot read the record of a cell", "event", "unreadable", "record", key, "error", err)
			c.erase(strings.TrimPrefix(key, recordPrefix))
			continue
		}
		found = append(found, r)
	}
	return found
}

// drop releases the slots of a cell that is gone.
func (c *Cells) drop(r record) {
	for _, slot := range r.slots() {
		c.cfg.Keeper.Drop(slot)
	}
}
