package exec

import (
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/process"
)

// SetMeter records the counters of the session before the command begins, and
// measures its peaks from then on.
func (e *Exec) SetMeter(before process.LimitCounters, peaks *process.Peaks) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before, e.peaks = before, peaks
}

// Denials are what the network of a cell has refused.
type Denials interface {
	// Count returns how many there were.
	Count() int64
	// Since returns those after the first so many. If there are more than most, they
	// are the first ones and the last; each says how many are left out before it.
	Since(first int64, most int) []api.NetworkDenial
}

// maxDenied is how many denials a result has: enough to know which hosts to allow.
const maxDenied = 8

// SetDenied records what had been refused before the command begins.
func (e *Exec) SetDenied(d Denials) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.denied = d.Count()
}

// AddDenied adds to the result what was refused since the command began.
func (e *Exec) AddDenied(d Denials) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.res.NetworkDenied = d.Since(e.denied, maxDenied)
}

// Reached is what a session with limits used while a command ran in it.
type Reached struct {
	Limits    []api.Limit // that were reached
	usage     api.Usage
	oomKilled bool
}

// Measured returns what was used since the command began. now are the counters of
// the session, zero if its processes have been killed; whole are the peaks of the
// session, for a command that an earlier process began.
func (e *Exec) Measured(now process.LimitCounters, whole *process.Peaks) *Reached {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &Reached{oomKilled: now.OOMKills > e.before.OOMKills}
	for _, c := range []struct {
		reached bool
		limit   api.Limit
	}{
		// The kernel also kills for lack of memory of the machine, which is no limit of
		// the session.
		{r.oomKilled && now.OOMs > e.before.OOMs, api.LimitMemory},
		{now.Throttled > e.before.Throttled, api.LimitCPU},
		{now.Forks > e.before.Forks, api.LimitPIDs},
	} {
		if c.reached {
			r.Limits = append(r.Limits, c.limit)
		}
	}
	r.usage.CPUMS = max(now.CPU-e.before.CPU, 0).Milliseconds()
	if e.peaks != nil {
		whole = e.peaks
	}
	r.usage.MemoryPeakBytes, r.usage.PIDsPeak = whole.Read()
	e.peaks = nil
	return r
}

// fill adds to a result what was reached; nothing for nil.
func (m *Reached) fill(r *api.ExecResult) {
	if m == nil {
		return
	}
	r.LimitHit = m.Limits
	if r.Usage == nil { // a direct command has its own processor time
		r.Usage = &api.Usage{CPUMS: m.usage.CPUMS}
	}
	r.Usage.MemoryPeakBytes, r.Usage.PIDsPeak = m.usage.MemoryPeakBytes, m.usage.PIDsPeak
	if m.oomKilled && r.Signal == process.SignalName(unix.SIGKILL) {
		r.Outcome = api.OutcomeOOMKilled
	}
}
