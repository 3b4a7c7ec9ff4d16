package holder

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

const (
	renewals = 5
	dying    = 60
)

// A holder executes the program at its path and keeps its state. Many of its
// children die at that moment.
func TestRenewed(t *testing.T) {
	t.Setenv(programVar, executable(t))
	h := startHolder(t, "renewed")
	line := h.line(t)
	t.Log(line)
	if !strings.HasPrefix(line, "all ") {
		t.Error(line)
	}
	if got := h.line(t); got != "terminated" { // a signal is forwarded as before
		t.Error(got)
	}
	h.end(t, 3)
	if strings.Contains(h.log.String(), "restarting it") {
		t.Errorf("the re-exec is logged as a crash: %s", h.log.String())
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func renewed(s testDaemon) {
	checkRenewed(s)
	if s.start > renewals {
		fmt.Println("all", renewals*dying, "exits")
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGTERM)
		check(unix.Kill(os.Getppid(), unix.SIGTERM))
		fmt.Println(<-got)
		s.stopHolder(3)
	}
	// The first half is tracked, the other half not yet, as if the daemon had
	// been too slow to ask for it.
	var note strings.Builder
	for i := range dying {
		pid := s.fork("read x; exit " + strconv.Itoa(i+s.start))
		if i < dying/2 {
			check(s.Track(pid))
		}
		fmt.Fprintln(&note, pid, i+s.start)
	}
	fd, err := unix.MemfdCreate("note", unix.MFD_CLOEXEC)
	check(err)
	_, err = unix.Write(fd, []byte(fmt.Sprintln(s.Hello().Host)+note.String()))
	check(err)
	check(s.Replace(Root, fd))
	check(s.AnnounceExit(0, Restart))
	os.Exit(0)
}

// checkRenewed compares the exits reported to this daemon with those that the
// previous daemon wrote down.
func checkRenewed(s testDaemon) {
	if s.start == 1 {
		return
	}
	root, err := s.Take(Root)
	check(err)
	info := make([]byte, 64<<10)
	n, err := unix.Pread(root, info, 0)
	check(err)
	lines := strings.Split(strings.TrimSpace(string(info[:n])), "\n")
	if lines[0] != fmt.Sprint(s.Hello().Host) {
		check(fmt.Errorf("host %d, before %s", s.Hello().Host, lines[0]))
	}
	want := map[int]int{}
	for i, line := range lines[1:] {
		var pid, code int
		_, err := fmt.Sscan(line, &pid, &code)
		check(err)
		want[pid] = code
		if i >= dying/2 {
			check(s.Track(pid))
		}
	}
	all := s.exits()
	for range dying {
		exit := <-all
		if code, ok := want[exit.PID]; !ok || exit.Status.ExitStatus() != code {
			check(fmt.Errorf("%+v, want %d", exit, code))
		}
		delete(want, exit.PID)
		s.Forget(exit.PID)
	}
	var mask unix.Sigset_t
	check(unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask))
	if mask != (unix.Sigset_t{}) {
		check(fmt.Errorf("the daemon was started with signals blocked: %v", mask))
	}
}

// The paths of kept descriptors can be opened at any moment, also while the holder
// executes another program.
func TestPathsWhileRenewed(t *testing.T) {
	t.Setenv(programVar, executable(t))
	h := startHolder(t, "opened")
	path := h.line(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := h.line(t); got != "renewed" {
			t.Error(got)
		}
	}()
	for opened := 0; ; opened++ {
		select {
		case <-done:
			_ = h.cmd.Process.Signal(unix.SIGTERM)
			h.end(t, 3)
			t.Logf("opened %d times", opened)
			return
		default:
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("after %d times: open %s: %v", opened, path, err)
		}
		_ = unix.Close(fd)
	}
}

func opened(s testDaemon) {
	switch {
	case s.start == 1:
		fd, err := unix.MemfdCreate("kept", unix.MFD_CLOEXEC)
		check(err)
		slot, err := s.Keep(fd)
		check(err)
		check(s.Sync())
		fmt.Println(s.Path(slot))
	case s.start > renewals:
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGTERM)
		fmt.Println("renewed")
		<-got
		s.stopHolder(3)
	}
	check(s.AnnounceExit(0, Restart))
	os.Exit(0)
}

// A holder that can't execute the program at its path keeps running.
func TestNotRenewed(t *testing.T) {
	t.Setenv(programVar, filepath.Join(t.TempDir(), "missing"))
	h := startHolder(t, "stays")
	if got := h.line(t); got != "kept" {
		t.Error(got)
	}
	h.end(t, 0)
	if !strings.Contains(h.log.String(), "holder keeps running") || !strings.Contains(h.log.String(), "missing") {
		t.Errorf("log: %s", h.log.String())
	}
}

func stays(s testDaemon) {
	const far = 5000 // above a common limit of open files
	if s.start == 1 {
		for range far {
			_, err := s.Keep(0)
			check(err)
		}
		check(s.AnnounceExit(0, Restart))
		os.Exit(0)
	}
	if got := len(s.Hello().Slots); got != far {
		check(fmt.Errorf("%d slots", got))
	}
	slot, err := s.Keep(0)
	check(err)
	fd, err := s.Take(slot)
	check(err)
	check(unix.Close(fd))
	// Kept descriptors must not leak into children.
	out, err := exec.Command("ls", "/proc/self/fd").Output()
	check(err)
	if n := len(strings.Fields(string(out))); n > 6 {
		check(fmt.Errorf("a child has %d descriptors", n))
	}
	fmt.Println("kept")
	s.stopHolder(0)
}

// A signal starts a new daemon for sessions that were left to the holder.
func TestSignalStartsADaemon(t *testing.T) {
	t.Setenv(programVar, executable(t))
	h := startHolder(t, "woken")
	pid, err := strconv.Atoi(h.line(t))
	if err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the daemon is gone", func() bool { return unix.Kill(pid, 0) != nil })
	ended := make(chan struct{})
	go func() { // repeatedly: the first may arrive before the holder waits for it
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
				_ = h.cmd.Process.Signal(syscall.SIGUSR1)
			}
		}
	}()
	if got := h.line(t); got != "again 9" {
		t.Error(got)
	}
	close(ended)
	h.end(t, 0)
}

func woken(s testDaemon) {
	if s.start == 1 {
		fmt.Println(os.Getpid())
		check(s.Track(s.fork("read x; exit 9")))
		check(s.AnnounceExit(0, Detach))
		os.Exit(0)
	}
	fmt.Println("again", (<-s.exits()).Status.ExitStatus())
	s.stopHolder(0)
}
