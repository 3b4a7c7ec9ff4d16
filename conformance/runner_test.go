package conformance

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fake is a minimal TRL that answers from a table.
type fake struct {
	socket string

	mu      sync.Mutex
	answers map[string]any // by method, or for exec.run by command; a string is a raw line
	methods []string       // in order of arrival
	created map[string]any // the params of session.create
}

func newFake(t *testing.T, answers map[string]any) *fake {
	t.Helper()
	// Short: a socket's path is limited to about a hundred bytes.
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{socket: filepath.Join(dir, "s"), answers: map[string]any{
		"session.create":  map[string]any{"session_id": "s-1"},
		"session.destroy": map[string]any{"session_id": "s-1", "state": "terminated", "survivors": []any{}},
	}}
	for name, answer := range answers {
		f.answers[name] = answer
	}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wg.Wait()
		os.RemoveAll(dir)
	})
	return f
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var request struct {
			ID     int            `json:"id"`
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
		}
		if err := json.Unmarshal(line, &request); err != nil {
			return
		}
		name := request.Method
		if name == "exec.run" {
			name, _ = request.Params["command"].(string)
		}
		f.mu.Lock()
		f.methods = append(f.methods, request.Method)
		if request.Method == "session.create" {
			f.created = request.Params
		}
		answer, known := f.answers[name]
		f.mu.Unlock()

		// Other messages come first, as they may from a TRL.
		conn.Write([]byte(`{"jsonrpc":"2.0","method":"session.event","params":{}}` + "\n" + `{"jsonrpc":"2.0","id":-7,"result":{}}` + "\n"))
		if raw, ok := answer.(string); ok {
			if raw == "" {
				return // hang up
			}
			conn.Write([]byte(raw + "\n"))
			continue
		}
		reply := map[string]any{"jsonrpc": "2.0", "id": request.ID}
		if known {
			reply["result"] = answer
		} else {
			reply["error"] = map[string]any{"code": -32603, "message": "the fake has no answer for " + name}
		}
		text, err := json.Marshal(reply)
		if err != nil {
			return
		}
		conn.Write(append(text, '\n'))
	}
}

// exited returns an exec.run answer.
func exited(code int, stdout string) map[string]any {
	return map[string]any{
		"exec_id": "e-1", "state": "exited", "outcome": "exited", "exit_code": code,
		"stdout": stdout, "stdout_bytes": len(stdout), "stderr": "", "timed_out": false,
	}
}

// sample returns a case with every field set.
func sample() Case {
	return Case{
		Name:             "sample",
		Setup:            []string{"setup"},
		Command:          "main {{N}}",
		TimeoutMS:        1000,
		Expect:           Expect{ExitCode: new(0), Stdout: new("main 42\n")},
		Followup:         Step{Command: "followup", Expect: Expect{Stdout: new("kept\n")}},
		FollowupDegraded: &Step{Command: "degraded", Expect: Expect{Stdout: new("rolled back\n")}},
		Late:             &Late{WaitMS: 1, Stdout: "main 42\nlate\n"},
	}
}

// passingAnswers returns the answers with which sample passes.
func passingAnswers() map[string]any {
	return map[string]any{
		"setup":       exited(1, "ignored"),
		"main 42":     exited(0, "main 42\n"),
		"followup":    exited(0, "kept\n"),
		"degraded":    exited(0, "rolled back\n"),
		"exec.output": map[string]any{"chunks": []any{map[string]any{"data": "main 42\n"}, map[string]any{"data": "bGF0ZQo=", "encoding": "base64"}}},
	}
}

func TestRunner(t *testing.T) {
	for _, test := range []struct {
		name      string
		change    func(c *Case, answers map[string]any)
		leftovers []string
		want      State
		why       string // must be in the reason
	}{
		{name: "all is well", want: Pass},
		{
			name: "wrong result", want: Fail, why: "exit_code 9",
			change: func(_ *Case, a map[string]any) { a["main 42"] = exited(9, "main 42\n") },
		},
		{
			name: "answered before the end", want: Fail, why: "state",
			change: func(_ *Case, a map[string]any) { a["main 42"].(map[string]any)["state"] = "running" },
		},
		{
			name: "follow-up lost, degraded allowed", want: Degraded, why: "follow-up",
			change: func(_ *Case, a map[string]any) { a["followup"] = exited(0, "lost\n") },
		},
		{
			name: "follow-up lost, degraded not allowed", want: Fail, why: "follow-up",
			change: func(c *Case, a map[string]any) { c.FollowupDegraded, a["followup"] = nil, exited(0, "lost\n") },
		},
		{
			name: "follow-up lost, and worse than degraded", want: Fail, why: "follow-up",
			change: func(_ *Case, a map[string]any) {
				a["followup"], a["degraded"] = exited(0, "lost\n"), exited(0, "lost\n")
			},
		},
		{
			name: "late output missing", want: Fail, why: "late",
			change: func(_ *Case, a map[string]any) { a["exec.output"] = map[string]any{"chunks": []any{}} },
		},
		{
			name: "late output missing after a degraded follow-up", want: Fail, why: "late",
			change: func(_ *Case, a map[string]any) {
				a["followup"], a["exec.output"] = exited(0, "lost\n"), map[string]any{"chunks": []any{}}
			},
		},
		{
			name: "error instead of a result", want: Fail, why: "no answer for main 42",
			change: func(_ *Case, a map[string]any) { delete(a, "main 42") },
		},
		{
			name: "error in the set-up", want: Fail, why: "setup",
			change: func(_ *Case, a map[string]any) { delete(a, "setup") },
		},
		{
			name: "no session", want: Fail, why: "session_id",
			change: func(_ *Case, a map[string]any) { a["session.create"] = map[string]any{} },
		},
		{
			name: "connection lost", want: Fail, why: "no answer",
			change: func(_ *Case, a map[string]any) { a["main 42"] = "" },
		},
		{
			name: "answer is no JSON", want: Fail, why: "not JSON",
			change: func(_ *Case, a map[string]any) { a["main 42"] = "TRL> " },
		},
		{
			name: "survivors", want: Fail, why: "left",
			change: func(_ *Case, a map[string]any) {
				a["session.destroy"] = map[string]any{"state": "terminated", "survivors": []any{map[string]any{"pid": 7}}}
			},
		},
		{
			name: "survivors of a degraded case", want: Fail, why: "left",
			change: func(_ *Case, a map[string]any) {
				a["followup"] = exited(0, "lost\n")
				a["session.destroy"] = map[string]any{"state": "terminated", "survivors": []any{map[string]any{"pid": 7}}}
			},
		},
		{
			name: "destroy leaves it alive", want: Fail, why: "terminated",
			change: func(_ *Case, a map[string]any) { a["session.destroy"] = map[string]any{"state": "idle"} },
		},
		{
			name: "destroy fails", want: Fail, why: "session.destroy",
			change: func(_ *Case, a map[string]any) { a["session.destroy"] = "no JSON" },
		},
		{name: "survivors that it does not name", leftovers: []string{"7 sleep"}, want: Fail, why: "7 sleep"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, answers := sample(), passingAnswers()
			if test.change != nil {
				test.change(&c, answers)
			}
			f := newFake(t, answers)
			runner := Runner{Socket: f.socket, Leftovers: func(string) []string { return test.leftovers }}
			got := runner.Run(t.Context(), c, "bash", "42")
			if got.State != test.want || !strings.Contains(got.Why, test.why) {
				t.Errorf("got %s %q, want %s with %q", got.State, got.Why, test.want, test.why)
			}
			if (got.State == Pass) != (got.Why == "") {
				t.Errorf("%s with reason %q", got.State, got.Why)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if !slices.Contains(f.methods, "session.destroy") && test.name != "no session" {
				t.Errorf("the session was not destroyed: %v", f.methods)
			}
		})
	}
}

func TestRunnerCreates(t *testing.T) {
	f := newFake(t, passingAnswers())
	runner := Runner{
		Socket:    f.socket,
		ShellPath: map[string]string{"ash": "/opt/bin/ash"},
		Create:    map[string]any{"runtime": "docker:x", "env": map[string]any{"A": "b"}},
	}
	if got := runner.Run(t.Context(), sample(), "ash", "42"); got.State != Pass {
		t.Fatal(got)
	}
	f.mu.Lock()
	got, err := json.Marshal(f.created)
	f.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"env":{"A":"b","CONFORMANCE_RUN":"42"},"runtime":"docker:x","shell":"/opt/bin/ash"}`
	if string(got) != want {
		t.Errorf("session.create got %s, want %s", got, want)
	}
}

func TestRunnerWithoutTRL(t *testing.T) {
	runner := Runner{Socket: filepath.Join(t.TempDir(), "none")}
	if got := runner.Run(t.Context(), sample(), "bash", "42"); got.State != Fail {
		t.Errorf("got %v", got)
	}
}
