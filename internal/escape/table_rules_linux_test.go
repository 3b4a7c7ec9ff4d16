package escape

import (
	"slices"
	"testing"
)

// TestTable checks the tables themselves.
func TestTable(t *testing.T) {
	const least = 150 // the table does not shrink
	if n := len(escapes()); n < least {
		t.Errorf("the table has %d attempts, want at least %d", n, least)
	}
	fields := append([]string{byListed, byLandlock, byLoopback, byProxy, byDisk, byPids, byMemory}, full...)
	seen := map[string]bool{}
	for _, a := range slices.Concat(escapes(), permitted()) {
		if seen[a.name] {
			t.Errorf("two attempts are called %s", a.name)
		}
		seen[a.name] = true
		if a.group == "" || a.try == nil || len(a.who) == 0 {
			t.Errorf("%s is not complete", a.name)
		}
		for _, field := range slices.Concat(a.alone, a.with) {
			if !slices.Contains(fields, field) {
				t.Errorf("%s names the field %s, which does not exist", a.name, field)
			}
		}
		if len(a.alone) == 0 && len(a.with) == 0 && a.group != "permitted" {
			t.Errorf("%s does not say which field stops it", a.name)
		}
	}
}
