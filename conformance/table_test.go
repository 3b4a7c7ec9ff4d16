package conformance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dash", "ash", "bash", "zsh", "mksh"}, table.Shells()); diff != "" {
		t.Errorf("shells (-want +got):\n%s", diff)
	}
	for _, c := range table.Cases {
		// A case that expects nothing can't fail.
		if c.Expect.MaxMS == nil || c.Followup.Expect.Stdout == nil || len(c.Shells) == 0 || c.TimeoutMS <= 0 {
			t.Errorf("%s: no max_ms, no follow-up stdout, no shell or no timeout", c.Name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":                `{`,
		"a field without a check": `{"version":1,"cases":[{"name":"x","expect":{"stdout_starts_with":"a"}}]}`,
		"a version from later":    `{"version":2,"cases":[{"name":"x"}]}`,
		"no cases":                `{"version":1,"cases":[]}`,
		"the same name twice":     `{"version":1,"cases":[{"name":"x"},{"name":"x"}]}`,
		"a case without a name":   `{"version":1,"cases":[{"command":"x"}]}`,
		"a number where text is":  `{"version":1,"cases":[{"name":1}]}`,
	} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCaseWith(t *testing.T) {
	c := Case{
		Setup:            []string{"setup {{N}}"},
		Command:          "<{{N}}> && {{PAD}}",
		Repeat:           &Repeat{Token: "{{PAD}}", Text: "x", Count: 3},
		Expect:           Expect{Stdout: new("{{N}}\n")},
		Followup:         Step{Command: "f {{N}} {{N}}", Expect: Expect{StderrContains: new("{{N}}")}},
		FollowupDegraded: &Step{Command: "d {{N}}"},
		Late:             &Late{Stdout: "late {{N}}"},
	}
	got, err := c.With("0042")
	if err != nil {
		t.Fatal(err)
	}
	want := Case{
		Setup:            []string{"setup 0042"},
		Command:          "<0042> && xxx",
		Expect:           Expect{Stdout: new("0042\n")},
		Followup:         Step{Command: "f 0042 0042", Expect: Expect{StderrContains: new("0042")}},
		FollowupDegraded: &Step{Command: "d 0042"},
		Late:             &Late{Stdout: "late 0042"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// No case of the table is sent with a placeholder left in it.
func TestCaseWithFillsTheTable(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Cases {
		filled, err := c.With("1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(filled)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "{{") {
			t.Errorf("%s: a placeholder is left", c.Name)
		}
	}
}
