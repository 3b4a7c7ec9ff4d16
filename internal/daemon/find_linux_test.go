package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// A number that another process has by now is not taken for the holder's, and
// what is no card is none.
func TestFindHolder(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "trl.sock")
	started, err := process.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self := lockInfo{host: process.HostName{Parent: os.Getpid(), Number: 0xab}, started: started, format: format, daemon: 4242, program: "/a path/trl"}
	earlier, nobody := self, self
	earlier.started -= time.Second
	nobody.host.Parent = 1 << 22 // past the largest there can be
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"itself":               {self.String(), true},
		"with a rest behind":   {self.String() + "old text", true},
		"a number used again":  {earlier.String(), false},
		"a number of nobody":   {nobody.String(), false},
		"nothing":              {"", false},
		"half of it":           {self.String()[:20], false},
		"without its program":  {self.String()[:len(self.String())-len(self.program)-1], false},
		"something else":       {"1234\n", false},
		"of something foreign": {"other-holder 1-0001-1 2 3 4 5\n/x\n", false},
	}
	// The lock is this process's, and so is what it names.
	lock, err := os.OpenFile(socket+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for name, test := range tests {
		if err := os.WriteFile(socket+".lock", []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := FindHolder(socket)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrNoHolder) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if h.info != self || h.Waiting() || h.WaitExit(0) {
			t.Errorf("%s: %+v, waiting %t, gone %t", name, h.info, h.Waiting(), h.WaitExit(0))
		}
		self.daemon = 0
		if err := os.WriteFile(socket+".lock", []byte(self.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if !h.Waiting() {
			t.Errorf("%s: that it waits is not seen", name)
		}
		self.daemon = 4242
		h.Close()
	}
}
