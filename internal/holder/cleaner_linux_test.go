package holder

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// cleanerLogVar names a file in which cleaners log their pid and what
// AwaitHolderDeath returned. A holder without it has no cleaner.
const cleanerLogVar = "HOLDER_TEST_DIARY"

// testCleaner returns Config.Cleaner for a holder under test.
func testCleaner() func(uint16) (argv, env []string) {
	if os.Getenv(cleanerLogVar) == "" {
		return nil
	}
	return func(uint16) ([]string, []string) {
		return []string{"cleaner", strconv.Itoa(os.Getpid())}, withRole("cleaner")
	}
}

func runTestCleaner() {
	logEntry := func(entry any) {
		f, err := os.OpenFile(os.Getenv(cleanerLogVar), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, entry)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	logEntry(os.Getpid())
	parent, err := strconv.Atoi(os.Args[1])
	if err != nil {
		logEntry(err)
	}
	logEntry(AwaitHolderDeath(parent))
	os.Exit(0)
}

// watched prints its pid and that of a child of the holder, which stays alive.
func watched(s testDaemon) { fmt.Println(os.Getpid(), s.fork("exec sleep 50")) }

// obedient is watched, but exits when it gets SIGTERM.
func obedient(s testDaemon) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	watched(s)
	<-signals
	s.stopHolder(7)
}

// cleanedHolder is a holder with a daemon, a child and a cleaner.
type cleanedHolder struct {
	*testHolder
	t             *testing.T
	logPath       string
	daemon, child int
}

func startCleanedHolder(t *testing.T, scenario string) *cleanedHolder {
	t.Helper()
	m := &cleanedHolder{t: t, logPath: t.TempDir() + "/cleaner.log"}
	t.Setenv(cleanerLogVar, m.logPath)
	m.testHolder = startHolder(t, scenario)
	m.awaitDaemon()
	t.Cleanup(func() { _ = syscall.Kill(m.child, syscall.SIGKILL) })
	m.expectLog(1, "")
	return m
}

// awaitDaemon reads the pids that the next daemon prints. The previous child is
// killed.
func (m *cleanedHolder) awaitDaemon() {
	m.t.Helper()
	if m.child != 0 {
		_ = syscall.Kill(m.child, syscall.SIGKILL)
	}
	if _, err := fmt.Sscan(m.line(m.t), &m.daemon, &m.child); err != nil {
		m.t.Fatal(err)
	}
}

func (m *cleanedHolder) logEntries() []string {
	text, _ := os.ReadFile(m.logPath) // it does not exist at first
	return strings.Fields(string(text))
}

// expectLog waits until the cleaner log has count entries; last is the expected
// last entry, if not empty.
func (m *cleanedHolder) expectLog(count int, last string) {
	m.t.Helper()
	trltest.Eventually(m.t, fmt.Sprintf("the cleaner log has %d entries, the last %q", count, last), func() bool {
		got := m.logEntries()
		if len(got) > count {
			m.t.Fatalf("cleaner log %q, want %d entries and last %q", got, count, last)
		}
		return len(got) == count && (last == "" || got[count-1] == last)
	})
}

func (m *cleanedHolder) kill(pids ...int) {
	m.t.Helper()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, pid := range pids {
			if err := unix.Kill(pid, sig); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

func TestCleanerAwaitsTheEndOfBoth(t *testing.T) {
	for name, order := range map[string]func(*cleanedHolder){
		"at once":      func(m *cleanedHolder) { m.kill(m.daemon, m.cmd.Process.Pid) },
		"daemon first": func(m *cleanedHolder) { m.kill(m.cmd.Process.Pid, m.daemon) },
		"holder first": func(m *cleanedHolder) {
			m.kill(m.cmd.Process.Pid)
			_, _ = m.cmd.Process.Wait()
			if got := m.logEntries(); len(got) != 1 {
				m.t.Errorf("the daemon is alive, and the cleaner log is %q", got)
			}
			m.kill(m.daemon)
		},
		"after another daemon": func(m *cleanedHolder) {
			m.kill(m.daemon)
			m.awaitDaemon()
			m.kill(m.daemon, m.cmd.Process.Pid)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := startCleanedHolder(t, "watched")
			order(m)
			m.expectLog(2, "true") // although a child is alive and inherited the daemon's descriptors
			if err := unix.Kill(m.child, 0); err != nil {
				t.Errorf("the child is gone (%v), so the test proves nothing", err)
			}
		})
	}
}

func TestCleanerIsReplaced(t *testing.T) {
	m := startCleanedHolder(t, "watched")
	first, err := strconv.Atoi(m.logEntries()[0])
	if err != nil {
		t.Fatal(err)
	}
	m.kill(first)
	m.expectLog(2, "")
	m.kill(m.daemon, m.cmd.Process.Pid)
	m.expectLog(3, "true")
}

// After an orderly stop the cleaner has nothing to do. If the daemon dies
// before it has ended its sessions, the cleaner does that before the holder
// exits. In both cases the cleaner does not outlive the holder.
func TestCleanerEndsWithTheHolder(t *testing.T) {
	for scenario, want := range map[string]struct {
		code int
		log  []string
	}{
		"obedient": {code: 7}, "watched": {code: 1, log: []string{"true"}},
	} {
		t.Run(scenario, func(t *testing.T) {
			m := startCleanedHolder(t, scenario)
			cleanerPID, err := strconv.Atoi(m.logEntries()[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := m.cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if state, err := m.cmd.Process.Wait(); err != nil || state.ExitCode() != want.code {
				t.Errorf("the holder ended with %v, %v", state, err)
			}
			if err := unix.Kill(cleanerPID, 0); err != unix.ESRCH {
				t.Errorf("the cleaner is left: %v", err)
			}
			if got := m.logEntries()[1:]; !slices.Equal(got, want.log) {
				t.Errorf("later log entries %q, want %q", got, want.log)
			}
		})
	}
}
