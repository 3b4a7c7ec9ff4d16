package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/conformance"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// TestTorture applies the whole table to the real binary, or to the TRL that
// TRL_CONFORMANCE_SOCKET names, in every shell. README.md lists the settings.
func TestTorture(t *testing.T) { torture(t, conformance.Runner{}) }

// TestTortureOnTerminals does the same in sessions on a terminal, with the
// cases that apply there.
func TestTortureOnTerminals(t *testing.T) { torture(t, conformance.Runner{Terminal: true}) }

// TestTortureMerged does the same with merged streams.
func TestTortureMerged(t *testing.T) { torture(t, conformance.Runner{Merge: true}) }

func torture(t *testing.T, runner conformance.Runner) {
	if testing.Short() {
		t.Skip("takes minutes: skipped with -short")
	}
	table, err := conformance.Load()
	if err != nil {
		t.Fatal(err)
	}
	cases := chosenCases(t, table)
	shells := chosenShells(t, table)
	runner.Create, runner.ShellPath = createParams(t), shells
	if runner.Socket = os.Getenv("TRL_CONFORMANCE_SOCKET"); runner.Socket == "" {
		runner.Socket = startDaemon(t)
		runner.Leftovers = leftovers
	}

	var names []string
	for _, shell := range table.Shells() {
		if _, ok := shells[shell]; ok {
			names = append(names, shell)
		}
	}
	work := conformance.Jobs(cases, names)
	if runner.Terminal {
		work = slices.DeleteFunc(work, func(j conformance.Job) bool { return !j.Case.OnTerminal() })
	}
	if len(work) == 0 {
		t.Fatal("no case to run")
	}

	tally := newTally()
	conformance.NewQueue(jobs(t)).Do(work, func(j conformance.Job) {
		t.Run(j.Shell+"/"+j.Case.Name, func(t *testing.T) {
			verdict := runner.RunPatiently(t.Context(), j, func(v conformance.Verdict) {
				t.Logf("%s/%s is retried: %s", j.Shell, j.Case.Name, v.Why)
			})
			tally.add(j.Shell, verdict.State)
			switch verdict.State {
			case conformance.Pass:
			case conformance.Degraded:
				t.Logf("%s/%s degraded: %s", j.Shell, j.Case.Name, verdict.Why)
			default:
				t.Errorf("%s/%s: %s\ncommand: %.200q", j.Shell, j.Case.Name, verdict.Why, j.Case.Command)
			}
		})
	})
	for _, line := range tally.lines(table.Shells()) {
		t.Log(line)
	}
}

// jobs returns how many cases run concurrently.
func jobs(t *testing.T) int {
	text := os.Getenv("TRL_CONFORMANCE_JOBS")
	if text == "" {
		return 6
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TRL_CONFORMANCE_JOBS=%q is not a number of jobs", text)
	}
	return n
}

func chosenCases(t *testing.T, table *conformance.Table) []conformance.Case {
	names := list(os.Getenv("TRL_CONFORMANCE_CASE"))
	if len(names) == 0 {
		return table.Cases
	}
	var cases []conformance.Case
	for _, name := range names {
		i := slices.IndexFunc(table.Cases, func(c conformance.Case) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("TRL_CONFORMANCE_CASE: the table has no case %q", name)
		}
		cases = append(cases, table.Cases[i])
	}
	return cases
}

// chosenShells returns the shells to run, each with the value for
// session.create. A shell that this machine lacks is skipped, unless everything
// is supposed to be installed: then it is a failure.
func chosenShells(t *testing.T, table *conformance.Table) map[string]string {
	names := list(os.Getenv("TRL_CONFORMANCE_SHELLS"))
	if len(names) == 0 {
		names = table.Shells()
	}
	busybox, busyboxErr := exec.LookPath("busybox")
	elsewhere := os.Getenv("TRL_CONFORMANCE_SOCKET") != ""
	shells := map[string]string{}
	for _, name := range names {
		if !slices.Contains(table.Shells(), name) {
			t.Fatalf("TRL_CONFORMANCE_SHELLS: the table has no shell %q", name)
		}
		_, err := exec.LookPath(name)
		switch {
		case name == "ash" && os.Getenv("TRL_CONFORMANCE_ASH") != "":
			shells[name] = os.Getenv("TRL_CONFORMANCE_ASH")
		case err == nil:
			shells[name] = name
		case name == "ash" && busyboxErr == nil:
			shells[name] = linkAsh(t, busybox)
		case elsewhere:
			shells[name] = name // the other TRL must have it
		case os.Getenv("CI") == "true":
			t.Errorf("%s is not installed", name)
		default:
			t.Logf("%s is not installed: its cases are skipped", name)
		}
	}
	return shells
}

// linkAsh makes a link named ash to busybox, which Debian does not provide.
func linkAsh(t *testing.T, busybox string) string {
	ash := filepath.Join(t.TempDir(), "ash")
	if err := os.Symlink(busybox, ash); err != nil {
		t.Fatal(err)
	}
	return ash
}

func createParams(t *testing.T) map[string]any {
	text := os.Getenv("TRL_CONFORMANCE_CREATE")
	if text == "" {
		return nil
	}
	var params map[string]any
	if err := json.Unmarshal([]byte(text), &params); err != nil {
		t.Fatalf("TRL_CONFORMANCE_CREATE is not a JSON object: %v", err)
	}
	return params
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// startDaemon starts the real binary. At the end of the test it checks that no
// process of the sessions is left, not even a zombie, and that the daemon exits
// cleanly.
func startDaemon(t *testing.T) string {
	daemon, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	helpers := trltest.Descendants(daemon.PID)
	t.Cleanup(func() {
		defer os.RemoveAll(daemon.Dir)
		defer daemon.Kill()
		if left := settled(daemon.PID, helpers); len(left) > 0 {
			t.Errorf("all sessions are destroyed, but the daemon still has %v", left)
		}
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
	})
	return daemon.Socket
}

// settled returns the processes below a daemon other than its helpers. An
// orphan that has just died is a zombie until the daemon reaps it, so settled
// waits a moment.
func settled(pid int, helpers []trltest.Process) []trltest.Process {
	const moment = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	for {
		left := slices.DeleteFunc(trltest.Descendants(pid), func(p trltest.Process) bool {
			return slices.ContainsFunc(helpers, func(h trltest.Process) bool { return h.PID == p.PID })
		})
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leftovers finds the processes of a run by their environment, and removes the
// files that the cases leave by design: a timeout kills them before they can.
func leftovers(token string) []string {
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		files, err := filepath.Glob(filepath.Join(dir, "utl-*-"+token))
		if err != nil {
			continue
		}
		for _, file := range files {
			os.Remove(file)
		}
	}
	var found []string
	for _, p := range trltest.WithEnv(conformance.TokenVariable + "=" + token) {
		found = append(found, p.String())
	}
	return found
}

// tally counts verdicts by shell.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[conformance.State]int
}

func newTally() *tally { return &tally{counts: map[string]map[conformance.State]int{}} }

func (y *tally) add(shell string, state conformance.State) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts[shell] == nil {
		y.counts[shell] = map[conformance.State]int{}
	}
	y.counts[shell][state]++
}

func (y *tally) lines(shells []string) []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var lines []string
	for _, shell := range shells {
		if n, ok := y.counts[shell]; ok {
			passed := n[conformance.Pass] + n[conformance.Degraded]
			lines = append(lines, fmt.Sprintf("%s: %d passed (%d degraded), %d failed", shell, passed, n[conformance.Degraded], n[conformance.Fail]))
		}
	}
	return lines
}
