package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// dead names a host that never existed: its pid is impossible. Its number differs
// between runs of these tests.
var dead = NameHost(4194399, uint16(os.Getpid()))

// runTagged runs a shell script in its own session. WEAR in it stands for a
// command prefix that gives a program the tag of the dead host, OTHER for one
// that gives it another uid. It returns the pids that the script writes to
// descriptor 3, of which there must be count, and the pid of the shell.
func runTagged(t *testing.T, text string, count int) (pids []int, shell int) {
	t.Helper()
	// The process that inherits a dead host's processes is an ancestor of the one
	// that kills them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	tag, err := newTagger()
	if err != nil {
		t.Fatal(err)
	}
	limit := map[int]string{unix.RLIMIT_LOCKS: "locks", unix.RLIMIT_RSS: "rss"}[tag.resource]
	text = strings.NewReplacer(
		"WEAR", fmt.Sprintf("prlimit --%s=%d:%d", limit, makeTag(dead.Number, 1, 1), makeTag(dead.Number, 1, maxMark)),
		"OTHER", "setpriv --reuid 65534 --regid 65534 --clear-groups",
	).Replace(text)
	for _, program := range []string{"prlimit", "setpriv"} {
		_, err := exec.LookPath(program)
		trltest.Need(t, err)
	}
	if strings.Contains(text, "setpriv") && os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can start a process of another user"))
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		for _, pid := range append(pids, cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL) // those that are meant to survive
		}
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(r)
	for range count {
		if !lines.Scan() {
			t.Fatalf("the script did not report its pids: %v", lines.Err())
		}
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids, cmd.Process.Pid
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.dead()
}

// checkKillOrphans kills the orphans of the dead host once its first process has
// been inherited.
func checkKillOrphans(t *testing.T, first, found int) {
	t.Helper()
	eventually(t, func() bool { st, err := readStat(first); return err == nil && subreapers()[st.ppid] })
	report, err := dead.KillOrphans(time.Now().Add(10 * time.Second))
	if err != nil || report.Found != found || len(report.Left) > 0 {
		t.Errorf("KillOrphans returned %+v, %v; want %d found", report, err, found)
	}
}

// Every user can tag their own processes.
func TestTagsOfOthersDoNotCount(t *testing.T) {
	pids, _ := runTagged(t, `(OTHER WEAR sh -c 'echo $$ >&3; exec sleep 300' &)`, 1)
	checkKillOrphans(t, pids[0], 0)
	if !alive(pids[0]) {
		t.Error("a process of another user was killed")
	}
}

// A group that also contains other processes must not be killed as a whole.
func TestGroupsWithOthersAreSpared(t *testing.T) {
	pids, service := runTagged(t, `(WEAR sh -c 'echo $$ >&3; exec sleep 300' &); exec sleep 300`, 1)
	checkKillOrphans(t, pids[0], 1)
	if alive(pids[0]) {
		t.Error("the process with the tag is alive")
	}
	if !alive(service) {
		t.Error("the service that leads the group was killed")
	}
}

// A process that has changed its uid counts if it descends from one that counts.
func TestChangedUIDCounts(t *testing.T) {
	pids, _ := runTagged(t, `(WEAR sh -c 'echo $$ >&3; OTHER sh -c "sleep 300 & echo \$! >&3; echo \$\$ >&3; wait" & wait' &)`, 3)
	checkKillOrphans(t, pids[0], 3)
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is still alive", pid)
		}
	}
}

// The real uid decides: a setuid program keeps that of the user who started it.
func TestOwnUID(t *testing.T) {
	if !ownUID(os.Getpid()) || ownUID(4194399) {
		t.Error("wrong for this process, or for a pid that cannot exist")
	}
	pids, _ := runTagged(t, `exec setpriv --ruid 65534 sh -p -c 'echo $$ >&3; exec sleep 300'`, 1)
	if ownUID(pids[0]) {
		t.Error("the effective uid was taken for the real one")
	}
}

func TestDescends(t *testing.T) {
	h := newHost(t, Config{NoCgroup: true})
	tree := newTree(t, h)
	p, out := start(t, tree, `sh -c '(sleep 300 & echo $!); wait; sleep 300' & wait`, true)
	eventually(t, func() bool { // the subshell is gone, and both sleep
		sleeps := 0
		for _, in := range tree.Describe(tree.PIDs()) {
			if in.Command == "sleep 300" {
				sleeps++
			}
		}
		return strings.HasSuffix(read(t, out), "\n") && sleeps == 2 && len(tree.PIDs()) == 4
	})
	for _, pid := range tree.PIDs() {
		st, err := readStat(pid)
		if err != nil {
			t.Fatal(err)
		}
		for ancestor, want := range map[int]bool{os.Getpid(): true, 4194399: false, pid: false} {
			if got := descends(pid, st, func(a int) bool { return a == ancestor }); got != want {
				t.Errorf("%d descends from %d: %v", pid, ancestor, got)
			}
		}
		if st.ppid != os.Getpid() && !descends(pid, st, func(a int) bool { return a == p.PID() }) {
			t.Errorf("%d, whose parent is %d, does not descend from %d", pid, st.ppid, p.PID())
		}
	}
}

// A process that exits while it is examined is not reported as another user's.
func TestEndedIsNotForeign(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, Config{NoCgroup: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if h.trustsTag(4194399, stat{ppid: 1}) {
		t.Error("a pid that cannot exist counts")
	}
	if strings.Contains(log.String(), "foreign_tag") {
		t.Errorf("logged: %s", &log)
	}
}
