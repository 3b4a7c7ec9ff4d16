package cell

import (
	"context"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// Adopt takes over the cells of an earlier daemon. Call it before the pool adopts
// its sessions, and before trees that were not adopted are killed.
func (c *Cells) Adopt() {
	for _, r := range c.records() {
		if err := c.adopt(r); err != nil {
			c.cfg.Log.Warn("cannot take over a confined session; it is lost", "event", "cell_lost", "cell", r.name,
				"session", r.session.Last.SessionID, "error", err)
		}
	}
}

func (c *Cells) adopt(r *record) error {
	cell := c.newCell(r.name)
	cell.record = *r
	cell.tree = c.cfg.Host.AdoptTree(treeName(r.name), r.tree)
	proc, err := cell.tree.AdoptProc(r.pid)
	fd := -1
	if err == nil {
		fd, err = c.cfg.Keeper.Take(r.way)
	}
	if err != nil || r.session.Last.SessionID == "" { // the last: it was just being created
		c.lose(cell)
		return err
	}
	cell.proc, cell.way = proc, os.NewFile(uintptr(fd), "way to a cell")
	cell.place = c.cfg.Places.AddCell(r.name, cell)
	if err := c.add(cell); err != nil {
		return err
	}
	if _, err := cell.limit(r.session.Last.Limits); err != nil {
		c.cfg.Log.Error("cannot enforce the limits of a session of an earlier daemon", "event", "limits_lost",
			"session", r.session.Last.SessionID, "error", err)
	}
	if err := c.adoptNetwork(cell); err != nil {
		c.cfg.Log.Error("a confined session has lost its network", "event", "proxy_failed", "cell", r.name, "error", err)
	}
	if r.ended {
		c.running.Go(cell.watchProcess)
		return nil
	}
	listed := c.cfg.Pool.AdoptRemote(r.session, cell)
	if listed == nil { // the earlier daemon died before it recorded that here
		cell.record.ended = true
		c.save(&cell.record)
	}
	c.begin(cell, listed)
	return nil
}

// lose kills what is left of a cell that can't be taken over.
func (c *Cells) lose(cell *cell) {
	cell.tree.Kill(time.Now().Add(killTimeout))
	cell.cancel()
	if last := cell.record.session.Last; last.SessionID != "" && !cell.record.ended {
		if listed := c.cfg.Pool.AdoptRemote(cell.record.session, cell); listed != nil {
			last.Terminated = &api.Terminated{At: api.Time{Time: time.Now()}, Reason: api.ReasonLost}
			listed.Ended(last)
		}
	}
	c.erase(cell.name)
	c.drop(cell.record)
}

func treeName(cell string) string { return "cell-" + cell }

func (c *Cells) newCell(name string) *cell {
	cell := &cell{cells: c, name: name, gone: make(chan struct{})}
	cell.ctx, cell.cancel = context.WithCancel(context.Background())
	return cell
}
