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

// diaryVar names a file into which undertakers write what they live through. A
// holder without it has none.
const cleanerLogVar = "HOLDER_TEST_DIARY"

// undertakerOfTest is for the Config of a holder under test.
func testCleaner() func(uint16) (argv, env []string) {
	if os.Getenv(cleanerLogVar) == "" {
		return nil
	}
	return func(uint16) ([]string, []string) {
		return []string{"undertaker", strconv.Itoa(os.Getpid())}, withRole("undertaker")
	}
}

func runTestCleaner() {
	diary := func(what any) {
		f, err := os.OpenFile(os.Getenv(cleanerLogVar), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, what)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	diary(os.Getpid())
	parent, err := strconv.Atoi(os.Args[1])
	if err != nil {
		diary(err)
	}
	diary(AwaitHolderDeath(parent))
	os.Exit(0)
}

// watched tells its pid and that of a child of the holder, which lives on.
func watched(s testDaemon) { fmt.Println(os.Getpid(), s.fork("exec sleep 50")) }

// obedient does so too, and leaves when it is asked to.
func obedient(s testDaemon) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	watched(s)
	<-asked
	s.stopHolder(7)
}

// mourned is a holder with a daemon, a child, and an undertaker.
type cleanedHolder struct {
	*testHolder
	t             *testing.T
	logPath       string
	daemon, child int
}

func startCleanedHolder(t *testing.T, scene string) *cleanedHolder {
	t.Helper()
	m := &cleanedHolder{t: t, logPath: t.TempDir() + "/diary"}
	t.Setenv(cleanerLogVar, m.logPath)
	m.testHolder = startHolder(t, scene)
	m.awaitDaemon()
	t.Cleanup(func() { _ = syscall.Kill(m.child, syscall.SIGKILL) })
	m.expectLog(1, "")
	return m
}

// meet hears from the next daemon. Its child is the last that was started.
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
	text, _ := os.ReadFile(m.logPath) // there is none at first
	return strings.Fields(string(text))
}

// expect waits until there are so many entries in the diary; last is what the
// last says, if that is known.
func (m *cleanedHolder) expectLog(count int, last string) {
	m.t.Helper()
	trltest.Eventually(m.t, fmt.Sprintf("the undertaker's diary has %d entries, the last %q", count, last), func() bool {
		got := m.logEntries()
		if len(got) > count {
			m.t.Fatalf("the undertaker's diary is %q, want %d entries and last %q", got, count, last)
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

func TestUndertakerAwaitsTheEndOfBoth(t *testing.T) {
	for name, order := range map[string]func(*cleanedHolder){
		"at once":      func(m *cleanedHolder) { m.kill(m.daemon, m.cmd.Process.Pid) },
		"daemon first": func(m *cleanedHolder) { m.kill(m.cmd.Process.Pid, m.daemon) },
		"holder first": func(m *cleanedHolder) {
			m.kill(m.cmd.Process.Pid)
			_, _ = m.cmd.Process.Wait()
			if got := m.logEntries(); len(got) != 1 {
				m.t.Errorf("the daemon lives, and the diary says %q", got)
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
			m.expectLog(2, "true") // though a child lives, and inherited what there was
			if err := unix.Kill(m.child, 0); err != nil {
				t.Errorf("the child is gone (%v), so nothing was shown", err)
			}
		})
	}
}

func TestUndertakerIsReplaced(t *testing.T) {
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

// With an orderly end there is nothing to do for it. Where the daemon does not
// live to do its part, the undertaker does it before the holder ends. In either
// case it does not stay.
func TestUndertakerEndsWithTheHolder(t *testing.T) {
	for scene, want := range map[string]struct {
		code  int
		diary []string
	}{
		"obedient": {code: 7}, "watched": {code: 1, diary: []string{"true"}},
	} {
		t.Run(scene, func(t *testing.T) {
			m := startCleanedHolder(t, scene)
			under, err := strconv.Atoi(m.logEntries()[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := m.cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if state, err := m.cmd.Process.Wait(); err != nil || state.ExitCode() != want.code {
				t.Errorf("the holder ended with %v, %v", state, err)
			}
			if err := unix.Kill(under, 0); err != unix.ESRCH {
				t.Errorf("the undertaker is left: %v", err)
			}
			if got := m.logEntries()[1:]; !slices.Equal(got, want.diary) {
				t.Errorf("the diary goes on with %q, want %q", got, want.diary)
			}
		})
	}
}
