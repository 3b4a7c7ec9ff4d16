package session

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestVisible(t *testing.T) {
	p := newPool(t, Config{})
	red := create(t, p, api.SessionCreateParams{Tags: []string{"x", "red"}})
	none := create(t, p, api.SessionCreateParams{})
	ofRed, ofNone := sh(t, p, red, "true").ExecID, sh(t, p, none, "true").ExecID
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: red.SessionID}); err != nil {
		t.Fatal(err) // an ended session keeps its tags
	}
	_, noSession := p.session("s-nothing000")
	_, _, noExec := p.exec("e-nothing000")
	for name, tc := range map[string]struct {
		tag, session, exec string
		want               error
	}{
		"its own":              {"red", red.SessionID, "", nil},
		"its own exec":         {"red", "", ofRed, nil},
		"both":                 {"red", red.SessionID, ofRed, nil},
		"neither":              {"red", "", "", nil},
		"another's":            {"blue", red.SessionID, "", noSession},
		"without tags":         {"red", none.SessionID, "", noSession},
		"another's exec":       {"blue", "", ofRed, noExec},
		"exec without tags":    {"red", "", ofNone, noExec},
		"one of each":          {"red", red.SessionID, ofNone, noExec},
		"no such session":      {"red", "s-nothing000", "", noSession},
		"no such exec":         {"red", "", "e-nothing000", noExec},
		"a part of the tag":    {"re", red.SessionID, "", noSession},
		"an id of the other's": {"red", ofRed, "", noSession},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.Visible(tc.tag, tc.session, tc.exec)
			if diff := cmp.Diff(errorText(tc.want), errorText(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// tally is an Observer that counts.
type tally struct {
	mu       sync.Mutex
	outcomes map[api.Outcome]int
	stopped  int
	sessions int
}

func (c *tally) ExecEnded(outcome api.Outcome, took time.Duration, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[outcome]++
	if stopped {
		c.stopped++
	}
	if took < 0 || took > time.Minute {
		c.outcomes["took "+api.Outcome(took.String())]++
	}
}

func (c *tally) SessionEnded(survivors int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions += 1 + 1000*survivors
}

func TestEndsAreObserved(t *testing.T) {
	observer := &tally{outcomes: map[api.Outcome]int{}}
	p := newPool(t, Config{Observer: observer})
	s := create(t, p, api.SessionCreateParams{})
	sh(t, p, s, "true")
	sh(t, p, s, "exit 3")
	run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 100", TimeoutMS: ms(50)}})
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	observer.mu.Lock()
	defer observer.mu.Unlock()
	want := map[api.Outcome]int{api.OutcomeExited: 1, api.OutcomeShellExited: 1, api.OutcomeTimedOut: 1}
	if diff := cmp.Diff(want, observer.outcomes); diff != "" || observer.stopped != 1 || observer.sessions != 1 {
		t.Errorf("%s; %d stopped, sessions %d", diff, observer.stopped, observer.sessions)
	}
}
