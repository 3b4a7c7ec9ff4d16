package must

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	stdioRounds = 60
	stdioLong   = 600
	// stdioTime is how long a daemon on stdio, and everything it started, may
	// live after its client is gone.
	stdioTime = 2 * time.Second
)

// stdioStates are the states in which a daemon on stdio is killed, or loses its
// client.
var stdioStates = []struct {
	name    string
	params  api.SessionCreateParams
	command string // "": none
	profile string // "": none; else the session is being created
}{
	{name: "idle"},
	{name: "left something running", command: "setsid sleep 600 & sleep 600 & echo"},
	{name: "running", command: "sleep 600"},
	{name: "running what ignores SIGTERM", command: "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600; sleep 600"},
	{name: "running on a terminal", params: api.SessionCreateParams{TTY: &api.TTYSize{Rows: 24, Cols: 80}}, command: "sleep 600"},
	{name: "creating", params: api.SessionCreateParams{Login: true}, profile: "sleep 600"},
}

// TestMustEndWithItsClient kills `trl serve --stdio` with -9, or closes both
// ends, in each of its states: soon no process and no cgroup must be left. It was
// seen to fail without a cleaner, and with one that waited for the answer of
// exec.run.
func TestMustEndWithItsClient(t *testing.T) {
	rounds := stdioRounds
	if os.Getenv("TRL_LONG") == "1" {
		rounds = stdioLong
	}
	slowest := map[bool]time.Duration{}
	for i := range rounds {
		state, killed := stdioStates[i%len(stdioStates)], i/len(stdioStates)%2 == 0
		took := endOnStdio(t, i%len(stdioStates), killed)
		if took > stdioTime {
			t.Errorf("%s, killed: %t: something is left after %s", state.name, killed, stdioTime)
		}
		slowest[killed] = max(slowest[killed], took)
	}
	gauge.Figures(t, "%d daemons on stdio, in %d states: nothing is left at most %s after kill -9, and %s after their client is gone",
		rounds, len(stdioStates), slowest[true].Round(time.Millisecond), slowest[false].Round(time.Millisecond))
}

// endOnStdio brings a daemon into a state, ends it, and returns how long it took
// until nothing was left.
func endOnStdio(t *testing.T, number int, kill bool) time.Duration {
	t.Helper()
	state := stdioStates[number]
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--stdio", "--log-level", "error")
	cmd.Env = trltest.Environ(home)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(out)
	ask := func(method string, params any) {
		t.Helper()
		if err := json.NewEncoder(in).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(result any) {
		t.Helper()
		if err := answers.Decode(&struct{ Result any }{result}); err != nil {
			t.Fatal(err)
		}
	}
	var info api.SystemInfo
	ask(api.MethodSystemInfo, nil)
	read(&info)
	params := state.params
	if state.profile != "" {
		if err := os.WriteFile(filepath.Join(home, ".profile"), []byte("touch "+home+"/there\n"+state.profile+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		params.Env = api.Env{"HOME": home}
		ask(api.MethodSessionCreate, params)
	} else {
		var s api.Session
		ask(api.MethodSessionCreate, params)
		read(&s)
		if state.command != "" {
			ask(api.MethodExecRun, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "touch " + home + "/there; " + state.command}})
		}
	}
	if state.profile != "" || state.command != "" {
		trltest.Eventually(t, "the daemon is "+state.name, func() bool {
			_, err := os.Stat(home + "/there")
			return err == nil
		})
	}
	began := time.Now()
	if kill {
		err = cmd.Process.Kill()
	} else {
		err = errors.Join(in.Close(), out.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, or reports that its client is gone
	left := func() error {
		for _, p := range strays() {
			if n, _ := unix.Wait4(p.PID, nil, unix.WNOHANG, nil); n != p.PID { // zombies are ours to reap
				return fmt.Errorf("process left: %v", p)
			}
		}
		if cgroup := info.Process.Cgroup; cgroup != "" {
			if _, err := os.Stat(cgroup); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cgroup left: %s", cgroup)
			}
		}
		return nil
	}
	if err := eventually(trltest.Patience, left); err != nil {
		t.Errorf("%s: %v", state.name, err)
	}
	return time.Since(began)
}
