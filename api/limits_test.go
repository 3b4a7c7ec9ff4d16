package api

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIsolationJSON: a word and an object are read alike, and what is written is
// read again.
func TestIsolationJSON(t *testing.T) {
	for text, want := range map[string]IsolationInForce{
		`"offline"`:                       {Isolation: Isolation{Profile: ProfileOffline}},
		`{ "profile":"offline"}`:          {Isolation: Isolation{Profile: ProfileOffline}},
		`{"network":"none"}`:              {Isolation: Isolation{Network: &Network{Mode: NetworkNone}}},
		`{"network":{"allow":["a:443"]}}`: {Isolation: Isolation{Network: &Network{Allow: []string{"a:443"}}}},
		`{"network":{"allow":[]}}`:        {Isolation: Isolation{Network: &Network{Allow: []string{}}}},
		`{"user":"x","later":1,"landlock_abi":4,"mechanisms":["mount"]}`: {
			Isolation: Isolation{User: "x"}, LandlockABI: 4, Mechanisms: []string{"mount"},
		},
	} {
		got := IsolationInForce{Isolation: Isolation{Seccomp: "old"}, LandlockABI: 9}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		written, err := json.Marshal(got)
		if err != nil {
			t.Fatal(text, err)
		}
		var again IsolationInForce
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatal(string(written), err)
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("%s as %s: %s", text, written, diff)
		}
	}
	for _, text := range []string{`7`, `[]`, `{"network":5}`, `{"profile":{}}`, `{"landlock_abi":"x"}`} {
		if err := json.Unmarshal([]byte(text), new(IsolationInForce)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func TestNamesOfLimits(t *testing.T) {
	none := (*Limits)(nil)
	for _, tt := range []struct {
		got  []string
		want []string
	}{
		{none.Names(), nil},
		{(&Limits{}).Names(), nil},
		{(&Limits{PIDs: 1, CPU: 0.5}).Names(), []string{"cpu", "pids"}},
		{(*Isolation)(nil).Names(), nil},
		{(&Isolation{NoNewPrivs: true, Network: &Network{}}).Names(), []string{"network", "no_new_privs"}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Error(diff)
		}
	}
}
