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

// FindHolder rejects a reused pid and a malformed lock.
func TestFindHolder(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "trl.sock")
	started, err := process.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self := lockInfo{host: process.HostName{Parent: os.Getpid(), Number: 0xab}, started: started, format: format, daemon: 4242, program: "/a path/trl"}
	earlier, unused := self, self
	earlier.started -= time.Second
	unused.host.Parent = 1 << 22 // larger than any pid
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"itself":              {self.String(), true},
		"trailing text":       {self.String() + "old text", true},
		"a reused pid":        {earlier.String(), false},
		"an unused pid":       {unused.String(), false},
		"empty":               {"", false},
		"truncated":           {self.String()[:20], false},
		"without the program": {self.String()[:len(self.String())-len(self.program)-1], false},
		"something else":      {"1234\n", false},
		"another prefix":      {"other-holder 1-0001-1 2 3 4 5\n/x\n", false},
	}
	// This process has the lock, and is the holder that it names.
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
			t.Errorf("%s: Waiting() is false without a daemon", name)
		}
		self.daemon = 4242
		h.Close()
	}
}
