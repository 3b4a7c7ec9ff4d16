package profile

import (
	"slices"

	"github.com/terminal-runtime/trl/api"
)

// strictness has the profiles, each stricter than the one before it.
var strictness = []api.Profile{api.ProfileWorkspace, api.ProfileOffline, api.ProfileReadonly}

// Names returns the names of the profiles, each stricter than the one before it.
func Names() []string {
	names := make([]string, len(strictness))
	for i, p := range strictness {
		names[i] = string(p)
	}
	return names
}

// AtMost returns an isolation that lets a session do no more than the profile limit:
// the wanted one, with limit as its profile if it has none. Its other members then
// narrow that. The error is a *WideningError. wanted may be nil.
func AtMost(limit api.Profile, wanted *api.Isolation) (*api.Isolation, error) {
	var out api.Isolation
	if wanted != nil {
		out = *wanted
	}
	switch {
	case out.Add != nil:
		return nil, widens("add", "nothing can be added to the profile %s", limit)
	case out.Profile == "":
		out.Profile = limit
	case slices.Index(strictness, out.Profile) < slices.Index(strictness, limit):
		return nil, widens("profile", "%s is not as strict as %s", out.Profile, limit)
	}
	return &out, nil
}
