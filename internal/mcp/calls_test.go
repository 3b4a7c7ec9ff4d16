package mcp_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// Cancelling a call stops its command. A client that disconnects or is killed does
// not stop it, and may come back for it.
func TestCancelledCallsAndLostClients(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	direct := r.direct()
	running := func() (id string) {
		list, err := direct.ListSessions(t.Context(), api.SessionListParams{State: api.StateRunning})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Sessions) > 0 {
			id = list.Sessions[0].ExecID
		}
		return id
	}
	call := func(ctx context.Context, command string) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := r.CallTool(ctx, &sdk.CallToolParams{Name: "run", Arguments: args{"command": command}})
			ended <- err
		}()
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := call(ctx, "sleep 1001")
	var id string
	r.eventually("the command runs", func() bool { id = running(); return id != "" })
	cancel()
	if err := <-ended; err == nil {
		t.Error("a call that was cancelled succeeded")
	}
	r.eventually("the command is cancelled", func() bool {
		e, err := direct.ExecInfo(t.Context(), api.ExecParams{ExecID: id})
		return err == nil && e.Outcome == api.OutcomeCancelled
	})

	ended = call(t.Context(), "echo before; sleep 1; echo after")
	r.eventually("the command runs", func() bool { id = running(); return id != "" })
	if err := r.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a call to a server that was killed succeeded")
	}
	r.connect() // like a restarted agent
	r.contains(r.ask("sessions", args{}).text, id, "echo …")
	again := r.ask("output", args{"exec": id, "until": "exit"})
	r.contains(again.text, "exit 0", "before\nafter")

	// The same for a client that disconnects.
	ended = call(t.Context(), "sleep 0.5; echo survived")
	r.eventually("the command runs", func() bool { id = running(); return id != "" })
	r.Close()
	<-ended
	r.connect()
	r.contains(r.ask("output", args{"exec": id, "until": "exit"}).text, "exit 0", "survived")
}

// Over HTTP, closing a request does not stop its command: the connection may have
// been lost.
func TestLostRequest(t *testing.T) {
	r := newRig(t, rigOptions{transport: overHTTP})
	direct := r.direct()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.CallTool(ctx, &sdk.CallToolParams{Name: "run", Arguments: args{"command": "echo begun; sleep 1; echo done"}})
		ended <- err
	}()
	r.eventually("the command runs", func() bool {
		stats, err := direct.Stats(t.Context())
		return err == nil && stats.ExecsRunning == 1
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a call whose request was closed succeeded")
	}
	r.connect()
	r.contains(r.ask("output", args{"until": "exit"}).text, "exit 0", "begun\ndone")
}

func TestProgressIsReported(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		params := &sdk.CallToolParams{Name: "run", Arguments: args{"command": "for i in 1 2 3 4; do echo $i; sleep 1; done"}}
		params.SetProgressToken("token")
		if _, err := r.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for range 2 {
			select {
			case p := <-r.progress:
				if p.ProgressToken != "token" || p.Progress <= last || !strings.Contains(p.Message, "bytes of output") {
					t.Errorf("%+v", p)
				}
				last = p.Progress
			case <-time.After(trltest.Patience):
				t.Fatal("no progress notification")
			}
		}
	})
}

func TestTheDaemonIsKilledUnderACall(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	info, err := r.direct().SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan answer, 1)
	go func() { done <- r.ask("run", args{"command": "echo one; sleep 1.5; echo two"}) }()
	c := r.direct()
	r.eventually("the command runs", func() bool {
		stats, err := c.Stats(t.Context())
		return err == nil && stats.ExecsRunning == 1
	})
	process, err := os.FindProcess(info.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.contains((<-done).text, "exit 0", "one\ntwo")
}

// The first `trl mcp` starts the daemon, which does not inherit the environment of
// the agent.
func TestTheDaemonIsStarted(t *testing.T) {
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	daemon := &trltest.Daemon{Dir: dir, Socket: trltest.SocketIn(dir)}
	env := []string{"ANTHROPIC_API_KEY=sk-agent-key", "TRL_SECRET_X=secret-value-x"}
	agents := make([]*rig, 4) // all at once
	ready := make(chan *rig, len(agents))
	for range agents {
		go func() { ready <- newRig(t, rigOptions{transport: overStdio, daemon: daemon, env: env}) }()
	}
	for i := range agents {
		agents[i] = <-ready
	}
	r := agents[0]
	info, err := r.direct().SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopDaemon(t, daemon) })
	for i, a := range agents {
		a.contains(a.ask("run", args{"command": "echo agent", "session": "s" + strconv.Itoa(i)}).text, "exit 0", "agent")
		a.Close()
	}
	for _, p := range append(trltest.WithEnv("ANTHROPIC_API_KEY=sk-agent-key"), trltest.WithEnv("TRL_SECRET_X=secret-value-x")...) {
		t.Errorf("%v has the agent's environment", p)
	}
	if err := trltest.Ping(t.Context(), daemon.Socket); err != nil {
		t.Error("the daemon ended with the agents:", err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "home", ".local", "state", "trl", "daemon-*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the logs are %q, %v", logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err != nil || strings.Count(string(log), `"event":"ready"`) != 1 || !strings.Contains(string(log), strconv.Itoa(info.PID)) {
		t.Errorf("%v, log:\n%s", err, log)
	}
}

// TestNoCallLastsAMinute makes each call take as long as it can.
func TestNoCallLastsAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	t.Parallel()
	r := newRig(t, rigOptions{transport: overStdio})
	deaf := r.ask("run", args{"command": "sleep 1000", "session": "deaf", "open_stdin": true, "wait_s": 0})
	calls := map[string]args{
		"run":    {"command": "sleep 1000", "wait_s": 50},
		"output": {"exec": deaf.exec(), "pattern": "never", "search": "never"},
		"input":  {"exec": deaf.exec(), "text": strings.Repeat("this is not read.\n", 100_000)},
	}
	type end struct {
		tool string
		took time.Duration
	}
	ends := make(chan end, len(calls))
	for tool, a := range calls {
		go func() {
			began := time.Now()
			r.call(tool, a)
			ends <- end{tool, time.Since(began)}
		}()
	}
	for range calls {
		e := <-ends
		t.Logf("%s: %s", e.tool, e.took.Round(time.Millisecond))
		if e.took > time.Minute {
			t.Errorf("%s took %s", e.tool, e.took)
		}
	}
}
