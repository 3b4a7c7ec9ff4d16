package process

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asOther runs do on a thread of another user, which ends with it.
func asOther(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			// The first thread never ends, and the process would be another user's.
			asOther(t, do)
			runtime.UnlockOSThread()
			return
		}
		const other = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, other, other, other); errno != 0 {
			t.Error(errno)
			return
		}
		do()
	}()
	<-done
}

// TestStrangers checks that tags of another user's processes are found, and that
// what has none is remembered.
func TestStrangers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	tag, err := newTagger()
	if err != nil {
		t.Skip(err)
	}
	start := func() int {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd.Process.Pid
	}
	plain, tagged := start(), start()
	if err := tag.set(tagged, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	var s strangers
	asOther(t, func() {
		if _, err := tag.limit(plain); err != unix.EPERM {
			t.Errorf("the limit of another user's process: %v, want EPERM", err)
		}
		for range 2 {
			if host, tree, mark, ok := s.readTag(tag, tagged); !ok || host != 1 || tree != 2 || mark != 3 {
				t.Errorf("tag %d %d %d %t, want 1 2 3", host, tree, mark, ok)
			}
			if _, _, _, ok := s.readTag(tag, plain); ok {
				t.Error("found a tag where there is none")
			}
		}
	})
	inode, _ := procInodeOf(plain)
	if len(s.known) != 1 || s.known[plain] != inode {
		t.Errorf("remembers %v, want %d", s.known, plain)
	}
	// An earlier process had the number of the tagged one.
	s.known[tagged] = inode
	asOther(t, func() {
		if _, _, _, ok := s.readTag(tag, tagged); !ok {
			t.Error("a process was taken for the one that had its number before")
		}
	})
}
