package must

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	// memoryLimit is the limit for a daemon, its holder and all its sessions
	// together.
	memoryLimit = 64 << 20
	// memoryWritten is how much a command writes, many times the limit.
	memoryWritten = 2 << 30
	// memoryGrowth bounds the growth of the daemon itself meanwhile.
	memoryGrowth = 32 << 20
)

// memoryGroup is a cgroup with a memory limit, v1 or v2. Its test owns it.
type memoryGroup struct {
	dir               string
	limit, peak, kill string // files in it
}

// newMemoryGroup creates a group below that of this process, if the kernel allows
// it: a v2 group that contains processes can't have a child with controllers.
func newMemoryGroup(t *testing.T) (*memoryGroup, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var errs error
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := &memoryGroup{}
		parent := ""
		switch {
		case len(part) < 3:
			continue
		case part[1] == "memory":
			parent = "/sys/fs/cgroup/memory" + part[2]
			g.limit, g.peak, g.kill = "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
		case part[0] == "0":
			parent = "/sys/fs/cgroup" + part[2]
			g.limit, g.peak, g.kill = "memory.max", "memory.peak", "memory.events"
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0) // setting the limit shows whether it worked
		default:
			continue
		}
		g.dir = filepath.Join(parent, fmt.Sprint("must-", os.Getpid()))
		if err := os.Mkdir(g.dir, 0o700); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		t.Cleanup(func() {
			if err := eventually(trltest.Patience, func() error { return unix.Rmdir(g.dir) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error("cgroup left: ", err)
			}
		})
		if err := g.set(memoryLimit); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		return g, nil
	}
	return nil, errors.Join(errors.New("no cgroup can limit memory here"), errs)
}

func (g *memoryGroup) set(n int64) error {
	return os.WriteFile(filepath.Join(g.dir, g.limit), strconv.AppendInt(nil, n, 10), 0)
}

// enter moves a process into the group. Its existing children stay where they
// are.
func (g *memoryGroup) enter(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0)
}

func (g *memoryGroup) highest() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// killed returns how many processes the OOM killer has killed in the group.
func (g *memoryGroup) killed() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.kill))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s does not say how many were killed", g.kill)
}

// TestMustStandMemoryPressure checks that output costs bounded memory, and that a
// daemon killed by the OOM killer is restarted.
func TestMustStandMemoryPressure(t *testing.T) {
	t.Run("output", memoryOutput)
	t.Run("killed", memoryKilled)
}

// inGroup starts a daemon in a group, if there can be one.
func inGroup(t *testing.T, args ...string) (*rig, *memoryGroup) {
	t.Helper()
	r := startWith(t, trltest.Config{HTTP: true, Args: args})
	g, err := newMemoryGroup(t)
	if err == nil {
		err = errors.Join(g.enter(r.PID), g.enter(daemonOf(r.PID)))
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			trltest.Need(t, err)
		}
		t.Log(err)
		return r, nil
	}
	return r, g
}

// memoryOutput lets a command write gigabytes while readers stall.
func memoryOutput(t *testing.T) {
	r, g := inGroup(t, "--exec-quota-bytes", "67108864")
	daemon := daemonOf(r.PID)
	s := r.create(api.SessionCreateParams{})
	started, err := r.client.Run(r.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, StdinOpen: true, Command: fmt.Sprintf("read go; head -c %d /dev/zero", int64(memoryWritten))},
		YieldMS:     1,
	})
	if err != nil {
		t.Fatal(err)
	}
	before, err := residentOf(daemon)
	if err != nil {
		t.Fatal(err)
	}
	l := r.dialLines() // attaches, and reads no more
	if _, err := l.Ask(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"exec.attach","params":{"exec_id":%q}}`+"\n", started.ExecID)); err != nil {
		t.Fatal(err)
	}
	stalled, err := r.stallHTTP(started.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	if _, err := r.client.Input(r.ctx, api.ExecInputParams{ExecID: started.ExecID, Data: "go\n"}); err != nil {
		t.Fatal(err)
	}
	if res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Wait: true}}); err != nil || *res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	info, err := r.client.ExecInfo(r.ctx, api.ExecParams{ExecID: started.ExecID})
	if err != nil || info.StdoutBytes != memoryWritten || *info.ExitCode != 0 {
		t.Fatal(info, err)
	}
	after, err := residentOf(daemon)
	if err != nil || daemonOf(r.PID) != daemon {
		t.Fatalf("the daemon has died: %v", err)
	}
	peak, kills := "no cgroup could bound it", int64(0)
	if g != nil {
		n, err1 := g.highest()
		k, err2 := g.killed()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		peak, kills = fmt.Sprintf("of a limit of %d MiB for all at most %.1f were used, page cache included", memoryLimit>>20, mib(n)), k
	}
	gauge.Figures(t, "a command wrote %d GiB past two stalled readers: the daemon uses %s, before %s; %s", int64(memoryWritten)>>30, after, before, peak)
	if kills > 0 || after.anonymous-before.anonymous > memoryGrowth {
		t.Errorf("the OOM killer killed %d processes; the daemon uses %s, before %s", kills, after, before)
	}
	l.Conn.Close()
	stalled.Close()
	r.end()
}

// end stops a daemon that has created files for its tokens.
func (r *rig) end() {
	r.t.Helper()
	r.client.Close()
	if err := r.Stop(); err != nil {
		r.t.Error(err)
	}
}

// stallHTTP follows an exec by Server-Sent Events, and reads no more than the
// head of the response.
func (r *rig) stallHTTP(exec string) (net.Conn, error) {
	conn, err := net.Dial("tcp", r.HTTP)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/execs/%s/stream HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", exec, r.HTTP, r.Token); err != nil {
		return conn, err
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(status, "200") {
		err = fmt.Errorf("the stream request returned %q", status)
	}
	return conn, err
}

// memoryKilled makes the kernel kill the daemon.
func memoryKilled(t *testing.T) {
	r, g := inGroup(t)
	if g == nil {
		t.Skip("no cgroup can limit memory here")
	}
	s := r.create(api.SessionCreateParams{})
	r.run(s, "v=kept")
	daemon := daemonOf(r.PID)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", daemon), []byte("1000"), 0); err != nil {
		t.Fatal(err)
	}
	// A memory hog in the same group uses everything: the kernel then kills the
	// process with the highest score, which is the daemon.
	c := r.patientClient()
	res, err := c.Run(r.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: fmt.Sprintf("x=$(head -c %d /dev/zero | tr '\\0' x); echo ${#x} $v", memoryLimit/2)},
	})
	if err != nil {
		t.Fatal(err)
	}
	kills, err := g.killed()
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo $v"}})
	if err != nil || again.Stdout != "kept\n" {
		t.Errorf("the session returned %+v, %v", again, err)
	}
	if kills == 0 || daemonOf(r.PID) == daemon {
		t.Errorf("%d processes were killed, and the daemon is the same; the command wrote %q", kills, res.Stdout)
	}
	gauge.Figures(t, "the OOM killer killed %d processes, the daemon among them: its session is alive, and its command ended with %s", kills, res.Outcome)
	c.Close()
	r.end()
}
