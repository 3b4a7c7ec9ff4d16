package daemon

import "testing"

func TestUnitOf(t *testing.T) {
	for text, want := range map[string]struct {
		name   string
		ofUser bool
	}{
		"0::/system.slice/trl.service\n":                                                      {"trl.service", false},
		"0::/system.slice/trl.service/trl-1-2/holder\n":                                       {"trl.service", false},
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/trl.service\n":            {"trl.service", true},
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n":      {"", false},
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                    {"", false},
		"12:pids:/system.slice/trl.service\n1:name=systemd:/system.slice/trl.service\n0::/\n": {"trl.service", false},
		"0::/\n": {"", false},
		"":       {"", false},
	} {
		if name, ofUser := unitOf(text); name != want.name || name != "" && ofUser != want.ofUser {
			t.Errorf("%q: %q %t, want %q %t", text, name, ofUser, want.name, want.ofUser)
		}
	}
}
