package session

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/process"
)

// The processes that a session may have besides those of its commands. They count
// towards the kernel's limit, so it is higher than the limit that a caller asks for.
const (
	// pidsOfShell is enough for the shell, its standby, its exit copy, and copies
	// that take over from each other at the same time.
	pidsOfShell = 8
	// pidsOfLeader is enough for the threads of a terminal's leader: 5 were seen.
	pidsOfLeader = 8
)

// limitAbilities are the abilities that limits need. What is not listed needs none,
// or more than a session without isolation has.
var limitAbilities = map[string]string{"memory_bytes": "cgroup_memory", "cpu": "cgroup_cpu", "pids": "cgroup_pids"}

// AbilityOf returns the ability that a limit needs, by its name in api.Limits; "" if
// it needs none.
func AbilityOf(limit string) string { return limitAbilities[limit] }

// abilityOfCell is what limits need that only a session with isolation has.
const abilityOfCell = "private_directories"

// LimitNames returns the limits that sessions can have on a host with these
// abilities: the members of api.Limits that can be enforced exactly.
func LimitNames(abilities []api.Ability) []string {
	every := (&api.Limits{MemoryBytes: 1, CPU: 1, PIDs: 1, OpenFiles: 1, FileSizeBytes: 1, WallMS: 1}).Names()
	missing := missingAbilities(abilities)
	return slices.DeleteFunc(every, func(name string) bool { return missing[limitAbilities[name]] != nil })
}

// missingAbilities returns those that are not available, by name.
func missingAbilities(all []api.Ability) map[string]*api.Ability {
	missing := map[string]*api.Ability{}
	for i, a := range all {
		if !a.Available {
			missing[a.Name] = &all[i]
		}
	}
	return missing
}

// checkLimits returns an error if one of the limits can't be enforced exactly. Then
// none is, and nothing is started.
func (h *shared) checkLimits(limits *api.Limits) error {
	names := h.ownLimits(limits).Names()
	if len(names) == 0 {
		return nil
	}
	missing := missingAbilities(h.host.Abilities())
	missing[abilityOfCell] = &api.Ability{
		Reason: "only a session with isolation has directories of its own",
		Hint:   "leave disk_bytes out, or add isolation with private_tmp",
	}
	var refused, lacks []string
	reasons := map[string]string{}
	hint := ""
	for _, name := range names {
		ability := limitAbilities[name]
		if name == "disk_bytes" {
			ability = abilityOfCell
		}
		if a := missing[ability]; a != nil {
			refused, lacks = append(refused, name), append(lacks, ability)
			reasons[ability], hint = a.Reason, a.Hint
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return errLimits(refused).With("missing", lacks).With("reasons", reasons).
		WithHint("%s; system.info lists the limits that can be enforced; leave the others out to run without", hint)
}

// ownLimits returns the limits that this process has to enforce: those that were
// asked for, without those that its container enforces.
func (h *shared) ownLimits(asked *api.Limits) *api.Limits {
	if asked == nil {
		return nil
	}
	own, outer := *asked, h.cfg.Enforced
	if own.MemoryBytes == outer.MemoryBytes {
		own.MemoryBytes = 0
	}
	if own.CPU == outer.CPU {
		own.CPU = 0
	}
	if own.PIDs == outer.PIDs {
		own.PIDs = 0
	}
	return &own
}

// errLimits returns the error for limits that can't be enforced.
func errLimits(names []string) *api.Error {
	return api.Errorf(api.CodeLimitsUnavailable, "this daemon cannot enforce the requested limits").With("limits", names)
}

// setLimits enforces the limits that were asked for. After an error the session must
// not start.
func (s *Session) setLimits() error {
	asked := s.shared.ownLimits(s.params.Limits)
	if len(asked.Names()) == 0 {
		return nil
	}
	l := &api.LimitsInForce{Limits: *asked}
	if l.PIDs > 0 {
		l.PIDsReserved = pidsOfShell
		if s.params.TTY != nil {
			l.PIDsReserved += pidsOfLeader
		}
	}
	got, err := s.tree.SetLimits(treeLimits(l))
	if err != nil {
		return errLimits(asked.Names()).With("reasons", map[string]string{"cgroup": err.Error()}).
			WithHint("the cgroups of the daemon have changed since it started: restart it, or leave limits out to run without")
	}
	l.MemoryBytes, l.CPU, l.OpenFiles, l.FileSizeBytes = got.MemoryBytes, got.CPU, got.OpenFiles, got.FileSizeBytes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
	if l.WallMS > 0 {
		s.wallEnd = process.SinceBoot() - time.Since(s.created) + time.Duration(l.WallMS)*time.Millisecond
	}
	return nil
}

// treeLimits returns the limits that the process tree of a session enforces.
func treeLimits(l *api.LimitsInForce) process.Limits {
	return process.Limits{
		MemoryBytes: l.MemoryBytes, CPU: l.CPU, PIDs: l.PIDs + l.PIDsReserved,
		OpenFiles: l.OpenFiles, FileSizeBytes: l.FileSizeBytes,
	}
}

// adoptLimits enforces the limits of a session of an earlier daemon. Its cgroup has
// kept them; shells that are started from now on need them too.
func (s *Session) adoptLimits() {
	if s.limits == nil {
		return
	}
	if _, err := s.tree.SetLimits(treeLimits(s.limits)); err != nil {
		s.shared.cfg.Log.Error("cannot enforce the limits of a session of an earlier daemon; nothing more is started in it",
			"event", "limits_lost", "session", s.id, "error", err)
	}
}

// metered reports whether the session or its cell has limits that commands may reach.
func (s *Session) metered() bool { return s.limits != nil || s.shared.host.Metered() }

// begin marks a command as running, and persists that.
func (s *Session) begin(e *exec.Exec, now time.Time) {
	if s.metered() {
		e.SetMeter(s.tree.Counters(), s.tree.PeaksFromNow())
	}
	if d := s.shared.cfg.Denials; d != nil {
		e.SetDenied(d)
	}
	e.Begin(now)
	e.Persist()
}

// reached returns what a command has used, and which limits of the session were
// reached while it ran; nil if the session has none. It adds what the network
// refused to its result.
func (s *Session) reached(e *exec.Exec, signal unix.Signal) *exec.Reached {
	if d := s.shared.cfg.Denials; d != nil {
		e.AddDenied(d)
	}
	if !s.metered() {
		return nil
	}
	holdErr := s.tree.HoldCPU()
	r := e.Measured(s.tree.Counters(), s.tree.Peaks())
	if s.limits != nil && s.limits.FileSizeBytes > 0 && signal == unix.SIGXFSZ {
		r.Limits = append(r.Limits, api.LimitFileSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if holdErr != nil && !s.ending {
		s.shared.cfg.Log.Error("cannot limit processor time again", "event", "limits_lost", "session", s.id, "error", holdErr)
	}
	if s.ending && s.endReason == api.ReasonWall {
		r.Limits = append(r.Limits, api.LimitWall)
	}
	return r
}

// explainLimit adds to the error of a session that could not be started which limit
// was the reason, if that is known.
func (s *Session) explainLimit(err *api.Error) *api.Error {
	if !s.metered() {
		return err
	}
	switch c := s.tree.Counters(); {
	case c.OOMKills > 0:
		return err.With("limits", []string{"memory_bytes"}).WithHint("raise limits.memory_bytes: the shell did not fit")
	case c.Forks > 0:
		return err.With("limits", []string{"pids"}).WithHint("raise limits.pids: the shell could not start its copies")
	}
	return err
}
