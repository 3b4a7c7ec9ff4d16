package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestSurvivors finds the process that a command has left, however often it found
// none before.
func TestSurvivors(t *testing.T) {
	for name, cfg := range map[string]Config{"cgroups": {}, "tags": {NoCgroup: true}} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, newHost(t, cfg))
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			// The loops start no process.
			p, _ := start(t, tree, "until [ -e "+file("go")+" ]; do :; done; sleep 1"+trltest.Token()+" & echo $! >"+file("pid")+"; wait", false)
			for range 1000 {
				if left := tree.Survivors(0, p.PID()); len(left) > 0 {
					t.Fatalf("left: %v", left)
				}
			}
			if err := os.WriteFile(file("go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var pid int
			eventually(t, func() bool {
				text, _ := os.ReadFile(file("pid"))
				pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
				return pid > 0
			})
			for range 3 {
				if left := tree.Survivors(0, p.PID()); !slices.Equal(left, []int{pid}) {
					t.Fatalf("left: %v, want %d", left, pid)
				}
			}
		})
	}
}

func TestNewestProcess(t *testing.T) {
	n := openNewestProcess()
	defer n.close()
	before, known := n.read()
	if !known {
		t.Skip("the kernel does not say which process is the newest")
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if after, _ := n.read(); after == before {
		t.Errorf("the newest process was and is %d", before)
	}
}
