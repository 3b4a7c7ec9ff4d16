//go:build linux && (amd64 || arm64)

package confined

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/conformance"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// isolations are those in which the table is run: each member alone, and all together.
// The table writes to /tmp and /dev/shm.
var isolations = map[string]api.Isolation{
	"filesystem":       {Filesystem: &api.Filesystem{Write: []string{"/tmp", "/dev/shm"}}},
	"private_tmp":      {Filesystem: &api.Filesystem{Write: []string{"/dev/shm"}, PrivateTmp: true}},
	"network none":     {Network: &api.Network{Mode: api.NetworkNone}},
	"network loopback": {Network: &api.Network{Mode: api.NetworkLoopback}},
	"network allow":    {Network: &api.Network{Allow: []string{"registry.example:443"}}},
	"processes":        {Processes: api.IsolationProcessesOwn},
	"no_new_privs":     {NoNewPrivs: true},
	"seccomp":          {Seccomp: api.IsolationSeccompDefault},
	"user":             {User: "daemon"}, // for root only
	together:           all(api.Network{Mode: api.NetworkLoopback}),
}

const together = "together"

// all returns an isolation of everything together.
func all(network api.Network) api.Isolation {
	return api.Isolation{
		Filesystem: &api.Filesystem{Write: []string{"/dev/shm"}, PrivateTmp: true}, Network: &network,
		Processes: api.IsolationProcessesOwn, NoNewPrivs: true, Seccomp: api.IsolationSeccompDefault,
	}
}

// forbidden are the cases that an isolation makes fail by design.
var forbidden = []ban{}

// ban says how a case fails, and the reason. A case that passes must have none.
type ban struct{ isolation, name, why, reason string }

// find returns the ban for a case in an isolation, or nil.
func find(isolation, name string) *ban {
	for i := range forbidden {
		if forbidden[i].isolation == isolation && forbidden[i].name == name {
			return &forbidden[i]
		}
	}
	return nil
}

// tortured is a run of the whole table.
type tortured struct {
	isolation, shell string
	user             bool
}

func (r tortured) String() string {
	who := "root"
	if r.user {
		who = "user"
	}
	return fmt.Sprintf("%s/%s/%s", r.isolation, r.shell, who)
}

// runs returns the runs of the table: two that differ in everything else, or all.
func runs() []tortured {
	if !long {
		return []tortured{{together, "dash", false}, {together, "bash", true}}
	}
	var every []tortured
	for _, isolation := range slices.Sorted(maps.Keys(isolations)) {
		for _, shell := range []string{"bash", "dash"} {
			for _, user := range []bool{false, true} {
				if isolation != "user" || !user {
					every = append(every, tortured{isolation, shell, user})
				}
			}
		}
	}
	return every
}

// atATime is how many cases run at a time: with more, they begin to miss their max_ms
// for lack of a processor.
const atATime = 6

// TestTortureConfined applies the whole table in confined sessions, of root and of
// another user.
func TestTortureConfined(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: skipped with -short")
	}
	table, err := conformance.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range forbidden {
		if _, ok := isolations[row.isolation]; !ok || !slices.ContainsFunc(table.Cases, func(c conformance.Case) bool { return c.Name == row.name }) {
			t.Errorf("there is no case or no isolation for %v", row)
		}
	}
	daemons := map[bool]*rig{false: start(t, setting{}), true: start(t, setting{user: true})}
	queue := conformance.NewQueue(atATime)
	// Two runs at a time are enough for the queue.
	for two := range slices.Chunk(runs(), 2) {
		var running sync.WaitGroup
		for _, run := range two {
			jobs := conformance.Jobs(table.Cases, []string{run.shell})
			running.Go(func() { torture(t, daemons[run.user], run, queue, jobs) })
		}
		running.Wait()
	}
	for _, r := range daemons {
		r.awaitNothing()
	}
}

// torture does the jobs of one run.
func torture(t *testing.T, r *rig, run tortured, queue *conformance.Queue, jobs []conformance.Job) {
	runner := conformance.Runner{Socket: r.daemon.Socket, Create: map[string]any{"isolation": isolations[run.isolation]}, Leftovers: leftovers}
	var mu sync.Mutex
	counts := map[string]int{}
	queue.Do(jobs, func(j conformance.Job) {
		name := fmt.Sprintf("%v/%s", run, j.Case.Name)
		verdict := runner.RunPatiently(t.Context(), j, func(v conformance.Verdict) { t.Logf("%s is retried: %s", name, v.Why) })
		outcome := string(verdict.State)
		switch row := find(run.isolation, j.Case.Name); {
		case row != nil && verdict.State == conformance.Fail && verdict.Why == row.why:
			t.Logf("%s fails, as expected: %s", name, row.reason)
			outcome = "forbidden"
		case row != nil && verdict.State != conformance.Fail:
			t.Errorf("%s passes, so remove it from the table of what is forbidden", name)
		case verdict.State == conformance.Fail:
			t.Errorf("%s: %s\ncommand: %.200q", name, verdict.Why, j.Case.Command)
		case verdict.State == conformance.Degraded:
			t.Logf("%s degraded: %s", name, verdict.Why)
		}
		mu.Lock()
		defer mu.Unlock()
		counts[outcome]++
	})
	t.Logf("%v: %v", run, counts)
}

// leftovers finds the processes of a run: this machine sees those of namespaces too.
func leftovers(token string) []string {
	var found []string
	for _, p := range trltest.WithEnv(conformance.TokenVariable + "=" + token) {
		found = append(found, p.String())
	}
	return found
}
