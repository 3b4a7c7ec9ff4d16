package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// waiter is a program that waits for input, in some way, or that does something
// else for a long time.
type waiter struct {
	name    string
	needs   string         // programs, and "root"
	command string         // finds its files by the variables of a promptFixture
	ready   string         // what it prints last before it waits
	want    api.WaitingFor // "" means that it never waits
	by      string         // part of the command line of the process that waits
	answer  string         // ends it; "" means that it is cancelled
}

var waiters = []waiter{
	{"read of the shell", "", `printf 'ready? '; read x`, "ready? ", api.WaitingInput, "bash", "x\n"},
	{"read -s", "", `read -s -p 'ready? ' x`, "ready? ", api.WaitingPassword, "bash", "x\n"},
	{"cat", "", `echo ready; cat`, "ready", api.WaitingInput, "cat", "\x04"},
	{"a pipeline", "", `echo ready; cat | sort`, "ready", api.WaitingInput, "cat", "\x04"},
	{"head", "", `echo ready; head -n 1`, "ready", api.WaitingInput, "head", "x\n"},
	{"dd of /dev/tty", "", `echo ready; dd if=/dev/tty bs=1 count=1 2>/dev/null`, "ready", api.WaitingInput, "dd", "x\n"},
	{"raw mode", "", `stty raw -echo; printf ready; dd bs=1 count=1 2>/dev/null`, "ready", api.WaitingInput, "dd", "x"},
	{"a shell with a prompt", "", `PS1='ready$ ' /bin/sh -i`, "ready$ ", api.WaitingInput, "/bin/sh", "exit\n"},
	{"bash with readline", "", `PS1='ready$ ' bash --norc -i`, "ready$ ", api.WaitingInput, "bash --norc", "exit\n"},
	{"python input()", "python3", `python3 -c 'input("ready? ")'`, "ready? ", api.WaitingInput, "python", "x\n"},
	{"python getpass", "python3", `python3 -c 'import getpass; getpass.getpass("ready? ")'`, "ready? ", api.WaitingPassword, "python", "x\n"},
	{"python REPL", "python3", `python3 -q`, ">>> ", api.WaitingInput, "python", "exit()\n"},
	{"node REPL", "node", `node`, "> ", api.WaitingInput, "node", ".exit\n"},
	{"node question", "node", `node -e 'const r = require("readline").createInterface({input: process.stdin, output: process.stdout}); r.question("ready? ", () => r.close())'`, "ready? ", api.WaitingInput, "node", "x\n"},
	{"npm init", "npm", `cd "$ROOM" && npm init`, "package name: ", api.WaitingInput, "npm init", "\x03"},
	{"less", "less", `seq 1000 | less -Pready`, "ready", api.WaitingInput, "less", "q"},
	{"git rebase -i in vim", "git vim.tiny", `git -C "$ROOM/repo" -c sequence.editor=vim.tiny rebase -i HEAD~2`, `git-rebase-todo"`, api.WaitingInput, "vim.tiny", ":cq\r"},
	{"apt-get install", "apt-get", `apt-get install wanted`, "[Y/n] ", api.WaitingInput, "apt-get", "n\n"},
	{"sudo for a password", needsOfSSH + " sudo setpriv", `setpriv --reuid "$GUEST" --regid "$GUEST" --clear-groups sudo -k true`, "password for ", api.WaitingPassword, "sudo", "\x03"},
	{"ssh for a password", needsOfSSH, `ssh -F "$ROOM/ssh_config" guest true`, "'s password: ", api.WaitingPassword, "ssh", "$PASSWORD\n"},
	{"cat in sudo", "sudo root", `sudo sh -c 'echo ready; exec cat'`, "ready", api.WaitingInput, "cat", "\x04"},
	{"read -s in sudo", "sudo root", `sudo bash -c 'read -s -p "ready? " x'`, "ready? ", api.WaitingPassword, "bash", "x\n"},
	{"cat in script in sudo", "sudo script root", `sudo script -qc 'echo ready; exec cat' /dev/null`, "ready", api.WaitingInput, "cat", "\x04"},

	{name: "sleep", command: `echo ready; sleep 100`, ready: "ready"},
	{name: "a loop", command: `echo ready; while :; do :; done`, ready: "ready"},
	{name: "a loop in a child", command: `echo ready; sh -c 'while :; do :; done'`, ready: "ready"},
	{name: "tail -f", command: `echo ready; tail -f -n 0 "$ROOM/large.c"`, ready: "ready"},
	{name: "a compiler", needs: "gcc", command: `echo ready; while :; do gcc -O2 -c "$ROOM/large.c" -o "$ROOM/large.o"; done`, ready: "ready"},
	{name: "a read of a pipe", command: `echo ready; sleep 100 | cat`, ready: "ready"},
	{name: "a read of the network", command: `exec 3<>/dev/tcp/127.0.0.1/$SILENT; echo ready; cat <&3`, ready: "ready"},
	{name: "wait for a child", command: `echo ready; sh -c 'sleep 100; :'`, ready: "ready"},
	{name: "wait for a background job", command: `echo ready; sleep 100 & wait`, ready: "ready"},
	{name: "sleep in sudo", needs: "sudo root", command: `sudo sh -c 'echo ready; exec sleep 100'`, ready: "ready"},
	{name: "sleep in script", needs: "script", command: `script -qc 'echo ready; exec sleep 100' /dev/null`, ready: "ready"},
	{name: "sleep behind two threads", needs: "python3", command: `python3 -c '` + threadedRelay + `'`, ready: "ready"},
	{name: "a thread at something else", needs: "python3", command: `python3 -c '` + busyRelay + `'`, ready: "ready"},
	{name: "a relay that has yet to write", needs: "python3", command: `python3 -c '` + fullRelay + `'`, ready: "ready"},
}

// threadedRelay relays what is typed in one thread, and what is written in another.
const threadedRelay = `
import os, pty, threading
pid, master = pty.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", "echo ready; exec sleep 100"])
def show():
    while True:
        os.write(1, os.read(master, 1000))
threading.Thread(target=show, daemon=True).start()
while True:
    os.write(master, os.read(0, 1000))
`

// busyRelay relays what is typed in one thread. The other one, which should relay
// what is written, is in another kind of call: then it is unknown whether a program
// behind it asks.
const busyRelay = `
import os, pty, threading, time
pid, master = pty.fork()
if pid == 0:
    os.execvp("sleep", ["sleep", "100"])
def show():
    os.write(1, b"ready")
    time.sleep(100)
threading.Thread(target=show, daemon=True).start()
while True:
    os.write(master, os.read(0, 1000))
`

// fullRelay has pending data that nothing takes: what the program behind it wrote
// before it waits is not visible yet.
const fullRelay = `
import os, pty, select
pid, master = pty.fork()
if pid == 0:
    os.execvp("cat", ["cat"])
_, full = os.pipe()
os.set_blocking(full, False)
try:
    while True:
        os.write(full, bytes(4096))
except BlockingIOError:
    pass
os.write(1, b"ready")
p = select.poll()
p.register(0, select.POLLIN)
p.register(master, select.POLLIN)
p.register(full, select.POLLOUT)
p.poll()
`

// TestWaiting checks each program once; how soon it is detected is measured by
// TestMustKnowWhoWaits, which runs alone.
func TestWaiting(t *testing.T) {
	everyWaiter(t, func(t *testing.T, prompt *promptSession, w waiter) {
		prompt.once(t, w, 20*time.Millisecond)
	})
}

// TestTypedToIsNotWaiting: a program that was typed to does not wait any more,
// whether or not it has run since.
func TestTypedToIsNotWaiting(t *testing.T) {
	p := newPool(t, Config{Grace: 200 * time.Millisecond})
	for name, c := range map[string]struct{ command, data string }{
		"a line":      {"cat", "x\r"},
		"a key":       {"stty raw -echo; cat", "x"},
		"end of file": {"while :; do cat; done", "\x04"},
		"behind":      {`python3 -c 'import pty; pty.spawn("cat")'`, "x\r"},
	} {
		t.Run(name, func(t *testing.T) {
			s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
			prompt := &promptSession{pool: p, session: s.SessionID}
			r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: c.command}, YieldMS: 1})
			waitFor(t, func() bool { return strings.HasPrefix(prompt.look(t).Process, "cat") })
			pid := prompt.look(t).PID
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return stopped(pid) })
			if prompt.look(t).PID != pid {
				t.Error("a stopped program still waits in its call")
			}
			if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: c.data}); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if w := prompt.look(t); w.PID == pid {
					t.Fatalf("%+v, which was typed to", w)
				}
			}
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return strings.HasPrefix(prompt.look(t).Process, "cat") })
		})
	}
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(b), ") ")
	return err == nil && strings.HasPrefix(state, "T")
}

const (
	// knownWithin is the promised time from the prompt on the screen to its
	// detection.
	knownWithin = 100 * time.Millisecond
	// lookedAt is how long a program that does not wait is checked.
	lookedAt = 100 * time.Millisecond
	// lateTries is how often one measurement may be late because of other work on
	// the machine, which only makes things slower.
	lateTries = 3
)

// TestMustKnowWhoWaits measures the time from a program's prompt on the screen
// until the program is reported as waiting.
func TestMustKnowWhoWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures, and must run alone")
	}
	times := 10
	if os.Getenv("TRL_LONG") == "1" {
		times = 100
	}
	everyWaiter(t, func(t *testing.T, prompt *promptSession, w waiter) {
		var took []time.Duration
		looks, late := 0, 0
		for range times {
			var d time.Duration
			for range lateTries {
				var n int
				if d, n = prompt.once(t, w, lookedAt); d <= knownWithin {
					looks += n
					break
				}
				late++
			}
			if d > knownWithin {
				t.Fatalf("known after %v, want %v", d, knownWithin)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		if w.want == "" {
			fmt.Printf("must: %s: %d times, never said to wait in %d looks\n", t.Name(), times, looks)
			return
		}
		fmt.Printf("must: %s: %d times, for %s, known after p50 %v, max %v; late and repeated: %d\n",
			t.Name(), times, w.want, took[times/2].Round(10*time.Microsecond), took[times-1].Round(10*time.Microsecond), late)
	})
}

// everyWaiter calls fn for each program that is available.
func everyWaiter(t *testing.T, fn func(t *testing.T, prompt *promptSession, w waiter)) {
	fixture := newPromptFixture(t)
	p := newPool(t, Config{Grace: 200 * time.Millisecond})
	fixture.startSSH(t, p)
	for _, w := range waiters {
		t.Run(w.name, func(t *testing.T) {
			trltest.Need(t, missing(w.needs))
			s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}, Env: fixture.env})
			fn(t, &promptSession{pool: p, session: s.SessionID, fixture: fixture}, w)
			if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// missing returns an error that names what a program needs and is not there.
func missing(needs string) error {
	for _, need := range strings.Fields(needs) {
		if need == "root" {
			if os.Geteuid() != 0 {
				return errors.New("only root can make the user that is asked for a password, and look into a program of another user")
			}
		} else if _, err := exec.LookPath(need); err != nil {
			return err
		}
	}
	return nil
}

// promptSession is a session in which programs wait.
type promptSession struct {
	pool    *Pool
	session string
	fixture *promptFixture
}

// look returns what session.info reports.
func (s *promptSession) look(t *testing.T) api.Waiting {
	t.Helper()
	info, err := s.pool.Info(t.Context(), api.SessionParams{SessionID: s.session})
	if err != nil {
		t.Fatal(err)
	}
	if info.Waiting == nil {
		return api.Waiting{}
	}
	return *info.Waiting
}

// once runs a program until it was reported correctly, and returns how long after
// its prompt that was, at most, and how often it was checked. A program that does
// not wait is checked for a while.
func (s *promptSession) once(t *testing.T, w waiter, watch time.Duration) (took time.Duration, looks int) {
	t.Helper()
	began := time.Now()
	before := began // a moment without the prompt
	r := run(t, s.pool, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.session, Command: w.command}, YieldMS: 1})
	screen := shown{pool: s.pool, exec: r.ExecID}
	for {
		checked := time.Now()
		got := s.look(t)
		looks++
		if screen.has(t, w.ready) {
			break
		}
		if got.For != "" {
			t.Fatalf("reported before it asked: %+v after %q", got, &screen.text)
		}
		if time.Since(began) > trltest.Patience {
			t.Fatalf("%q is not in %q", w.ready, &screen.text)
		}
		before = checked
		time.Sleep(time.Millisecond) // poll: the program needs to run too
	}
	right := func() bool {
		got := s.look(t)
		looks++
		if got.For != "" && (got.For != w.want || !strings.Contains(got.Process, w.by)) {
			t.Fatalf("reported wrongly: %+v, want %q by %q", got, w.want, w.by)
		}
		return got.For == w.want
	}
	// A program may still have something to do, and then it does not wait for a
	// moment. It counts once it is reported correctly several times in a row.
	for inRow := 0; inRow < 5 || w.want == "" && time.Since(before) < watch; {
		switch {
		case !right():
			inRow = 0
		case inRow == 0:
			took = time.Since(before)
			fallthrough
		default:
			inRow++
		}
		if time.Since(before) > trltest.Patience {
			t.Fatalf("never reported as waiting for long after %q", &screen.text)
		}
		time.Sleep(time.Millisecond) // poll: until it is reported correctly several times in a row
	}
	s.end(t, r.ExecID, w.answer)
	return took, looks
}

// shown is what a command has written to its terminal.
type shown struct {
	pool *Pool
	exec string
	next int64
	text strings.Builder
}

func (s *shown) has(t *testing.T, text string) bool {
	t.Helper()
	out, err := s.pool.Output(t.Context(), api.ExecOutputParams{ExecID: s.exec, From: s.next})
	if err != nil {
		t.Fatal(err)
	}
	s.next = out.Next
	for _, c := range out.Chunks {
		s.text.WriteString(c.Data)
	}
	return strings.Contains(s.text.String(), text)
}

// end answers the program, which must end then, or cancels it.
func (s *promptSession) end(t *testing.T, id, answer string) {
	t.Helper()
	if answer == "" {
		if _, err := s.pool.Cancel(t.Context(), api.ExecCancelParams{ExecID: id}); err != nil {
			t.Fatal(err)
		}
		return
	}
	answer = strings.ReplaceAll(answer, "$PASSWORD", s.fixture.password)
	if _, err := s.pool.Input(t.Context(), api.ExecInputParams{ExecID: id, Data: answer}); err != nil {
		t.Fatal(err)
	}
	_, e, err := s.pool.exec(id)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Done():
	case <-time.After(trltest.Patience):
		screen, err := s.pool.Screen(t.Context(), api.SessionScreenParams{SessionID: s.session})
		t.Fatalf("its answer did not end it: %+v, %v", screen, err)
	}
}

// guestVariable makes a test run its part for a user who is not root.
const guestVariable = "TRL_TEST_GUEST"

// TestPasswordForAnotherUser: a daemon that is not root can't look into sudo.
func TestPasswordForAnotherUser(t *testing.T) {
	if os.Getenv(guestVariable) != "" {
		p := newPool(t, Config{})
		prompt := &promptSession{pool: p, session: onTTY(t, p, "bash").SessionID, fixture: &promptFixture{}}
		prompt.once(t, waiter{command: `sudo -k true`, ready: "password for ", want: api.WaitingPassword, by: "sudo", answer: "\x03"}, 0)
		return
	}
	trltest.Need(t, missing(needsOfSSH+" sudo"))
	fixture := &promptFixture{dir: t.TempDir(), env: map[string]string{}}
	fixture.addGuest(t)
	fixture.runAsGuest(t, guestVariable)
}

func TestYieldOnInput(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "dash")
	// It has no yield time.
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `sleep 0.2; printf 'name? '; read x; echo hello $x`}, YieldOnInput: true})
	if r.State != api.ExecRunning || r.Stdout != "name? " {
		t.Errorf("%+v", r)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "you", Keys: []string{"enter"}}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, p, r.ExecID, "hello you")
	if r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `sleep 0.1`, Wait: true}, YieldOnInput: true}); r.State != api.ExecExited {
		t.Errorf("a command that does not wait: %+v", r)
	}
	plain := create(t, p, api.SessionCreateParams{})
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: plain.SessionID, Command: "cat"}, YieldOnInput: true}); !api.IsCode(err, api.CodeInvalidRequest) {
		t.Error(err)
	}
}

// A program is seen waiting on whichever of the machine's terminals it is.
func TestWaitingOnOneOfManyTerminals(t *testing.T) {
	for number := 0; number < 256; {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(master) })
		if number, err = unix.IoctlGetInt(master, unix.TIOCGPTN); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, Config{})
	s := onTTY(t, p, "dash")
	ctx, cancel := context.WithTimeout(t.Context(), trltest.Patience)
	defer cancel()
	r, err := p.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `printf 'name? '; read x`}, YieldOnInput: true})
	if err != nil || r.State != api.ExecRunning || r.Stdout != "name? " {
		t.Errorf("%+v, %v", r, err)
	}
}
