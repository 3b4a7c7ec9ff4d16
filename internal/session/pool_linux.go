package session

import (
	"context"
	"slices"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
)

// NewPool returns an empty pool. It must be shut down and closed.
func NewPool(cfg Config, host *process.Host, driver *shell.Driver, store *journal.Store) *Pool {
	cfg.setDefaults()
	p := &Pool{
		shared:   newShared(cfg, host, driver, store),
		sessions: map[string]*Session{}, keys: map[usedKey]*Session{}, children: map[string][]*Session{},
		stop: make(chan struct{}),
	}
	p.registry = p
	p.execQuota.Store(int64(cfg.MaxExecs))
	p.spawn(p.housekeep)
	return p
}

// Stats are counts of a pool.
type Stats struct {
	SessionsByState           map[api.State]int
	SessionsTotal, ExecsTotal int64
	ExecsRunning              int
	ExecsRetained             int
}

// Stats returns the current counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	all := slices.Clone(p.order)
	p.mu.Unlock()
	st := Stats{
		SessionsByState: map[api.State]int{api.StateCreating: 0, api.StateIdle: 0, api.StateRunning: 0, api.StateTerminated: 0},
		SessionsTotal:   p.sessionsTotal.Load(),
		ExecsTotal:      p.execsTotal.Load(),
		ExecsRunning:    int(p.execsRunning.Load()),
		ExecsRetained:   p.execs.len(),
	}
	for _, s := range all {
		st.SessionsByState[s.currentState()]++
	}
	return st
}

// shutdownConcurrency is how many sessions are destroyed at once: each mostly waits
// for its processes, and one scan of /proc serves many.
const shutdownConcurrency = 256

// Shutdown refuses new work and destroys all sessions. Their processes have the
// usual grace until ctx is done; then they are killed. Shutdown returns when every
// process tree is verified empty. Output can be read until Close.
func (p *Pool) Shutdown(ctx context.Context) error {
	p.endAll(ctx, api.ReasonShutdown)
	p.work.Wait()
	p.events.close()
	return nil
}

// Lose refuses new work and ends every session at once. Call it when the holder has
// died: sessions can't continue without what it held. Output can be read until
// Close.
func (p *Pool) Lose() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.endAll(now, api.ReasonLost)
}

func (p *Pool) endAll(ctx context.Context, why string) {
	p.history.await()
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		close(p.stop)
	}
	all := slices.Clone(p.order)
	p.mu.Unlock()
	slots := make(chan struct{}, shutdownConcurrency)
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			select {
			case <-s.destroy(why, ctx.Err() != nil):
			case <-ctx.Done():
				<-s.destroy(why, true)
			}
		})
	}
	wg.Wait()
}

// Close drops all sessions and execs. It must be called after Shutdown, when the
// last caller has been answered.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ref := range p.execs.clear() {
		ref.exec.ReleaseOutput()
	}
	clear(p.sessions)
	p.order = nil
	p.execEnv.Close()
}
