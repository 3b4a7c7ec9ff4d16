package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
)

// TestLabels: a command is shown by the label of its caller, or by one that is made of
// its safe words, wherever it is shown.
func TestLabels(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	_, feed, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	first := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read hunter2", StdinOpen: true}, YieldMS: 1})
	got := map[string]string{"result": first.Label}
	info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	got["session.info"], got["its exec"] = info.ExecLabel, info.Exec.Label
	list, err := p.List(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) != 1 {
		t.Fatal(list, err)
	}
	got["session.list"] = list.Sessions[0].ExecLabel
	for where, label := range got {
		if label != "read …" {
			t.Errorf("%s: %q", where, label)
		}
	}

	for _, c := range []api.ExecCommand{{Command: "echo hunter2", Label: "mine"}, {Command: "cat /dev/null"}} {
		c.SessionID, c.Wait = s.SessionID, true
		if _, _, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: c}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: first.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "(true)", Wait: true}})
	want := []string{"read …", "mine", "cat /dev/null", ""}
	execs, err := p.ExecList(t.Context(), api.SessionParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, e := range execs.Execs {
		labels = append(labels, e.Label)
	}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Error("exec.list:", diff)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	var events []string
	if err := feed(t.Context(), func(n notify.Notification) error {
		switch e := n.(*api.SessionEvent); {
		case e.State == api.StateRunning:
			events = append(events, e.ExecLabel)
		case e.ExecLabel != "":
			t.Errorf("%s %s has the label %q", e.Type, e.State, e.ExecLabel)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error("events:", diff)
	}
}

func TestLabelOfDirectSession(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Argv: []string{"cat", "-", "hunter2"}})
	if s.ExecLabel != "cat …" {
		t.Errorf("running: %q", s.ExecLabel)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: s.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		info, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && info.State == api.StateTerminated && info.ExecLabel == "cat …"
	})
}

func TestLabelsOff(t *testing.T) {
	p := newPool(t, Config{NoLabels: true})
	s := create(t, p, api.SessionCreateParams{})
	if r := sh(t, p, s, "true"); r.Label != "" {
		t.Errorf("a label was made: %q", r.Label)
	}
	if r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Label: "mine"}}); r.Label != "mine" {
		t.Errorf("a given label is %q", r.Label)
	}
	if d := create(t, p, api.SessionCreateParams{Argv: []string{"sleep", "100"}}); d.ExecLabel != "" {
		t.Errorf("a label was made: %q", d.ExecLabel)
	}
}
