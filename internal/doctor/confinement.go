package doctor

import (
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// confinement reports what the daemon can enforce: limits, and the isolation of
// sessions. Nothing is a problem: what can't be enforced is refused.
func confinement(info *api.SystemInfo) []Finding {
	return []Finding{
		enforceable("limits", "limited", info.Limits, info.Confinement, isCgroup),
		enforceable("confinement", "confined", info.Isolates, info.Confinement, func(name string) bool { return !isCgroup(name) }),
	}
}

// isCgroup reports whether an ability is about limits of all processes of a session
// together.
func isCgroup(name string) bool { return strings.HasPrefix(name, "cgroup_") }

// enforceable reports the members that can be enforced, and why the rest can't, with
// the first thing to do about it.
func enforceable(check, done string, members []string, abilities []api.Ability, counts func(name string) bool) Finding {
	can := "no session can be " + done
	if len(members) > 0 {
		can = "enforced: " + strings.Join(members, ", ")
	}
	var missing, why []string
	run := ""
	for _, a := range abilities {
		if a.Available || !counts(a.Name) {
			continue
		}
		missing = append(missing, a.Name)
		if why = append(why, a.Reason); run == "" {
			run = a.Hint
		}
	}
	if len(missing) == 0 {
		return ok(check, "%s", can)
	}
	return note(check, run, "%s; not %s: %s", can, strings.Join(missing, ", "), why[0])
}
