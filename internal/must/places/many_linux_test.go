package places

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// manyMemory is how much the daemon may grow for each place, besides the process
// that reaches it.
const manyMemory = 2 << 20

// manyAtOnce is how many places are connected at the same time. Each delivers a
// program.
const manyAtOnce = 4

// crowd is a number of places of all kinds.
type crowd struct {
	*rig
	docker     *engines.DockerEngine
	containers []string
	homes      string   // has a home directory for each command place
	runtimes   []string // of all
}

// assemble makes containers and hosts, and starts a daemon that knows them.
func assemble(t *testing.T) *crowd {
	t.Helper()
	commands, containers, hosts := 12, 6, 2
	if long {
		commands, containers, hosts = 60, 30, 10
	}
	c := &crowd{docker: engines.Docker(t), homes: t.TempDir()}
	configuration := ""
	for i := range commands {
		home := filepath.Join(c.homes, fmt.Sprint(i))
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("c%d", i)
		configuration += commandTable(name, []string{"env", "HOME=" + home}) + "deliver = true\n"
		c.runtimes = append(c.runtimes, "cmd:"+name)
	}
	for range containers {
		name := c.docker.Container(t, engines.Busybox)
		c.containers = append(c.containers, name)
		c.runtimes = append(c.runtimes, "docker:"+name)
	}
	sshd := engines.SSHD(t)
	for range hosts {
		c.runtimes = append(c.runtimes, "ssh:"+engines.Guest+"@"+sshd.Host(t, engines.SSHAddress))
	}
	c.rig = start(t, configuration)
	return c
}

// each calls fn for all places, some at a time.
func (c *crowd) each(fn func(runtime string) error) {
	c.t.Helper()
	turns := make(chan struct{}, manyAtOnce)
	errs := make([]error, len(c.runtimes))
	var wg sync.WaitGroup
	for i, runtime := range c.runtimes {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := fn(runtime); err != nil {
				errs[i] = fmt.Errorf("%s: %w", runtime, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

// open creates a session in each place, and runs a command there.
func (c *crowd) open() {
	c.t.Helper()
	c.each(func(runtime string) error {
		s, err := c.client.CreateSession(c.t.Context(), api.SessionCreateParams{Runtime: runtime})
		if err != nil {
			return err
		}
		res, err := c.client.Run(c.t.Context(), runParams(s.SessionID, "sleep 1000 & echo $((6*7))"))
		if err == nil && res.Stdout != "42\n" {
			err = fmt.Errorf("output %q", res.Stdout)
		}
		return err
	})
}

// removeAll removes all places, and checks that nothing is left there.
func (c *crowd) removeAll() {
	c.t.Helper()
	c.each(func(runtime string) error {
		return c.client.Call(c.t.Context(), api.MethodPlaceRemove, api.PlaceRemoveParams{Runtime: runtime, Force: true}, nil)
	})
	for _, p := range c.places() {
		if p.Name != "" {
			c.t.Errorf("place.list has %+v", p)
		}
	}
	trltest.Eventually(c.t, "no process of a place is left", func() bool { return len(processes()) == 0 })
	for _, file := range c.files() {
		c.t.Error("left: ", file)
	}
}

// processes returns what runs the program of a place, or was started by it. All
// processes of our namespace belong to this test.
func processes() (found []trltest.Process) {
	for _, p := range trltest.Descendants(1) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err == nil && (strings.Contains(string(line), ".trl-place-") || string(line) == "sleep\x001000\x00") {
			found = append(found, p)
		}
	}
	return found
}

// files returns what places have left.
func (c *crowd) files() (found []string) {
	for _, dir := range []string{c.homes, engines.Home(engines.Guest)} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != dir && filepath.Dir(path) != c.homes {
				found = append(found, path)
			}
			return err
		})
	}
	for _, name := range c.containers {
		for line := range strings.Lines(c.docker.Run(c.t, "diff", name)) {
			if strings.Contains(line, "trl") || strings.Contains(line, ".cache") {
				found = append(found, name+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// TestMustHoldManyPlaces connects to many places at once, and removes them.
func TestMustHoldManyPlaces(t *testing.T) {
	c := assemble(t)
	c.create(api.SessionCreateParams{})
	before, began := c.resident(), time.Now()
	c.open()
	connected := time.Since(began)
	for _, p := range c.places() {
		if p.State != api.PlaceConnected {
			t.Errorf("%s is %s: %s", p.Runtime, p.State, p.Message)
		}
	}
	each := (c.resident() - before) / int64(len(c.runtimes))
	if n := len(c.sessions()); n != len(c.runtimes)+1 {
		t.Errorf("session.list has %d sessions, want %d", n, len(c.runtimes)+1)
	}
	began = time.Now()
	c.removeAll()
	removed := time.Since(began)

	c.open()
	c.client.Close()
	c.Kill()
	c.begin()
	var noted []string
	for _, p := range c.places() {
		if p.Name != "" {
			noted = append(noted, p.Runtime)
		}
	}
	want := slices.Sorted(slices.Values(c.runtimes))
	if slices.Sort(noted); !slices.Equal(noted, want) {
		t.Errorf("after kill -9 place.list has %v, want %v", noted, want)
	}
	c.removeAll()
	c.stop()
	gauge.Figures(t, "%d places connected in %v, with a session and a process in each: the daemon uses %.2f MiB for each; removed in %v, and after kill -9: 0 processes and files left",
		len(c.runtimes), connected.Round(time.Millisecond), float64(each)/(1<<20), removed.Round(time.Millisecond))
	if each > manyMemory {
		t.Errorf("the daemon uses %d bytes for each place, want at most %d", each, manyMemory)
	}
}
