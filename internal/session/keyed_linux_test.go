package session

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestKeyRunsOnce(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	dir := t.TempDir()
	var wg sync.WaitGroup
	ids := make(chan string, 20)
	for range 20 {
		wg.Go(func() {
			r, err := p.Run(context.Background(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo x >>" + dir + "/log; sleep 0.1", Key: "k", Wait: true}})
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.ExecID
		})
	}
	wg.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first {
			t.Errorf("two execs: %s and %s", first, id)
		}
	}
	b, err := os.ReadFile(dir + "/log")
	if err != nil || string(b) != "x\n" {
		t.Errorf("ran %q, %v", b, err)
	}
}

// TestKeyOfAForgottenExec: a retry that comes when the result is long forgotten
// runs nothing either.
func TestKeyOfAForgottenExec(t *testing.T) {
	p := newPool(t, Config{MaxExecs: 1})
	s := create(t, p, api.SessionCreateParams{})
	keyed := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "n=$((n+1)); echo $n", Key: "k"}}
	run(t, p, keyed)
	sh(t, p, s, "true")
	sh(t, p, s, "true")
	if _, err := p.Run(t.Context(), keyed); !api.IsCode(err, api.CodeExecNotFound) {
		t.Error(err)
	}
	if got := sh(t, p, s, "echo $n"); got.Stdout != "1\n" {
		t.Errorf("it ran %q times", got.Stdout)
	}
}

func TestInput(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	first := "first\n"
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat", Stdin: &first, StdinOpen: true}, YieldMS: 1})
	for _, in := range []api.ExecInputParams{{Data: "a\n"}, {Data: "Yg==", Encoding: api.Base64}, {EOF: true}} {
		in.ExecID = r.ExecID
		if _, err := p.Input(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool {
		i, _ := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID})
		return i.State == api.ExecExited
	})
	o, _ := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID})
	if len(o.Chunks) != 1 || o.Chunks[0].Data != "first\na\nb" {
		t.Errorf("got %+v", o.Chunks)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "x"}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("input after the end: %v", err)
	}
}

func TestSignal(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `sh -c 'trap "echo got; exit 5" USR1; echo ready; while :; do sleep 0.05; done'`}, YieldMS: 1})
	if _, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, WaitMS: 10_000}); err != nil {
		t.Fatal(err)
	}
	n, err := p.Signal(t.Context(), api.ExecSignalParams{ExecID: r.ExecID, Signal: "usr1"})
	if err != nil || n.Processes == 0 {
		t.Fatalf("%+v, %v", n, err)
	}
	waitFor(t, func() bool {
		i, _ := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID})
		return i.State == api.ExecExited
	})
	if i, _ := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID}); *i.ExitCode != 5 {
		t.Errorf("%+v", i)
	}
}
