package limits

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// restart kills the daemon, and waits until its holder has started another one.
func (r *rig) restart() {
	r.t.Helper()
	daemon := 0
	for _, pid := range process.Children(r.PID) {
		if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); strings.Contains(string(line), "be-daemon") {
			daemon = pid
		}
	}
	if daemon == 0 || unix.Kill(daemon, unix.SIGKILL) != nil {
		r.t.Fatal("there is no daemon to kill")
	}
	r.client.Close()
	trltest.Eventually(r.t, "another daemon answers", func() bool {
		c, err := client.Dial(r.t.Context(), r.Socket)
		if err == nil {
			r.client = c
		}
		return err == nil
	})
}

// A daemon that has moved into a leaf of its cgroup finds its sessions, and their
// limits, when it is started again.
func TestGuestRestart(t *testing.T) {
	r := start(t)
	s := r.create(&api.Limits{MemoryBytes: 64 << 20, PIDs: 30, CPU: 1})
	s.run("mark=set")
	r.restart()
	s.alive()
	res := s.run("dd if=/dev/zero of=/dev/null bs=200M count=1")
	if res.Outcome != api.OutcomeOOMKilled || !slices.Contains(res.LimitHit, api.LimitMemory) {
		t.Errorf("%+v", res)
	}
	s.alive()
	if again := r.create(&api.Limits{MemoryBytes: 64 << 20}); again.number("memory.max") != 64<<20 {
		t.Error("a new session is not limited")
	}
	s.destroy()
}
