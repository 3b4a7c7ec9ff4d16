package shell

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// A copy that could not be adopted is taken again before the next command, which may
// end the shell.
func TestStandbyBeforeTheNextCommand(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		d.run("x=kept", nil)
		d.mu.Lock()
		d.awaitStandby()
		if d.standby != nil {
			d.standby.proc.Signal(unix.SIGKILL)
		}
		d.setStandby(nil)
		d.standbyTaken(nil)
		d.mu.Unlock()
		d.run("kill -9 $$", nil)
		if out, _ := d.run("echo $x", nil); out != "kept\n" {
			t.Errorf("the state is lost: %q", out)
		}
	})
}

// A copy that could not be adopted is taken again while the shell is idle.
func TestStandbyIsTakenAgain(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := open(t, name, 0)
		standby := func() int {
			_, pid := d.PID()
			return pid
		}
		d.run("x=1", nil)
		trltest.Eventually(t, "there is a standby", func() bool { return standby() != 0 })
		d.mu.Lock()
		first := d.standby
		first.proc.Signal(unix.SIGKILL)
		d.setStandby(nil)
		d.standbyTaken(nil)
		d.mu.Unlock()
		trltest.Eventually(t, "there is another", func() bool { return standby() != 0 && standby() != first.proc.PID() })
	})
}
