package cell

import (
	"errors"
	"maps"
	"slices"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/session"
)

// planLimits splits the limits: those of all processes together hold for the cell,
// with room for its TRL; those of each process and of time hold inside.
func (p *plan) planLimits(wanted *api.Limits) {
	if wanted == nil {
		return
	}
	inner := api.Limits{OpenFiles: wanted.OpenFiles, FileSizeBytes: wanted.FileSizeBytes, WallMS: wanted.WallMS}
	if inner != (api.Limits{}) {
		p.inner.Limits = &inner
	}
	p.spec.DiskBytes = wanted.DiskBytes
	outer := api.LimitsInForce{Limits: api.Limits{MemoryBytes: wanted.MemoryBytes, CPU: wanted.CPU, PIDs: wanted.PIDs, DiskBytes: wanted.DiskBytes}}
	if outer == (api.LimitsInForce{}) {
		return
	}
	if outer.MemoryBytes > 0 {
		outer.MemoryBytes += place.MemoryOfTRL
	}
	if outer.PIDs > 0 {
		outer.PIDsReserved = place.PIDsOfTRL
	}
	p.limits = &outer
}

// limit enforces the limits of a whole cell. It returns those in force, which the
// kernel may have rounded; nil for nil.
func (c *cell) limit(l *api.LimitsInForce) (*api.LimitsInForce, error) {
	if l == nil || l.MemoryBytes == 0 && l.CPU == 0 && l.PIDs == 0 {
		return l, nil
	}
	got, err := c.tree.SetLimits(process.Limits{MemoryBytes: l.MemoryBytes, CPU: l.CPU, PIDs: l.PIDs + l.PIDsReserved})
	if err != nil {
		return nil, err
	}
	force := *l
	force.MemoryBytes, force.CPU = got.MemoryBytes, got.CPU
	return &force, nil
}

// check returns LIMITS_UNAVAILABLE with everything that this machine can't enforce.
func (m machine) check(spec confine.Spec, limits *api.Limits) error {
	err := m.abilities.Check(spec)
	missing, ok := errors.AsType[*confine.Missing](err)
	if err != nil && !ok {
		return api.Errorf(api.CodeInvalidParams, "session.create: %w", err).With("field", "isolation")
	}
	if missing == nil {
		missing = &confine.Missing{Reasons: map[string]string{}, Hints: map[string]string{}}
	}
	for _, name := range limits.Names() {
		i := slices.IndexFunc(m.cgroups, func(a api.Ability) bool { return a.Name == session.AbilityOf(name) && !a.Available })
		if i < 0 {
			continue
		}
		a := m.cgroups[i]
		missing.Limits, missing.Abilities = append(missing.Limits, name), append(missing.Abilities, a.Name)
		missing.Reasons[a.Name], missing.Hints[a.Name] = a.Reason, a.Hint
	}
	if len(missing.Abilities) == 0 {
		return nil
	}
	hint := "system.info lists what can be enforced; leave the rest out to run without"
	for _, name := range slices.Sorted(maps.Keys(missing.Hints)) {
		if missing.Hints[name] != "" {
			hint = missing.Hints[name] + "; " + hint
			break
		}
	}
	e := api.Errorf(api.CodeLimitsUnavailable, "%w", missing).WithHint("%s", hint).
		With("missing", missing.Abilities).With("reasons", missing.Reasons)
	if len(missing.Limits) > 0 {
		e = e.With("limits", missing.Limits)
	}
	if len(missing.Isolation) > 0 {
		e = e.With("isolation", missing.Isolation)
	}
	return e
}
