package trltest

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseStat(t *testing.T) {
	const tail = " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"
	for line, want := range map[string]Process{
		"42 (sh)" + tail:         {PID: 42, PPID: 7, State: "S", Name: "sh", start: "98765"},
		"42 (a) b (c d)" + tail:  {PID: 42, PPID: 7, State: "S", Name: "a) b (c d", start: "98765"},
		"":                       {},
		"42 sh S 7":              {},
		"42 (sh) S 7":            {},
		"x (sh)" + tail:          {},
		")(" + tail:              {},
		"42 (sh) S seven" + tail: {},
	} {
		got, ok := parseStat(line)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Process{})); diff != "" || ok != (want.PID != 0) {
			t.Errorf("%q: ok %t (-want +got):\n%s", line, ok, diff)
		}
	}
}

// The functions that look for leftovers must find existing ones and must not
// report ones that are gone.
func TestLeftoversAreSeen(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo started; wait")
	cmd.Env = append(os.Environ(), "LEFTOVER_TEST=a b")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	found := Descendants(cmd.Process.Pid)
	if len(found) != 1 || found[0].PPID != cmd.Process.Pid {
		t.Errorf("descendants of the shell: %v, want its one child", found)
	}
	if marked := WithEnv("LEFTOVER_TEST=a b"); len(marked) != 2 {
		t.Errorf("with the variable: %v, want the shell and its child", marked)
	}
	if marked := WithEnv("LEFTOVER_TEST=a"); len(marked) != 0 {
		t.Errorf("with another value: %v", marked)
	}
	if left := Remaining(found); len(left) != len(found) {
		t.Errorf("remaining: %v, want %v", left, found)
	}
	for _, p := range found {
		child, err := os.FindProcess(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	// The shell's wait reaps its child, and ours reaps the shell.
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if left := Remaining(found); len(left) != 0 {
		t.Errorf("remaining after the exit: %v", left)
	}
}

func TestBelow(t *testing.T) {
	tree := []Process{{PID: 1}, {PID: 2, PPID: 1}, {PID: 3, PPID: 2}, {PID: 4, PPID: 1}, {PID: 5, PPID: 3}}
	var pids []int
	for _, p := range descendantsOf(tree, 2) {
		pids = append(pids, p.PID)
	}
	if diff := cmp.Diff([]int{3, 5}, pids, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A process with a reused pid is not the one that was seen.
func TestRemainingKnowsAReusedPID(t *testing.T) {
	processes := all()
	self := slices.IndexFunc(processes, func(p Process) bool { return p.PID == os.Getpid() })
	if self < 0 {
		t.Fatal("this process is not in the table")
	}
	me := processes[self]
	me.start = "0"
	if left := Remaining([]Process{me}); len(left) != 0 {
		t.Errorf("remaining: %v", left)
	}
}
