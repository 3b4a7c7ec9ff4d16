package places

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

func TestMain(m *testing.M) { engines.Main(m) }

// long says whether tests run at full size.
var long = os.Getenv("TRL_LONG") == "1"

// guest is the runtime of the SSH server for a user without rights.
const guest = "ssh:" + engines.Guest + "@" + engines.SSHHost

// rig is a daemon under test with its own client.
type rig struct {
	*trltest.Daemon
	t      *testing.T
	client *client.Client
	config trltest.Config
}

// start starts a daemon that finds the engines, with a configuration.
func start(t *testing.T, configuration string) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, config: trltest.Config{Args: []string{"--config", file}, Env: engines.Env()}}
	r.begin()
	t.Cleanup(func() {
		if t.Failed() {
			log := r.Log()
			t.Logf("the daemon is running: %t; its log ends with\n%s", r.Running(), log[max(0, len(log)-4000):])
		}
		r.client.Close()
		r.Kill()
		_ = os.RemoveAll(r.Dir)
	})
	return r
}

// begin starts the daemon, and connects.
func (r *rig) begin() {
	r.t.Helper()
	daemon, err := trltest.Start(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Daemon, r.config.Dir = daemon, daemon.Dir
	// The client does not repeat calls: it would hide what the daemon does.
	if r.client, err = client.DialWith(r.t.Context(), r.Socket, client.Options{Patience: -1}); err != nil {
		r.t.Fatal(err)
	}
}

// again stops the daemon, and starts it again in the same directory.
func (r *rig) again() {
	r.t.Helper()
	r.stop()
	r.begin()
}

// stop stops the daemon, and checks what it leaves here.
func (r *rig) stop() {
	r.t.Helper()
	r.client.Close()
	if err := r.Stop(); err != nil {
		r.t.Error(err)
	}
}

// call calls a method that must succeed.
func (r *rig) call(method string, params, result any) {
	r.t.Helper()
	if err := r.client.Call(r.t.Context(), method, params, result); err != nil {
		r.t.Fatalf("%s %+v: %v", method, params, err)
	}
}

// create creates a session.
func (r *rig) create(params api.SessionCreateParams) *api.Session {
	r.t.Helper()
	s, err := r.client.CreateSession(r.t.Context(), params)
	if err != nil {
		r.t.Fatalf("%s: %v", params.Runtime, err)
	}
	return s
}

// run runs a command, which must be accepted, and returns its standard output.
func (r *rig) run(session, command string) string {
	r.t.Helper()
	res, err := r.client.Run(r.t.Context(), runParams(session, command))
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return res.Stdout
}

func runParams(session, command string) api.ExecRunParams {
	return api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}}
}

// runs returns the measurement of `exec.run true` in a session of a runtime.
func (r *rig) runs(runtime string) *gauge.Series {
	r.t.Helper()
	return r.runsIn(r.create(api.SessionCreateParams{Runtime: runtime, Shell: "dash"}).SessionID)
}

// runsIn returns the measurement of `exec.run true` in a session.
func (r *rig) runsIn(session string) *gauge.Series {
	r.t.Helper()
	line := gauge.RunLine(session)
	l, err := gauge.DialLines(r.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Conn.Close() })
	return &gauge.Series{N: 50, Do: func() error { return gauge.AskTrue(l, line) }}
}

// places returns place.list.
func (r *rig) places() []api.Place {
	r.t.Helper()
	var list api.PlaceListResult
	r.call(api.MethodPlaceList, nil, &list)
	return list.Places
}

// remove removes a place with its sessions.
func (r *rig) remove(runtime string) {
	r.t.Helper()
	r.call(api.MethodPlaceRemove, api.PlaceRemoveParams{Runtime: runtime, Force: true}, nil)
}

// resident returns the memory of the daemon.
func (r *rig) resident() int64 {
	r.t.Helper()
	st, err := r.client.Stats(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return st.Memory
}

// commandTable returns the configuration of a place that a command reaches.
func commandTable(name string, argv []string) string {
	words, err := json.Marshal(argv) // strings of JSON are strings of TOML
	if err != nil {
		panic(err) // it has only strings
	}
	return fmt.Sprintf("[place.%s]\ncommand = %s\n", name, words)
}

// far starts another daemon with a node name, and returns the command that reaches
// it as a place.
func far(t *testing.T, node string) (argv []string, d *trltest.Daemon) {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = trltest.Start(trltest.Config{Args: []string{"--node", node}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill()
		_ = os.RemoveAll(d.Dir)
	})
	return []string{binary, "connect", "--socket", d.Socket}, d
}

// within returns a context for a call that must end in a while.
func within(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), trltest.Patience)
}

// unavailable checks that an error says in a form for programs and for people that a
// place can't be used.
func unavailable(err error, reason string, words ...string) error {
	if err == nil {
		return fmt.Errorf("no error, want reason %s", reason)
	}
	e := api.AsError(err)
	switch {
	case e.Code != api.CodeRuntimeUnavailable || reason != "" && e.Details["reason"] != reason:
		return fmt.Errorf("code %s, reason %v, want RUNTIME_UNAVAILABLE with %s: %w", e.Code, e.Details["reason"], reason, err)
	case e.Hint == "":
		return fmt.Errorf("without a hint: %w", err)
	}
	for _, word := range words {
		if !strings.Contains(e.Message+"\n"+e.Hint, word) {
			return fmt.Errorf("without %q: %s (%s)", word, e.Message, e.Hint)
		}
	}
	return nil
}
