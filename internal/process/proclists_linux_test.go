package process

import (
	"strconv"
	"testing"
	"time"
)

// A list that is kept open shows the current processes, is closed when unused,
// and does not outlive its tree.
func TestListsAreOpenWhileTheyAreRead(t *testing.T) {
	h := newHost(t, Config{})
	if h.cgroup == nil {
		t.Skip(h.noCgroupReason)
	}
	ls := &h.cgroup.lists
	ls.closeAll()
	ls.linger, ls.open = time.Hour, nil // the test itself calls shrink
	tree, err := h.NewTree("test")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 { // more than one read returns
		start(t, tree, "exec sleep 100", true)
		if pids := tree.PIDs(); len(pids) != n+1 {
			t.Fatalf("%d processes were started, the list has %v", n+1, pids)
		}
	}
	l := ls.of(h.cgroup.fd, tree.name)
	if b, ok := l.read(make([]byte, len(strconv.Itoa(tree.PIDs()[0]))+1)); ok {
		t.Errorf("a truncated list was taken for complete: %q", b)
	}
	ls.shrink() // it was read since
	if ls.of(h.cgroup.fd, tree.name) != l {
		t.Error("a list in use was closed")
	}
	l.used.Store(false)
	ls.shrink()
	if _, ok := l.read(make([]byte, 512)); ok {
		t.Error("an unused list stays open")
	}
	if pids := tree.PIDs(); len(pids) != 40 {
		t.Errorf("after a pause the list has %v", pids)
	}
	if left := tree.Kill(time.Now().Add(10 * time.Second)); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if pids := tree.PIDs(); ls.count() > 0 || len(pids) > 0 {
		t.Errorf("a dead tree has %d lists and the processes %v", ls.count(), pids)
	}
}

// The number of open lists is bounded.
func TestListsAreBounded(t *testing.T) {
	h := newHost(t, Config{})
	if h.cgroup == nil {
		t.Skip(h.noCgroupReason)
	}
	for range maxLists + 8 {
		tree := newTree(t, h)
		start(t, tree, "exec sleep 100", true)
		if pids := tree.PIDs(); len(pids) != 1 {
			t.Errorf("the list has %v", pids)
		}
	}
	if n := h.cgroup.lists.count(); n > maxLists {
		t.Errorf("%d lists are open", n)
	}
}

func (ls *procLists) count() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.open)
}
