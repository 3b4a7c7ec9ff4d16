package daemon

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/shell"
)

// system implements the methods about the daemon itself.
type system struct {
	daemon *daemon
	start  time.Time
}

func newSystem(d *daemon) *system { return &system{daemon: d, start: time.Now()} }

func (s *system) uptime() int64 { return time.Since(s.start).Milliseconds() }

// Ping answers system.ping.
func (s *system) Ping(context.Context) *api.PingResult {
	return &api.PingResult{Version: s.daemon.opts.Version, Protocol: api.Protocol, UptimeMS: s.uptime()}
}

// SystemInfo answers system.info.
func (s *system) SystemInfo(context.Context) *api.SystemInfo {
	d := s.daemon
	support := d.host.Support()
	tracking := "cgroup"
	if support.Cgroup == "" {
		tracking = "tags"
	}
	config := d.cfg.Public()
	if d.opts.Stdio {
		delete(config, "socket") // there is none
	}
	return &api.SystemInfo{
		Version: d.opts.Version, Protocol: api.Protocol,
		OS: runtime.GOOS, Arch: runtime.GOARCH, PID: os.Getpid(),
		Config:   config,
		Runtimes: []string{api.RuntimeHost},
		Shells:   foundShells(),
		Process:  api.ProcessSupport{Tracking: tracking, Cgroup: support.Cgroup, Reason: support.Reason, Subreaper: true},
		Limits:   []string{},
		Isolates: []string{},
	}
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

// Stats answers system.stats. Values that cannot be read are 0.
func (s *system) Stats(context.Context) *api.SystemStats {
	d := s.daemon
	pool, store := d.pool.Stats(), d.store.Stats()
	return &api.SystemStats{
		UptimeMS:       s.uptime(),
		Sessions:       pool.SessionsByState,
		SessionsTotal:  pool.SessionsTotal,
		ExecsRunning:   pool.ExecsRunning,
		ExecsTotal:     pool.ExecsTotal,
		ExecsRetained:  pool.ExecsRetained,
		BytesCaptured:  store.CapturedBytes,
		JournalMemory:  store.MemoryBytes,
		JournalSpilled: store.SpilledBytes,
		Memory:         residentBytes(),
		FDs:            openFiles(),
		Goroutines:     runtime.NumGoroutine(),
		Orphans:        d.host.Orphans(),
	}
}

// Upgrade answers system.upgrade.
func (s *system) Upgrade(ctx context.Context) (*api.UpgradeResult, error) {
	version, err := s.daemon.upgrade(ctx)
	if err != nil {
		return nil, err
	}
	return &api.UpgradeResult{Version: version}, nil
}

func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries) - 1 // the directory itself was open
}
