package daemon

import (
	"context"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/shell"
)

// system implements the methods about the daemon itself.
type system struct {
	identity
	daemon *daemon
}

func newSystem(d *daemon) *system { return &system{identity: newIdentity(d.opts.Version), daemon: d} }

// SystemInfo answers system.info.
func (s *system) SystemInfo(context.Context) *api.SystemInfo {
	d := s.daemon
	support := d.host.Support()
	tracking := "cgroup"
	if support.Cgroup == "" {
		tracking = "tags"
	}
	info := s.describe(d.cfg, d.opts.Stdio)
	info.Runtimes, info.Shells = []string{api.RuntimeHost}, foundShells()
	info.Process = api.ProcessSupport{Tracking: tracking, Cgroup: support.Cgroup, Reason: support.Reason, Subreaper: true}
	info.Confinement = d.host.Abilities()
	info.Limits = session.LimitNames(info.Confinement)
	info.Boot = d.host.Name().String()
	if d.cells != nil {
		info.Confinement = append(info.Confinement, d.cells.Abilities()...)
		info.Isolates = d.cells.Isolations()
	}
	return info
}

// foundShells returns the supported shells that are installed now: one may be
// installed while the daemon runs.
func foundShells() []string {
	found := []string{}
	for _, name := range append([]string{"sh"}, shell.Names()...) {
		if program, ok := shell.Find(name); ok && program.Family != "" {
			found = append(found, name)
		}
	}
	return found
}

// Stats answers system.stats.
func (s *system) Stats(context.Context) *api.SystemStats {
	d := s.daemon
	pool, store := d.pool.Stats(), d.store.Stats()
	stats := s.measure()
	stats.Sessions = pool.SessionsByState
	stats.SessionsTotal = pool.SessionsTotal
	stats.ExecsRunning = pool.ExecsRunning
	stats.ExecsTotal = pool.ExecsTotal
	stats.ExecsRetained = pool.ExecsRetained
	stats.BytesCaptured = store.CapturedBytes
	stats.JournalMemory = store.MemoryBytes
	stats.JournalSpilled = store.SpilledBytes
	stats.Orphans = d.host.Orphans()
	return stats
}

// Upgrade answers system.upgrade.
func (s *system) Upgrade(ctx context.Context) (*api.UpgradeResult, error) {
	version, err := s.daemon.upgrade(ctx)
	if err != nil {
		return nil, err
	}
	return &api.UpgradeResult{Version: version}, nil
}
