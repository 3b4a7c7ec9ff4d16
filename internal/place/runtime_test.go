package place

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestParse(t *testing.T) {
	for runtime, want := range map[string][2]string{
		"cmd:box":                         {"cmd:box", ""},
		"cmd:a/b":                         {"cmd:a/b", ""},
		"cmd:a/cmd:b":                     {"cmd:a", "cmd:b"},
		"cmd:a/cmd:b/cmd:c":               {"cmd:a", "cmd:b/cmd:c"},
		"cmd:a/x:b":                       {"cmd:a/x:b", ""},
		"cmd:":                            {},
		"cmd:/cmd:b":                      {},
		"cmd:-v":                          {},
		"cmd:a b":                         {},
		"cmd:a\x1b":                       {},
		"cmd":                             {},
		"":                                {},
		"pigeon:home":                     {},
		"host":                            {},
		"cmd:" + strings.Repeat("x", 600): {},
	} {
		p, err := parse(runtime)
		if got := [2]string{p.first, p.rest}; got != want || (err == nil) != (want[0] != "") {
			t.Errorf("%q: %v, %v; want %v", runtime, got, err, want)
		}
		if err != nil && (!api.IsCode(err, api.CodeRuntimeNotFound) || api.AsError(err).Hint == "") {
			t.Errorf("%q: %v", runtime, err)
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		patterns, runtime string
		want              bool
	}{
		{"", "docker:web", true},
		{"docker:*", "docker:web", true},
		{"docker:*", "docker-image:web", false},
		{"docker:*", "ssh:build/docker:web", false},
		{"docker-image:*", "docker-image:ghcr.io/a/b:1", true},
		{"docker-image:ghcr.io/a/*", "docker-image:ghcr.io/ab/c", false},
		{"ssh:build", "ssh:build/docker:web", false},
		{"ssh:build docker:w?b", "docker:web", true},
	} {
		if got := allowed(strings.Fields(c.patterns), c.runtime); got != c.want {
			t.Errorf("%s of %q: %t", c.runtime, c.patterns, got)
		}
	}
	r := openRegistry(t, nil, func(cfg *Config) { cfg.Allowed = []string{"docker:*"} })
	if _, _, err := r.Get(t.Context(), "cmd:box"); !api.IsCode(err, api.CodeForbidden) {
		t.Errorf("got %v", err)
	}
}
