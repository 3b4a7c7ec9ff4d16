package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	RunChild()
	if err := CleanSelf(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// hosts runs a test with cgroups, if this machine has them, and without.
func hosts(t *testing.T, test func(t *testing.T, h *Host)) {
	for _, noCgroup := range []bool{false, true} {
		name := "cgroup"
		if noCgroup {
			name = "tags"
		}
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Config{NoCgroup: noCgroup})
			if !noCgroup && h.cgroup == nil {
				t.Logf("no cgroups here (%s): testing tags twice", h.noCgroupReason)
			}
			test(t, h)
		})
	}
}

func newHost(t *testing.T, cfg Config) *Host {
	t.Helper()
	h, err := NewHost(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		for _, pid := range ownChildren() {
			st, err := readStat(pid)
			t.Errorf("child %d is left: %+v, %v", pid, st, err)
		}
	})
	return h
}

func newTree(t *testing.T, h *Host) *Tree {
	t.Helper()
	tree, err := h.NewTree("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	})
	return tree
}

// start runs a shell script in the tree, with its output in a file.
func start(t *testing.T, tree *Tree, text string, gated bool) (*Proc, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	fd, err := unix.Open(out, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p, err := starting(tree, gated)(Spec{
		Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Files: [3]int{fd, fd, fd},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

// starting returns the function that starts processes, with or without a gate.
func starting(tree *Tree, gated bool) func(Spec) (*Proc, error) {
	if gated {
		return tree.startGated
	}
	return tree.Start
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// eventually polls for something the kernel has no event for.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	trltest.Eventually(t, "it came true", ok)
}

func TestStatus(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	for text, want := range map[string]Status{
		"exit 0":      {},
		"exit 255":    {Code: 255},
		"kill -9 $$":  {Code: 137, Signal: unix.SIGKILL},
		"kill -15 $$": {Code: 143, Signal: unix.SIGTERM},
	} {
		p, _ := start(t, tree, text, false)
		<-p.Done()
		if st := p.Status(); st.Code != want.Code || st.Signal != want.Signal {
			t.Errorf("%s: got %+v, want %+v", text, st, want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	for _, gated := range []bool{false, true} {
		_, err := starting(tree, gated)(Spec{Path: "/no/such/program", Argv: []string{"x"}})
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("gated %v: %v", gated, err)
		}
	}
}

// A child must inherit nothing of ours: descriptors, signals, terminal.
func TestChildIsClean(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	for _, gated := range []bool{false, true} {
		p, out := start(t, tree, `ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status; (: </dev/tty) 2>/dev/null || echo notty`, gated)
		<-p.Done()
		want := "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nnotty\n"
		if got := read(t, out); got != want {
			t.Errorf("gated %v: got %q, want %q", gated, got, want)
		}
	}
}

func TestKillReachesEverything(t *testing.T) {
	for name, text := range map[string]string{
		"setsid":       "setsid sleep 100 & wait",
		"double fork":  "( ( setsid sleep 100 & ) & ); sleep 100",
		"ignores TERM": `trap "" TERM INT HUP; while :; do sleep 1; done`,
		"stopped":      "(kill -STOP $$; sleep 100) & kill -STOP $$",
		"storm":        "while :; do (sleep 100 &); done",
		"relay":        `S='sh -c "$0" "$0" &'; for i in 1 2 3 4; do sh -c "$S" "$S" & setsid sh -c "$S" "$S" & done; sleep 100`,
		"setsid relay": `S='setsid sh -c "$0" "$0" &'; for i in 1 2 3 4; do setsid sh -c "$S" "$S" & done; sleep 100`,
		"daemon storm": "setsid sh -c 'while :; do setsid sleep 100 & sleep 0.001; done' & sleep 100",
	} {
		t.Run(name, func(t *testing.T) {
			hosts(t, func(t *testing.T, h *Host) {
				tree := newTree(t, h)
				p, _ := start(t, tree, text, true)
				eventually(t, func() bool { return len(tree.PIDs()) >= 1 })
				if name != "stopped" && name != "ignores TERM" {
					eventually(t, func() bool { return len(tree.PIDs()) >= 2 })
				}
				if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 {
					t.Errorf("left: %+v", left)
				}
				if !p.Exited() {
					t.Error("the tracked process was not reaped")
				}
				for _, m := range h.scans.fresh() {
					if st, err := readStat(m.pid); m.tree == tree.num && err == nil && !st.exiting && !st.dead() {
						t.Errorf("process %d is alive: %+v", m.pid, st)
					}
				}
				if _, err := tree.Start(Spec{Path: "/bin/true", Argv: []string{"true"}}); !errors.Is(err, errDying) && h.cgroup == nil {
					t.Errorf("a start after the kill: %v", err)
				}
			})
		})
	}
}

// The processes of one command are distinguished from those of an earlier one,
// even if the earlier command forks them later.
func TestMarks(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		dir := t.TempDir()
		// The first command's child forks a daemon only when the test says so.
		p, _ := start(t, tree, fmt.Sprintf(
			`cd %s; (: >ready; until [ -e go ] || [ $((i+=1)) -gt 6000 ]; do sleep 0.01; done; (setsid sleep 101 &); sleep 102) & 
			 until [ -e two ] || [ $((j+=1)) -gt 6000 ]; do sleep 0.01; done; (setsid sleep 103 &); sleep 104`, dir), true)
		commands := func(mark uint32) string {
			var out []string
			for _, in := range tree.Describe(tree.Marked(mark, 0)) {
				if f := strings.Fields(in.Command); f[0] == "sleep" && len(f[1]) == 3 {
					out = append(out, f[1])
				}
			}
			return strings.Join(out, " ")
		}
		eventually(t, func() bool { _, err := os.Stat(dir + "/ready"); return err == nil })
		if err := tree.Mark(p, 7); err != nil {
			t.Fatal(err)
		}
		touch(t, dir+"/two")
		eventually(t, func() bool { c := commands(7); return strings.Contains(c, "103") && strings.Contains(c, "104") })
		touch(t, dir+"/go")
		eventually(t, func() bool { c := commands(0); return strings.Contains(c, "101") && strings.Contains(c, "102") })
		if c := commands(7); strings.Contains(c, "101") || strings.Contains(c, "102") {
			t.Errorf("the second command has %s", c)
		}
		if left := tree.KillMarked(func(pid int, mark uint32) bool { return mark == 7 && pid != p.PID() }, time.Now().Add(5*time.Second)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if c := commands(7); c != "" {
			t.Errorf("alive: %s", c)
		}
		if c := commands(0); !strings.Contains(c, "101") || !strings.Contains(c, "102") {
			t.Errorf("the first command lost processes: %s", c)
		}
	})
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAdopt(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	fifo := filepath.Join(t.TempDir(), "fifo")
	p, out := start(t, tree, "mkfifo "+fifo+"; ((read x <>"+fifo+") & echo $!)", true)
	<-p.Done()
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, out)))
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := tree.Adopt(pid)
	if err != nil {
		t.Fatal(err)
	}
	if pgid, err := unix.Getpgid(pid); err == nil && pgid == p.PID() {
		t.Error("it is still in the old process group")
	}
	orphan.Signal(unix.SIGUSR1)
	<-orphan.Done()
	if st := orphan.Status(); st.Signal != unix.SIGUSR1 {
		t.Errorf("status %+v", st)
	}
	if _, err := tree.Adopt(os.Getpid()); err == nil {
		t.Error("adopted a process that is not in the tree")
	}
}

// Children lists what a process has started, and AwaitExit waits for it.
func TestChildren(t *testing.T) {
	tree := newTree(t, newHost(t, Config{}))
	p, _ := start(t, tree, "sleep 1000 & sleep 1000 & exec sleep 1000", true)
	var children []int
	eventually(t, func() bool { children = Children(p.PID()); return len(children) == 2 })
	end := time.AfterFunc(300*time.Millisecond, func() { _ = unix.Kill(children[0], unix.SIGKILL) })
	defer end.Stop()
	AwaitExit(children[:1], trltest.Patience)
	if st, err := readStat(children[0]); err == nil && !st.dead() {
		t.Errorf("AwaitExit returned, and the process is alive: %+v", st)
	}
	AwaitExit(children, time.Millisecond) // one of them is alive: it returns after the limit
	if st, err := readStat(children[1]); err != nil || st.dead() {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestOrphanScan(t *testing.T) {
	h := newHost(t, Config{NoCgroup: true, OrphanScan: 10 * time.Millisecond})
	tree := newTree(t, h)
	p, _ := start(t, tree, "sleep 100", true)
	h.forget(tree) // as if a process had escaped the kill of its tree
	<-p.Done()
	if p.Status().Signal != unix.SIGKILL {
		t.Errorf("status %+v", p.Status())
	}
}

func TestStaleCgroupsAreSwept(t *testing.T) {
	h := newHost(t, Config{})
	if h.cgroup == nil {
		t.Logf("no cgroups here: %s", h.noCgroupReason)
		return
	}
	// A pid that cannot be alive: beyond the kernel's maximum.
	gone := NameHost(4194399, 0)
	stale := filepath.Join(filepath.Dir(h.cgroup.path), cgroupPrefix+gone.String())
	gone.Namespace++
	elsewhere := filepath.Join(filepath.Dir(stale), cgroupPrefix+gone.String())
	for _, dir := range []string{stale, elsewhere} {
		if err := os.MkdirAll(dir+"/s-old.1", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	defer killCgroup(elsewhere, time.Now().Add(time.Second))
	sweepCgroups(filepath.Dir(stale))
	if _, err := os.Stat(elsewhere); err != nil {
		t.Errorf("a group of another PID namespace was swept: %v", err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(h.cgroup.path); err != nil {
		t.Errorf("a living host's group was swept: %v", err)
	}
}

func TestHostNames(t *testing.T) {
	for _, name := range []HostName{{1, 0, 0}, {4194304, 0xffff, 0xf0000123}, NameHost(4242, 0x1f)} {
		if got, err := ParseHostName(name.String()); err != nil || got != name {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "--", "1", "1-1", "1--1", "-1f-1", "0-0001-1", "-5-0001-1", "x-0001-1", "1-12345-1", "1-+1-1", "1-1f.1-1", "1-1-"} {
		if name, err := ParseHostName(text); err == nil {
			t.Errorf("%q is read as %+v", text, name)
		}
	}
}

// Host numbers are random. A dead host may have had the number of a living one,
// whose processes are distinguished by their parent.
func TestKillOrphansSparesTheLiving(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		_, out := start(t, tree, "(setsid sleep 100 & echo >&2); sleep 100", true)
		// Wait for the shell and two sleeps. The subshell is visible for a moment
		// too, so counting three processes alone may be too early.
		eventually(t, func() bool {
			asleep := 0
			pids := tree.PIDs()
			for _, pid := range pids {
				if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) == "sleep\x00100\x00" {
					asleep++
				}
			}
			return read(t, out) != "" && len(pids) == 3 && asleep == 2
		})
		dead := NameHost(4194399, h.id) // a pid that cannot exist
		report, err := dead.KillOrphans(time.Now().Add(10 * time.Second))
		if err != nil || report.Found != 0 || len(report.Left) > 0 || report.CgroupLeft {
			t.Errorf("KillOrphans returned %+v, %v", report, err)
		}
		if pids := tree.PIDs(); len(pids) != 3 {
			t.Errorf("a living host has only the processes %v left", pids)
		}
	})
}

func TestTags(t *testing.T) {
	h := newHost(t, Config{})
	tree := newTree(t, h)
	p, _ := start(t, tree, "ulimit -x 5 2>/dev/null; exec sleep 100", true)
	if err := h.tag.set(p.PID(), 0xffff, maxTree, maxMark-1); err == nil {
		host, num, mark, ok := h.tag.read(p.PID())
		if !ok || host != 0xffff || num != maxTree || mark != maxMark-1 {
			t.Errorf("read %x %x %x %v", host, num, mark, ok)
		}
		rl, ok := h.tag.readFile(p.PID())
		if !ok || rl.Max != makeTag(0xffff, maxTree, maxMark) {
			t.Errorf("file says %x, %v", rl.Max, ok)
		}
	}
	if _, _, _, ok := h.tag.read(os.Getpid()); ok {
		t.Error("this process is tagged")
	}
	p.Signal(unix.SIGKILL)
	<-p.Done()
}

func TestSignals(t *testing.T) {
	for in, want := range map[string]unix.Signal{"TERM": 15, "sigterm": 15, "9": 9, "Usr1": 10, "nope": 0, "0": 0, "65": 65, "": 0} {
		sig, ok := ParseSignal(in)
		if ok != (want > 0 && want < 65) || ok && sig != want {
			t.Errorf("%q: %v, %v", in, sig, ok)
		}
	}
	if SignalName(15) != "SIGTERM" || SignalName(0) != "" || SignalName(63) == "" {
		t.Error("wrong signal names")
	}
}

// An exiting process has lost its arguments and is not dead for a moment; a
// forked one has yet to execute its program.
func TestStatFlags(t *testing.T) {
	const line = "7 (sh) R 1 7 7 0 -1 %d 1 1 1 1 1 1 1 1 20 0 1 0 100 0 0 18446744073709551615 0"
	for flags, want := range map[int]stat{0x404000: {}, 0x404040: {forked: true}, 0x40c044: {forked: true, exiting: true}} {
		if st, err := parseStat(fmt.Appendf(nil, line, flags)); err != nil || st.exiting != want.exiting || st.forked != want.forked || st.dead() {
			t.Errorf("%#x: %+v, %v", flags, st, err)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a b) c) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 100 1000 10 18446744073709551615 0"))
	f.Add([]byte("1 () Z"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseStat(b)
		if err == nil && st.state == 0 {
			t.Errorf("no state in %q", b)
		}
	})
}

// The helper that probes a cgroup must live until it is killed: one that exits by
// itself may be gone before the probe looks for it.
func TestPauseLasts(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", childArgv(childPause)[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("it exited: %v", err)
	case <-time.After(300 * time.Millisecond): // a deadlocked Go program exits within a few
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		<-ended
	}
}
