package client_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// realDaemon starts the real binary with settings, which is then this user's daemon.
func realDaemon(t *testing.T, settings ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the binary")
	}
	d, err := trltest.Start(trltest.Config{Args: append([]string{"--grace-ms", "300"}, settings...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(d.Dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TRL_ADDRESS", "")
	t.Setenv("TRL_SOCKET", d.Socket)
}

// TestExamples runs the examples of the documentation and compares what they
// print with their comments. They are not checked by `go test` itself: it can't
// start a daemon for them.
func TestExamples(t *testing.T) {
	realDaemon(t)
	text, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^func (Example\w*)\(\) \{\n(?:.*\n)*?\t// prints:\n((?:\t// .*\n)+)\}`).FindAllStringSubmatch(string(text), -1)
	examples := map[string]func(){
		"Example": Example, "ExampleSession_Start": ExampleSession_Start, "ExampleSession_Stream": ExampleSession_Stream,
	}
	if len(wanted) != len(examples) {
		t.Fatalf("%d examples say what they print, %d are known here", len(wanted), len(examples))
	}
	for _, example := range wanted {
		t.Run(example[1], func(t *testing.T) {
			want := strings.ReplaceAll(example[2], "\t// ", "")
			if got := printed(t, examples[example[1]]); got != want {
				t.Errorf("it prints %q, want %q", got, want)
			}
		})
	}
}

// printed returns what fn writes to the standard output.
func printed(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = before }()
	read := make(chan string)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, r)
		read <- b.String()
	}()
	fn()
	w.Close()
	return <-read
}

func newSession(t *testing.T, p api.SessionCreateParams) (*client.Client, *client.Session) {
	t.Helper()
	c, err := client.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := c.NewSession(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.Background()); err != nil { // also where a test has done so
			t.Error(err)
		}
	})
	return c, s
}

func TestSession(t *testing.T) {
	realDaemon(t)
	c, s := newSession(t, api.SessionCreateParams{Name: "mine", Cwd: "/"})
	r, err := s.RunWith(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: "other", Command: "pwd", Cwd: "/usr"}})
	if err != nil || r.Stdout != "/usr\n" || !r.Succeeded() {
		t.Fatalf("got %+v, %v", r, err)
	}
	info, err := c.Session(s.ID()).Info(t.Context())
	if err != nil || info.Name != "mine" {
		t.Errorf("got %+v, %v", info, err)
	}
	execs, err := s.Execs(t.Context())
	if err != nil || len(execs) != 1 || execs[0].ExecID != r.ExecID {
		t.Errorf("got %+v, %v", execs, err)
	}
	events, err := s.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := events.Receive(); err != nil || e.SessionID != s.ID() {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := s.Run(t.Context(), "true"); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Errorf("in a destroyed session: %v", err)
	}
}

func TestExec(t *testing.T) {
	realDaemon(t)
	c, s := newSession(t, api.SessionCreateParams{})
	e, err := s.StartWith(t.Context(), api.ExecCommand{Command: "echo out; echo err >&2; read x; exit 3", StdinOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := e.Info(t.Context()); err != nil || !r.Running() {
		t.Fatalf("got %+v, %v", r, err)
	}
	if _, err := s.Run(t.Context(), "true"); !api.IsCode(err, api.CodeSessionBusy) {
		t.Errorf("beside it: %v", err)
	}
	known := c.Exec(e.ID())
	waited := make(chan *api.ExecResult, 1)
	go func() {
		r, err := known.Wait(context.Background())
		if err != nil {
			t.Error(err)
		}
		waited <- r
	}()
	if _, err := e.Input(t.Context(), api.ExecInputParams{EOF: true}); err != nil {
		t.Fatal(err)
	}
	r, err := e.Wait(t.Context())
	if err != nil || r.Stdout != "out\n" || r.Stderr != "err\n" || r.Code() != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r := <-waited; r == nil || r.Code() != 3 || r.Stdout != "" {
		t.Errorf("the handle of an existing exec: %+v", r)
	}
	if r, err := known.Wait(t.Context()); err != nil || r.Code() != 3 {
		t.Errorf("after its end: %+v, %v", r, err)
	}
	out, err := e.Output(t.Context(), api.ExecOutputParams{Stream: api.ChunkStdout})
	if err != nil || len(out.Chunks) != 1 || out.Chunks[0].Data != "out\n" {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestKill(t *testing.T) {
	realDaemon(t)
	_, s := newSession(t, api.SessionCreateParams{})
	e, err := s.Start(t.Context(), "sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := e.Wait(t.Context()); err != nil || !r.Cancelled {
		t.Errorf("got %+v, %v", r, err)
	}
	left, err := s.Start(t.Context(), "sleep 1000 & echo $!")
	if err != nil {
		t.Fatal(err)
	}
	r, err := left.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the process that was left running is gone", func() bool {
		alive, err := s.Run(t.Context(), "kill -0 "+strings.TrimSpace(r.Stdout))
		return err == nil && !alive.Succeeded()
	})
}

// TestWatchWithSnapshot watches a real daemon: first come the sessions that there
// are, then what happens to them and their commands.
func TestWatchWithSnapshot(t *testing.T) {
	realDaemon(t)
	ctx, cancel := context.WithTimeout(t.Context(), trltest.Patience)
	defer cancel()
	c, err := client.Dial(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.CreateSession(ctx, api.SessionCreateParams{Shell: "bash", Name: "asks", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	watched, err := c.Watch(ctx, api.SessionWatchParams{Snapshot: true, Execs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	until := func(last api.SessionEventType) (types []string, event *api.SessionEvent) {
		t.Helper()
		for {
			event, err := watched.Receive()
			if err != nil {
				t.Fatal(types, err)
			}
			types = append(types, string(event.Type))
			if event.Type == last {
				return types, event
			}
			if event.SessionID != s.SessionID || event.Name != "asks" {
				t.Errorf("%+v is not of the session", event)
			}
		}
	}
	if types, _ := until(api.EventSnapshotEnd); !slices.Equal(types, []string{"snapshot", "snapshot_end"}) {
		t.Error(types)
	}
	st, err := c.Stream(ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read -s -p 'password: ' x; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	types, event := until(api.EventWaiting)
	if !slices.Equal(types, []string{"state", "exec_started", "waiting"}) || event.ExecID != st.ExecID() || event.Waiting.For != api.WaitingPassword {
		t.Errorf("%v, %+v", types, event)
	}
	if _, err := c.Input(ctx, api.ExecInputParams{ExecID: st.ExecID(), Data: "x\n"}); err != nil {
		t.Fatal(err)
	}
	if _, event := until(api.EventExecEnded); event.ExecID != st.ExecID() || event.Outcome != api.OutcomeShellExited || event.ExitCode == nil || *event.ExitCode != 3 {
		t.Errorf("%+v", event)
	}
}
