package process

import (
	"path/filepath"
	"testing"
	"time"
)

// The host's cgroup directory may be removed while the host is alive, by root or
// by a manager that takes the host for dead.
func TestCgroupVanishes(t *testing.T) {
	for name, again := range map[string]bool{"recreated": true, "cannot be recreated": false} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Config{})
			if h.cgroup == nil {
				t.Logf("no cgroups here: %s", h.noCgroupReason)
				return
			}
			old := newTree(t, h)
			p, _ := start(t, old, "sleep 100", true)
			if !killCgroup(h.cgroup.path, time.Now().Add(10*time.Second)) {
				t.Fatal("the cgroup could not be removed")
			}
			<-p.Done()
			if !again {
				h.cgroup.path = filepath.Join(h.cgroup.path, "x")
			}
			for _, tree := range []*Tree{newTree(t, h), old} {
				p, _ := start(t, tree, "setsid sleep 100 & exec sleep 100", true)
				eventually(t, func() bool { return len(tree.PIDs()) == 2 })
				if tree.tagged.Load() == again {
					t.Errorf("a tree is tracked by tags: %v", !again)
				}
				if tree == old {
					tree = h.AdoptTree("test", tree.num) // as a later daemon does
				}
				if pids := tree.PIDs(); len(pids) != 2 {
					t.Errorf("processes %v", pids)
				}
				if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 {
					t.Errorf("left: %+v", left)
				}
				<-p.Done()
			}
		})
	}
}

// Processes are killed even if someone has moved them out of their cgroup and
// removed it.
func TestKillWithoutItsCgroup(t *testing.T) {
	h := newHost(t, Config{})
	if h.cgroup == nil {
		t.Logf("no cgroups here: %s", h.noCgroupReason)
		return
	}
	tree := newTree(t, h)
	p, _ := start(t, tree, "exec sleep 100", true)
	if err := h.cgroup.join(".", p.PID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return h.cgroup.removeGroup(tree.name) == nil })
	if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 || !p.Exited() {
		t.Errorf("left: %+v", left)
	}
}
