package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/terminal-runtime/trl/api"
)

// checkpoint is everything that a fold knows, besides its Config. Its JSON form is
// read by this version of the fold only.
type checkpoint struct {
	Version int
	Agent   api.Agent

	Run      int
	Offset   int64
	Settled  int64
	Record   int64
	Part     int
	Now      *api.Time  `json:",omitempty"`
	Started  bool       `json:",omitempty"`
	LineAt   int64      `json:",omitempty"`
	Buf      []byte     `json:",omitempty"`
	Long     *condenser `json:",omitempty"`
	Skipping bool       `json:",omitempty"`

	Start      Start
	Seed       string
	Alive      bool
	Ready      bool
	Failed     string     `json:",omitempty"`
	Busy       bool       `json:",omitempty"`
	Stderr     []byte     `json:",omitempty"`
	NativeID   string     `json:",omitempty"`
	Model      string     `json:",omitempty"`
	Mode       string     `json:",omitempty"`
	Out        []outLine  `json:",omitempty"`
	Pending    []*message `json:",omitempty"`
	Turn       string     `json:",omitempty"`
	Turns      int
	InTurn     []string `json:",omitempty"`
	Retrying   string   `json:",omitempty"`
	Stalled    string   `json:",omitempty"`
	GarbageID  string   `json:",omitempty"`
	Garbages   int
	Unknowns   int
	Faults     int
	Background int
	Spent      api.DialogueUsage
	Used       api.DialogueUsage
	Ended      bool   `json:",omitempty"`
	LastCode   string `json:",omitempty"`

	Waiting []waitingLine `json:",omitempty"`
	Seen    []byte        `json:",omitempty"` // 16 bytes each, oldest first
	Counted counters

	Entities []savedEntity // in the order of their last change
	Seqs     int
	Asking   []string `json:",omitempty"`

	Adapter json.RawMessage
}

type savedEntity struct {
	E        api.DialogueEntity
	Changed  string
	Seq      int
	Keep     bool   `json:",omitempty"`
	Detached bool   `json:",omitempty"`
	Field    string `json:",omitempty"` // the text that grows
	Whole    int64  `json:",omitempty"`
	Under    string `json:",omitempty"` // what it is open under
}

// Checkpoint returns everything that Restore needs. Call it between inputs, after
// Changes.
func (f *Fold) Checkpoint() []byte {
	c := checkpoint{
		Version: Version, Agent: f.cfg.Agent,
		Run: f.run, Offset: f.offset, Settled: f.settled, Record: f.record, Part: f.part, Now: f.time(),
		Started: f.started, LineAt: f.lineAt, Buf: f.buf, Long: f.long, Skipping: f.skipping,
		Start: f.start, Seed: f.seed, Alive: f.alive, Ready: f.isReady, Failed: f.failed, Busy: f.busy, Stderr: f.stderr,
		NativeID: f.nativeID, Model: f.model, Mode: f.mode, Out: f.out, Pending: f.pending, Turn: f.turnID(), Turns: f.turns, InTurn: f.inTurn,
		Retrying: f.retrying, Stalled: f.stalled, GarbageID: f.garbageID, Garbages: f.garbages, Unknowns: f.unknowns, Faults: f.faults,
		Background: f.background, Spent: f.spent, Used: f.used, Ended: f.ended, LastCode: f.lastCode,
		Waiting: f.waiting, Counted: f.counters, Seqs: f.seqs, Asking: f.asking,
	}
	for i := range f.seen.ring {
		c.Seen = append(c.Seen, f.seen.ring[(f.seen.next+i)%len(f.seen.ring)][:]...)
	}
	c.Entities = make([]savedEntity, 0, len(f.entities))
	for x := f.oldest; x != nil; x = x.newerLink {
		s := savedEntity{E: x.entity(), Changed: x.changed.String(), Seq: x.seq, Keep: x.keep, Detached: x.detached, Field: x.field, Whole: x.whole}
		if x.parent != nil && x.parent != &f.root {
			s.Under = x.parent.e.ID
		}
		c.Entities = append(c.Entities, s)
	}
	var err error
	if f.agent != nil {
		if c.Adapter, err = encode(f.agent); err != nil {
			return nil
		}
	}
	b, err := encode(c)
	if err != nil {
		return nil // the text of an entity was no JSON: folded again from the start
	}
	return b
}

var errCheckpoint = errors.New("fold: not a checkpoint of this version")

// Restore returns a fold as it was when Checkpoint was called.
func Restore(cfg Config, data []byte) (*Fold, error) {
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", errCheckpoint, err)
	}
	if c.Version != Version || c.Agent != cfg.Agent {
		return nil, errCheckpoint
	}
	f := New(cfg)
	if f.agent == nil {
		return nil, fmt.Errorf("no adapter for the agent %q", cfg.Agent)
	}
	if err := json.Unmarshal(c.Adapter, f.agent); err != nil {
		return nil, fmt.Errorf("%w: %w", errCheckpoint, err)
	}
	f.run, f.offset, f.settled, f.record, f.part = c.Run, c.Offset, c.Settled, c.Record, c.Part
	if c.Now != nil {
		f.now = *c.Now
	}
	f.started, f.lineAt, f.buf, f.long, f.skipping = c.Started, c.LineAt, c.Buf, c.Long, c.Skipping
	f.start, f.seed, f.alive, f.isReady, f.failed, f.busy, f.stderr = c.Start, c.Seed, c.Alive, c.Ready, c.Failed, c.Busy, c.Stderr
	f.nativeID, f.model, f.mode, f.out, f.pending, f.turns, f.inTurn = c.NativeID, c.Model, c.Mode, c.Out, c.Pending, c.Turns, c.InTurn
	f.retrying, f.stalled, f.garbageID, f.garbages, f.unknowns, f.faults = c.Retrying, c.Stalled, c.GarbageID, c.Garbages, c.Unknowns, c.Faults
	f.background, f.spent, f.used, f.ended, f.lastCode = c.Background, c.Spent, c.Used, c.Ended, c.LastCode
	f.waiting, f.counters, f.seqs, f.asking = c.Waiting, c.Counted, c.Seqs, c.Asking
	for _, w := range f.waiting {
		f.waitSize += len(w.Data)
	}
	for b := c.Seen; len(b) >= 16; b = b[16:] {
		f.seen.add([16]byte(b))
	}
	if err := f.restoreEntities(c.Entities); err != nil {
		return nil, err
	}
	if c.Turn != "" {
		if f.turn = f.entities[c.Turn]; f.turn == nil {
			return nil, errCheckpoint
		}
	}
	return f, nil
}

func (f *Fold) restoreEntities(saved []savedEntity) error {
	all := make([]*entity, len(saved))
	under := map[*entity]string{}
	for i, s := range saved {
		x := &entity{e: s.E, seq: s.Seq, keep: s.Keep, detached: s.Detached, field: s.Field, whole: s.Whole}
		var err error
		if x.changed, err = ParsePosition(s.Changed); err != nil {
			return fmt.Errorf("%w: %w", errCheckpoint, err)
		}
		switch s.Field {
		case "text":
			x.text = []byte(s.E.Text)
		case "output":
			x.text = []byte(s.E.Output)
		}
		x.open = openness(&x.e)
		x.size = sizeOf(x)
		f.memory += x.size
		f.entities[x.e.ID] = x
		f.touch(x)
		all[i], under[x] = x, s.Under
	}
	slices.SortFunc(all, func(a, b *entity) int { return a.seq - b.seq })
	for _, x := range all {
		if !x.open || x.e.Type == api.EntityTurn {
			continue
		}
		parent := &f.root
		if id := under[x]; id != "" {
			if parent = f.entities[id]; parent == nil || !parent.open {
				return errCheckpoint
			}
		}
		f.hang(x, parent)
	}
	return nil
}
