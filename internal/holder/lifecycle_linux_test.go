package holder

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// An exit is reported to each daemon until it is forgotten, and the holder
// exits with the last daemon's code.
func TestExitsAreReportedUntilForgotten(t *testing.T) {
	h := startHolder(t, "exits")
	for _, want := range []string{"reported 7", "reported 7", "reported nothing"} {
		if got := h.line(t); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	h.end(t, 5)
}

func exits(s testDaemon) {
	if s.start == 1 {
		check(s.Track(s.fork("read x; exit 7"))) // it exits when this daemon dies
		s.die()
	}
	all := s.exits()
	switch s.start {
	case 2, 3:
		exit := <-all // in the hello, or when it happens
		fmt.Println("reported", exit.Status.ExitStatus())
		if s.start == 3 {
			s.Forget(exit.PID)
		}
		s.die()
	default:
		check(s.Sync())
		if len(all) > 0 || len(s.Hello().Tracked) > 0 {
			check(fmt.Errorf("%d exits, tracked %v", len(all), s.Hello().Tracked))
		}
		fmt.Println("reported nothing")
		s.stopHolder(5)
	}
}

// A child that is dead and reaped before it is tracked still has a status.
func TestLateTrack(t *testing.T) {
	h := startHolder(t, "late")
	if got := h.line(t); got != "3" {
		t.Errorf("status %s", got)
	}
	h.end(t, 0)
}

func late(s testDaemon) {
	all := s.exits()
	pid := s.fork("exit 3")
	for unix.Kill(pid, 0) == nil {
		time.Sleep(100 * time.Microsecond) // poll: until it is reaped; the test kills a daemon that hangs
	}
	check(s.Track(pid))
	fmt.Println((<-all).Status.ExitStatus())
	s.Forget(pid)
	// The status is reported once: a later process with this pid would not get
	// it.
	check(s.Track(pid))
	if exit := <-all; exit.Status != lostStatus {
		check(fmt.Errorf("an old status was reported again: %v", exit))
	}
	s.stopHolder(0)
}

// Each of many exits is reported once, with its own status.
func TestManyExits(t *testing.T) {
	h := startHolder(t, "storm")
	if got := h.line(t); got != "all" {
		t.Error(got)
	}
	h.end(t, 0)
}

func storm(s testDaemon) {
	all := s.exits()
	want := map[int]int{}
	for i := range 300 {
		pid := s.fork("exit " + strconv.Itoa(i%200))
		want[pid] = i % 200
		check(s.Track(pid))
	}
	for range 300 {
		exit := <-all
		if code, ok := want[exit.PID]; !ok || code != exit.Status.ExitStatus() {
			check(fmt.Errorf("%+v, want %d", exit, code))
		}
		delete(want, exit.PID)
		s.Forget(exit.PID)
	}
	if orphans, err := s.Orphans(); orphans != 0 || err != nil {
		check(fmt.Errorf("%d orphans, %w", orphans, err))
	}
	fmt.Println("all")
	s.stopHolder(0)
}

// Signals are forwarded to the daemon; when it exits, so does the holder.
func TestSignalsArePassedOn(t *testing.T) {
	h := startHolder(t, "signals")
	h.line(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if err := h.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got, want := h.line(t), sig.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	h.end(t, 4)
}

func signals(s testDaemon) {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("ready")
	for sig := range got {
		fmt.Println(sig)
		if sig == syscall.SIGTERM {
			s.stopHolder(4)
		}
	}
}

// A daemon that is killed by a stop signal is not restarted, and no process of
// its sessions is left.
func TestDeathByRequest(t *testing.T) {
	h := startHolder(t, "deaf")
	grandchild, child := h.line(t), h.line(t)
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.end(t, 1)
	for _, pid := range []string{grandchild, child} {
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s is left: %v", pid, err)
		}
	}
}

func deaf(s testDaemon) {
	s.fork("setsid sleep 1000 & echo $!; echo $$; exec sleep 1000")
	select {}
}

// A daemon that detaches is not restarted, and its sessions end with the
// holder.
func TestLeftBehind(t *testing.T) {
	h := startHolder(t, "kept")
	pid, err := strconv.Atoi(h.line(t))
	if err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the daemon is gone", func() bool { return unix.Kill(pid, 0) != nil })
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.end(t, 0)
	if !strings.Contains(h.log.String(), "holder keeps its sessions") {
		t.Errorf("log: %s", h.log.String())
	}
}

func kept(s testDaemon) {
	fmt.Println(os.Getpid())
	s.fork("exec sleep 1000 <&2")
	check(s.AnnounceExit(0, Detach))
	os.Exit(0)
}

// A holder that is asked to stop while its daemon hands off ends the sessions, and
// that is not a failure.
func TestStopDuringHandOff(t *testing.T) {
	for _, mode := range []string{"detaching", "restarting"} {
		t.Run(mode, func(t *testing.T) {
			h := startHolder(t, mode)
			child := h.line(t)
			if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			h.end(t, 0)
			if _, err := os.Stat("/proc/" + child); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("process %s is left: %v", child, err)
			}
			if strings.Contains(h.log.String(), "daemon_died") {
				t.Errorf("log: %s", h.log.String())
			}
		})
	}
}

// handOffOnSignal hands off when the holder has been asked to stop.
func handOffOnSignal(mode ExitMode) func(testDaemon) {
	return func(s testDaemon) {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGTERM)
		check(s.Sync()) // signals are held back from a daemon that has not sent anything
		s.fork("echo $$; exec sleep 1000 <&2")
		<-got
		check(s.AnnounceExit(0, mode))
		os.Exit(0)
	}
}

func TestGroup(t *testing.T) {
	h := startHolder(t, "group")
	if got := h.line(t); got != "moved" {
		t.Error(got)
	}
	h.end(t, 0)
}

func group(s testDaemon) {
	file := os.Getenv(countVar) + ".pid"
	// A process that has not executed a program since its fork can be moved.
	all := s.exits()
	parent := s.fork("mkfifo " + file + ".fifo; (read x <>" + file + ".fifo) & echo $! >" + file)
	check(s.Track(parent))
	<-all
	text, err := os.ReadFile(file)
	check(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(err)
	check(s.Group(pid))
	if pgid, err := unix.Getpgid(pid); pgid != pid || err != nil {
		check(fmt.Errorf("group %d of %d, %w", pgid, pid, err))
	}
	if err := s.Group(1); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
		check(fmt.Errorf("init was moved: %w", err))
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	fmt.Println("moved")
	s.stopHolder(0)
}

// A daemon that crashes is restarted at once, and then with delays.
func TestCrash(t *testing.T) {
	h := startHolder(t, "crash")
	if got := h.line(t); got != "3" {
		t.Error(got)
	}
	h.end(t, 0)
	if n := strings.Count(h.log.String(), "restarting it"); n != 2 {
		t.Errorf("%d lines about a restart: %s", n, h.log.String())
	}
	var delays []time.Duration
	for n := range 7 {
		delays = append(delays, restartDelay(n, false))
	}
	want := []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, time.Minute, time.Minute}
	if !slices.Equal(delays, want) {
		t.Errorf("delays %v", delays)
	}
}

func crash(s testDaemon) {
	if s.start < 3 {
		panic("a bug in the daemon")
	}
	fmt.Println(s.start)
	s.stopHolder(0)
}
