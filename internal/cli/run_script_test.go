package cli

import (
	"strings"
	"testing"
)

// Only a shell whose commands come from stdin is disturbed by a reader of stdin.
func TestReadsScriptFromStdin(t *testing.T) {
	for argv, want := range map[string]bool{
		"bash":                        true,
		"-bash":                       true,
		"/bin/sh":                     true,
		"bash -x":                     true,
		"bash -eux":                   true,
		"bash --norc --noprofile":     true,
		"bash -s -- arg":              true,
		"bash -es arg":                true,
		"sh -":                        true,
		"bash -o pipefail":            true,
		"bash --rcfile file":          true,
		"dash -e":                     true,
		"bash script":                 false,
		"bash -x script":              false,
		"bash -o pipefail script":     false,
		"bash -c command":             false,
		"bash -lc command":            false,
		"bash -o pipefail -c command": false,
		"sh -- script":                false,
		"python3":                     false,
		"make":                        false,
		"ssh host":                    false,
	} {
		if got := readsScriptFromStdin(strings.Fields(argv)); got != want {
			t.Errorf("%s: %t", argv, got)
		}
	}
}
