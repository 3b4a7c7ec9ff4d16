package cell

import (
	"slices"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
)

// Abilities returns what this machine can do to confine sessions, and why it can't do
// the rest. The first call tries everything once.
func (c *Cells) Abilities() []api.Ability {
	found := c.abilities().List
	all := make([]api.Ability, len(found))
	for i, a := range found {
		all[i] = api.Ability(a)
	}
	return all
}

// Isolations returns the members of isolation that can be enforced here.
func (c *Cells) Isolations() []string {
	can := []string{}
	for member, spec := range map[string]confine.Spec{
		"filesystem":   {Files: &confine.Files{}},
		"network":      {Network: confine.NetworkNone},
		"processes":    {Processes: true},
		"user":         {User: &confine.User{UID: anotherUser, GID: anotherUser}},
		"no_new_privs": {NoNewPrivs: true},
		"seccomp":      {Seccomp: true},
	} {
		spec.Args = []string{"trl"}
		if c.abilities().Check(spec) == nil {
			can = append(can, member)
		}
	}
	slices.Sort(can)
	return can
}

// anotherUser is a user that no daemon runs as.
const anotherUser = 65534
