package place

import (
	"slices"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestContainerOptions(t *testing.T) {
	c := containerOf(api.Limits{MemoryBytes: 16 << 20, CPU: 0.123456789, PIDs: 10})
	options, err := c.options()
	want := []string{"--memory", "67108864", "--memory-swap", "67108864", "--cpus", "0.12346", "--pids-limit", "74"}
	if err != nil || !slices.Equal(options[2:], want) {
		t.Errorf("%q, %v; want %q", options, err, want)
	}
	only, err := containerOf(api.Limits{PIDs: 1}).options()
	if err != nil || !slices.Equal(only[2:], []string{"--pids-limit", "65"}) {
		t.Errorf("%q, %v", only, err)
	}
}

// TestNotesOfSinglePlaces reads notes with several places of one image: only one of
// them may be that of all other sessions.
func TestNotesOfSinglePlaces(t *testing.T) {
	shared := note{Name: "aa", Runtime: "docker-image:x"}
	single := note{Name: "bb", Runtime: "docker-image:x", Limits: &api.Limits{PIDs: 1}, Key: "k"}
	other := note{Name: "cc", Runtime: "docker-image:x", Limits: &api.Limits{PIDs: 2}}
	n := notes{places: []note{single, shared, other}}
	text, err := n.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseNotes(text)
	if err != nil || len(got.places) != 3 || got.places[0].Key != "k" || *got.places[2].Limits != *other.Limits {
		t.Errorf("%+v, %v", got, err)
	}
	n.places = append(n.places, note{Name: "dd", Runtime: "docker-image:x"})
	if text, err = n.encode(); err != nil {
		t.Fatal(err)
	}
	if _, err := parseNotes(text); err == nil {
		t.Error("two places for all sessions of an image were accepted")
	}
}
