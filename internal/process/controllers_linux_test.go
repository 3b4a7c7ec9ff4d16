package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestControllersBesideOthers: a group with processes of others gets no controller,
// also none that the kernel would allow: processes could not be started below it.
func TestControllersBesideOthers(t *testing.T) {
	h := newHost(t, Config{})
	if h.cgroup == nil {
		t.Skip(h.noCgroupReason)
	}
	group := filepath.Join(filepath.Dir(h.cgroup.path), "others")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	for _, controller := range controllers {
		if !hasWord(filepath.Join(group, "cgroup.controllers"), controller) {
			t.Skipf("no controller %s here", controller)
		}
		err := enableIn(group, controller, func(int) bool { return false })
		if err == nil || !strings.Contains(err.reason, "did not start") {
			t.Errorf("%s: %v", controller, err)
		}
	}
	if got := control(t, group, subtreeControl); got != "" {
		t.Errorf("enabled: %s", got)
	}
}
