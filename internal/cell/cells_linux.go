package cell

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/session"
)

// Config has what cells need of their daemon. All fields but Ledger are required.
type Config struct {
	Host    *process.Host
	Keeper  holder.Keeper
	Ledger  *ledger.Ledger // nil: cells end with this process
	Places  *place.Registry
	Pool    *session.Pool
	Dir     string   // a private directory for their sockets; made when needed
	Args    []string // settings of the TRL in a cell, as flags
	Env     []string // of the TRL in a cell
	Hide    []string // paths that no confined session may see, if they exist
	Guarded []string // sockets that refuse confined sessions themselves; they are hidden too where that is possible
	Grace   time.Duration
	// Actor returns who makes the request of a context.
	Actor func(context.Context) api.Actor
	Log   *slog.Logger
}

// Cells are the cells of a daemon. It is safe for concurrent use.
type Cells struct {
	cfg       Config
	abilities func() confine.Abilities
	null      *os.File
	running   sync.WaitGroup // goroutines of cells

	mu     sync.Mutex
	closed bool
	all    map[string]*cell // by name
}

// Open returns the cells of a daemon, without those of an earlier one. The caller
// must call Close.
func Open(cfg Config) (*Cells, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	c := &Cells{cfg: cfg, null: null, all: map[string]*cell{}}
	c.abilities = sync.OnceValue(func() confine.Abilities { return confine.Probe(context.Background(), c.start) })
	return c, nil
}

// Close ends all cells that are left: those whose sessions have ended. Call it after
// the pool was shut down.
func (c *Cells) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var ended sync.WaitGroup
	for _, cell := range c.list() {
		ended.Go(cell.discard)
	}
	ended.Wait()
	c.running.Wait()
	_ = c.null.Close()       // nothing was written
	_ = os.Remove(c.cfg.Dir) // empty, or was never made
}

// list returns the cells.
func (c *Cells) list() []*cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*cell, 0, len(c.all))
	for _, cell := range c.all {
		all = append(all, cell)
	}
	return all
}

// Forgotten ends the cell of a session that has ended and is no longer kept.
func (c *Cells) Forgotten(id string) {
	for _, cell := range c.list() {
		if cell.id() == id {
			c.running.Go(cell.forgotten)
		}
	}
}

// Slots returns the slots of the holder that cells use.
func (c *Cells) Slots() []holder.Slot {
	var slots []holder.Slot
	for _, cell := range c.list() {
		cell.mu.Lock()
		slots = append(slots, cell.record.slots()...)
		cell.mu.Unlock()
	}
	return slots
}

// Has reports whether a process is in a cell.
func (c *Cells) Has(pid int) bool {
	c.mu.Lock()
	trees := make(map[uint32]bool, len(c.all))
	for _, cell := range c.all {
		trees[cell.tree.Number()] = true
	}
	c.mu.Unlock()
	return len(trees) > 0 && c.cfg.Host.InTree(pid, func(tree uint32) bool { return trees[tree] })
}

// add makes a started cell known, unless the daemon is shutting down.
func (c *Cells) add(cell *cell) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return api.Errorf(api.CodeShuttingDown, "the daemon is shutting down")
	}
	c.all[cell.name] = cell
	return nil
}

func (c *Cells) remove(cell *cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, cell.name)
}

// begin starts what a cell does by itself, when its session exists.
func (c *Cells) begin(cell *cell, listed *session.Listed) {
	cell.mu.Lock()
	cell.listed = listed
	cell.mu.Unlock()
	c.running.Go(cell.mirror)
	c.running.Go(cell.watchProcess)
}

// probeTimeout bounds one child process of a probe.
const probeTimeout = 10 * time.Second

// start starts a process for confine.Probe, in a tree of its own that ends with it.
func (c *Cells) start(s confine.Start) error {
	tree, err := c.cfg.Host.NewTree("probe")
	if err != nil {
		return err
	}
	proc, err := tree.Start(c.spec(s))
	if err != nil {
		tree.Kill(time.Now().Add(killTimeout))
		return err
	}
	c.running.Go(func() {
		select {
		case <-proc.Done():
		case <-time.After(probeTimeout):
		}
		tree.Kill(time.Now().Add(killTimeout))
	})
	return nil
}

// spec returns how to start a launcher.
func (c *Cells) spec(s confine.Start) process.Spec {
	null := int(c.null.Fd())
	return process.Spec{
		Path: s.Path, Argv: s.Argv, Env: s.Env, Dir: "/", Files: [3]int{null, null, null},
		Inherit: s.Files, Cloneflags: s.Cloneflags, AmbientCaps: s.AmbientCaps, Waits: true,
	}
}
