package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limitedTree returns a tree with limits that need cgroups, and its directory. It
// skips the test where they can't be enforced.
func limitedTree(t *testing.T, l Limits) (*Tree, string) {
	t.Helper()
	h := newHost(t, Config{})
	for _, a := range h.Abilities() {
		if !a.Available {
			t.Skipf("%s is not available: %s", a.Name, a.Reason)
		}
	}
	tree := newTree(t, h)
	if _, err := tree.SetLimits(l); err != nil {
		t.Fatal(err)
	}
	return tree, filepath.Join(h.Support().Cgroup, tree.name)
}

// control returns the contents of a control file.
func control(t *testing.T, dir, file string) string {
	t.Helper()
	return strings.TrimSpace(read(t, filepath.Join(dir, file)))
}

// TestLimitsOfAGroup: the kernel has the limits, and lets the processes of a tree
// that is being ended have all the processor time they need.
func TestLimitsOfAGroup(t *testing.T) {
	tree, dir := limitedTree(t, Limits{MemoryBytes: 64<<20 + 1, CPU: 0.25, PIDs: 50})
	for file, want := range map[string]string{
		"memory.max": strconv.Itoa(64 << 20), "memory.swap.max": "0", "memory.oom.group": "0", "cpu.max": "25000 100000", "pids.max": "50",
	} {
		if got := control(t, dir, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	p, _ := start(t, tree, "sleep 600", false)
	if got := read(t, "/proc/"+strconv.Itoa(p.PID())+"/oom_score_adj"); strings.TrimSpace(got) != strconv.Itoa(oomScore) {
		t.Errorf("oom_score_adj is %s", got)
	}
	tree.Terminate(TermSent{}, func(int, uint32) bool { return true })
	if got := control(t, dir, "cpu.max"); got != "max 100000" {
		t.Errorf("cpu.max is %q while the processes end", got)
	}
	<-p.Done()
	if err := tree.HoldCPU(); err != nil {
		t.Fatal(err)
	}
	if got := control(t, dir, "cpu.max"); got != "25000 100000" {
		t.Errorf("cpu.max is %q after that", got)
	}
	if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

// TestLimitsOfALostGroup: a group that was removed is created again with its limits.
func TestLimitsOfALostGroup(t *testing.T) {
	tree, dir := limitedTree(t, Limits{PIDs: 50})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	p, _ := start(t, tree, "sleep 600", false)
	if got := control(t, dir, "pids.max"); got != "50" {
		t.Errorf("pids.max is %q", got)
	}
	_ = unix.Kill(p.PID(), unix.SIGKILL)
}

// TestCountersAndPeaks: the counters say what the kernel did.
func TestCountersAndPeaks(t *testing.T) {
	tree, dir := limitedTree(t, Limits{MemoryBytes: 64 << 20, CPU: 0.5, PIDs: 10})
	before, peaks := tree.Counters(), tree.PeaksFromNow()
	p, _ := start(t, tree, "dd if=/dev/zero of=/dev/null bs=200M count=1; i=0; until [ $((i += 1)) -gt 20 ]; do sleep 600 & done", false)
	<-p.Done()
	now := tree.Counters()
	if now.OOMKills != before.OOMKills+1 || now.OOMs <= before.OOMs || now.Forks <= before.Forks {
		t.Errorf("%+v, then %+v", before, now)
	}
	memory, pids := peaks.Read()
	if memory != 64<<20 {
		t.Errorf("the peak is %d", memory)
	}
	if _, err := os.Stat(filepath.Join(dir, "pids.peak")); err == nil && pids != 10 {
		t.Errorf("the peak is %d processes", pids)
	}
}

// TestControllersAreNotLeft: without limits the groups of trees have no controllers,
// which would make them larger.
func TestControllersAreNotLeft(t *testing.T) {
	h := newHost(t, Config{})
	if h.Support().Cgroup == "" {
		t.Skip("no cgroups here")
	}
	if got := control(t, h.Support().Cgroup, subtreeControl); got != "" {
		t.Errorf("enabled after the probe: %q", got)
	}
}

// TestNoControllers: a host that can't limit trees says why, and does not limit.
func TestNoControllers(t *testing.T) {
	h := newHost(t, Config{NoCgroup: true})
	for _, a := range h.Abilities() {
		if a.Available || a.Reason != "turned off by configuration" || a.Hint == "" {
			t.Errorf("%+v", a)
		}
	}
	if len(h.Abilities()) != len(controllers) {
		t.Errorf("%+v", h.Abilities())
	}
	tree := newTree(t, h)
	if _, err := tree.SetLimits(Limits{PIDs: 50}); err == nil {
		t.Error("a tree without a cgroup was limited")
	}
	if _, err := tree.Start(Spec{Path: "/bin/true", Argv: []string{"true"}}); err == nil {
		t.Error("a process was started without its limits")
	}
}

// TestLimitsOfEachProcess: programs can't exceed the limits or raise them, however
// they are started.
func TestLimitsOfEachProcess(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		got, err := tree.SetLimits(Limits{OpenFiles: 40, FileSizeBytes: 4096})
		if err != nil || got != (Limits{OpenFiles: 40, FileSizeBytes: 4096}) {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, gated := range []bool{false, true} {
			file := filepath.Join(t.TempDir(), "f")
			p, out := start(t, tree, "ulimit -n; ulimit -Hn; trap '' XFSZ; head -c 5000 /dev/zero >"+file, gated)
			<-p.Done()
			if text := read(t, out); !strings.HasPrefix(text, "40\n40\n") {
				t.Errorf("gated %t: %q", gated, text)
			}
			if st, err := os.Stat(file); err != nil || st.Size() != 4096 {
				t.Errorf("gated %t: %v, %v", gated, st, err)
			}
		}
	})
}
