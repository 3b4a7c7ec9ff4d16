package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/terminal-runtime/trl/conformance"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// tortured is a place in which the whole table is run.
type tortured struct {
	name  string
	shell string // the one that is used unless all are
	only  bool   // it has no other
	// open makes the place and returns its runtime.
	open func(t *testing.T, shells string) (runtime string)
}

// tools are the options that give a container the programs of this machine, whose
// release is that of the image: the table uses more than a minimal system has. shells
// is the directory in which busybox is named ash.
func tools(shells string) []string {
	return []string{"--volume", "/usr:/usr:ro", "--volume", shells + ":" + shells + ":ro"}
}

// docker returns the function that opens a container with the options.
func docker(options ...string) func(*testing.T, string) string {
	return func(t *testing.T, shells string) string {
		return "docker:" + engines.Docker(t).Container(t, engines.Debian, append(tools(shells), options...)...)
	}
}

var places = []tortured{
	{name: "docker", shell: "dash", open: docker()},
	{name: "docker user", shell: "dash", open: docker("--user", "1000")},
	{name: "docker confined", shell: "dash", open: docker("--cap-drop=ALL", "--read-only", "--tmpfs", "/run:exec", "--tmpfs", "/tmp")},
	{name: "docker busybox", shell: "ash", only: true, open: func(t *testing.T, _ string) string {
		// Its image has no /usr, to which the table changes.
		return "docker:" + engines.Docker(t).Container(t, engines.Busybox, "--tmpfs", "/usr/lib")
	}},
	{name: "podman", shell: "dash", open: func(t *testing.T, shells string) string {
		return "podman:" + engines.Podman(t).Container(t, engines.Debian, tools(shells)...)
	}},
	{name: "ssh", shell: "bash", open: func(t *testing.T, _ string) string {
		engines.SSHD(t)
		return "ssh:" + engines.Guest + "@" + engines.SSHHost
	}},
	{name: "docker over ssh", shell: "dash", open: func(t *testing.T, shells string) string {
		engines.SSHD(t)
		return "ssh:root@" + engines.SSHHost + "/" + docker()(t, shells)
	}},
}

// lacking are the cases that fail because of what a place lacks: how they fail, and the
// reason. A case that passes must not be here.
var lacking = []lack{
	{"docker busybox", "to_spawn_storm", noCount, "its pgrep has no option -c"},
	{"docker busybox", "to_kills_setsid_child", noCount, "its pgrep has no option -c"},
	{"docker busybox", "to_kills_double_fork", noCount, "its pgrep has no option -c"},
}

type lack struct{ place, name, why, reason string }

// noCount is the verdict on a case whose follow-up counts processes by pgrep -c.
const noCount = `follow-up: stdout "", want "0\n"`

// find returns the row for a case in a place, or nil.
func find(place, name string) *lack {
	for i := range lacking {
		if lacking[i].place == place && lacking[i].name == name {
			return &lacking[i]
		}
	}
	return nil
}

// TestTortureInPlaces applies the whole table in each place at the same time, by one
// local daemon, in one shell a place.
func TestTortureInPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: skipped with -short")
	}
	table, err := conformance.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range lacking {
		if !slices.ContainsFunc(table.Cases, func(c conformance.Case) bool { return c.Name == row.name }) ||
			!slices.ContainsFunc(places, func(p tortured) bool { return p.name == row.place }) {
			t.Errorf("there is no case or no place for %v", row)
		}
	}
	shells := ashDir(t)
	daemon := startDaemon(t, "")
	admin := dial(t, daemon)
	queue := conformance.NewQueue(atATime)
	var running sync.WaitGroup
	var containers []string
	for _, place := range places {
		runtime := place.open(t, shells)
		first, _, _ := strings.Cut(runtime, "/")
		t.Cleanup(func() { removePlace(t, admin, first) })
		runner := conformance.Runner{
			Socket: daemon.Socket, Create: map[string]any{"runtime": runtime}, ShellPath: map[string]string{}, Leftovers: leftovers,
		}
		names := []string{place.shell}
		if !place.only {
			runner.ShellPath["ash"] = filepath.Join(shells, "ash")
			if long {
				names = table.Shells()
			}
		}
		running.Go(func() { torture(t, place, runner, queue, conformance.Jobs(table.Cases, names)) })
		if _, name, ok := strings.Cut(runtime, "docker:"); ok {
			containers = append(containers, name)
		}
	}
	running.Wait()
	var left []string
	defer func() {
		if t.Failed() {
			t.Log("left in the container:", left)
		}
	}()
	for _, name := range containers {
		trltest.Eventually(t, "a container has no processes but the daemon", func() bool {
			left = visitors(t, name)
			return len(left) == 0
		})
	}
}

// visitors returns the processes of a container besides the first and those of TRL.
func visitors(t *testing.T, container string) []string {
	t.Helper()
	return slices.DeleteFunc(processes(t, container), func(line string) bool {
		return strings.Contains(line, "/.trl-place-") || strings.Contains(line, " be-cleaner ")
	})
}

// atATime is how many cases run at a time: more than on the host alone, since those in
// places wait for the programs that reach them too.
const atATime = 8

// torture does the jobs in one place.
func torture(t *testing.T, place tortured, runner conformance.Runner, queue *conformance.Queue, jobs []conformance.Job) {
	var mu sync.Mutex
	counts := map[string]int{}
	queue.Do(jobs, func(j conformance.Job) {
		name := fmt.Sprintf("%s/%s/%s", place.name, j.Shell, j.Case.Name)
		verdict := runner.RunPatiently(t.Context(), j, func(v conformance.Verdict) { t.Logf("%s is retried: %s", name, v.Why) })
		outcome := string(verdict.State)
		switch row := find(place.name, j.Case.Name); {
		case row != nil && verdict.State == conformance.Fail && verdict.Why == row.why:
			t.Logf("%s fails, as expected: %s", name, row.reason)
			outcome = "lacking"
		case row != nil && verdict.State != conformance.Fail:
			t.Errorf("%s passes, so remove it from the table of what places lack: %s", name, row.reason)
		case verdict.State == conformance.Degraded:
			t.Logf("%s degraded: %s", name, verdict.Why)
		case verdict.State == conformance.Fail:
			t.Errorf("%s: %s\ncommand: %.200q", name, verdict.Why, j.Case.Command)
		}
		mu.Lock()
		defer mu.Unlock()
		counts[outcome]++
	})
	t.Logf("%s: %v", place.name, counts)
}

// leftovers finds the processes of a run: this machine sees those of its containers
// too.
func leftovers(token string) []string {
	var found []string
	for _, p := range trltest.WithEnv(conformance.TokenVariable + "=" + token) {
		found = append(found, p.String())
	}
	return found
}

// ashDir returns a directory in which busybox is named ash, which Debian does not
// provide. Everyone can read it, and its path is the same in containers.
func ashDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "shells-") // on the private file system of the tests
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/busybox", filepath.Join(dir, "ash")); err != nil {
		t.Fatal(err)
	}
	return dir
}
