package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// A person types into a program, leaves, and comes back to the same screen.
func TestPersonComesBack(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 24, 80)
	alice.attaches(id)
	alice.sees("you are typing")
	alice.line("x=6; echo $((x*7))")
	alice.sees("^42$")
	alice.shows(id)
	alice.keys(detach)
	alice.sees("detached; `trl attach " + id + "` comes back")
	alice.attaches("--write " + id)
	alice.shows(id)
	alice.line("echo $((x*8))")
	alice.sees("^48$")
	alice.line("exit 3")
	alice.sees("session " + id + " has ended: its command exited with status 3")
	alice.line("echo status $?")
	alice.sees("^status 0$")
	alice.attaches(id)
	alice.sees("hint: `trl screen " + id)
}

// An editor is left in the middle, and found again from windows of other sizes.
func TestPersonInAnEditor(t *testing.T) {
	o := newOffice(t, "vim.tiny")
	id := o.session(20, 60)
	file := filepath.Join(o.daemon.Dir, "tmp", "letter")
	o.starts(id, "vim.tiny -u NONE -N -i NONE "+file)
	o.await("vim is there", func() bool { return o.screen(id).Alternate })
	alice := o.window("alice", 20, 60)
	alice.attaches("--write " + id)
	alice.sees(`^~$`)
	alice.line("iDear Bob,")
	alice.sees("Dear Bob,")
	alice.write("日本語")
	alice.keys("Up", "End")
	alice.write(" hello")
	alice.sees("Dear Bob, hello")
	alice.shows(id)
	if got, want := alice.format("#{cursor_y},#{cursor_x}"), o.screen(id).Cursor; got != fmt.Sprintf("%d,%d", want.Row, want.Column) {
		t.Errorf("the cursor is at %s, not at %+v", got, want)
	}
	alice.keys(detach)
	alice.sees("detached")

	large := o.window("large", 30, 100)
	large.attaches("--read-only " + id)
	large.sees("read-only; q leaves")
	before := o.screen(id).Text
	o.await("a larger window shows it all", func() bool { return strings.HasPrefix(large.text(), before) })
	large.keys("q")
	large.sees("detached")

	// Who types gives the editor their size, and takes it away with them.
	large.attaches("-w " + id)
	o.await("vim has the size", func() bool { r := o.screen(id); return r.Rows == 30 && r.Cols == 100 })
	large.shows(id)
	large.keys("Enter")
	large.write("more")
	large.keys("Escape")
	large.line(":wq")
	large.sees("the command has ended")
	large.keys(detach)
	large.sees("detached")
	if r := o.screen(id); r.Rows != 20 || r.Cols != 60 {
		t.Errorf("the size is %dx%d after all have left", r.Rows, r.Cols)
	}
	letter, err := os.ReadFile(file)
	if err != nil || string(letter) != "Dear Bob, hello\nmore\n日本語\n" {
		t.Errorf("the letter: %q, %v", letter, err)
	}
}

// An agent and two people share a session: one types, the others look on and
// are told who it is.
func TestPeopleBesideAnAgent(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80)
	command := o.starts(id, `while read -r line; do echo "got $line"; done`)
	alice, bob := o.window("alice", 24, 80), o.window("bob", 24, 80)
	alice.attaches(id)
	alice.sees("read-only: its commands are somebody's")
	alice.line("not this")
	alice.sees("--write takes over")
	if err := o.types(command, "agent 1\n"); err != nil {
		t.Fatal(err)
	}
	alice.sees("^got agent 1$")
	alice.keys("q")
	alice.sees("detached")
	alice.attaches("--write " + id)
	alice.sees("you are typing")
	alice.line("alice 1")
	alice.sees("^got alice 1$")

	err := o.types(command, "agent 2\n")
	if !api.IsCode(err, api.CodeSessionHeld) {
		t.Fatalf("the agent types beside a person: %v", err)
	}
	holder, _ := api.AsError(err).Details["holder"].(string)
	if !regexp.MustCompile(`^\S+@\S+ pts/\d+$`).MatchString(holder) {
		t.Errorf("the agent is told that %q holds it", holder)
	}

	bob.attaches(id)
	bob.sees("read-only: " + regexp.QuoteMeta(holder) + " is typing")
	bob.keys("q")
	bob.sees("detached")
	bob.attaches("--write " + id)
	bob.sees("you are typing")
	alice.sees("pts/[0-9]+ has taken over")
	alice.line("too late")
	bob.line("bob 1")
	bob.sees("^got bob 1$")
	alice.sees("^got bob 1$")
	bob.keys(detach)
	bob.sees("detached")
	if err := o.types(command, "agent 3\n"); err != nil {
		t.Fatal(err)
	}
	alice.sees("^got agent 3$")
	alice.keys("C-c")
	alice.sees("detached")
	if text := o.screen(id).Text; strings.Contains(text, "too late") || strings.Contains(text, "not this") {
		t.Errorf("what was refused was typed:\n%s", text)
	}
}

// The session's terminal follows the window of who types; others see what fits.
func TestPersonResizesTheWindow(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 30, 100)
	alice.attaches(id)
	alice.sees("you are typing")
	alice.line("stty size")
	alice.sees("^30 100$")
	small := o.window("small", 8, 40)
	small.attaches(id)
	small.sees("8x40 of 30x100 shown")
	alice.size(20, 60)
	o.await("the session follows", func() bool { r := o.screen(id); return r.Rows == 20 && r.Cols == 60 })
	alice.keys("C-l")
	alice.line("stty size; seq 30; echo bottom")
	alice.sees("^20 60$|^bottom$")
	small.sees("^bottom$")
	small.sees("^30$")
	alice.shows(id)
	alice.keys(detach)
	alice.sees("detached")
	o.await("the size is as it was", func() bool { r := o.screen(id); return r.Rows == 24 && r.Cols == 80 })
}

// Output that nobody can read does not keep a person from leaving.
func TestPersonInAFlood(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80)
	flood := o.starts(id, "yes 'a flood'")
	alice := o.window("alice", 24, 80)
	for range 2 {
		trltest.Undisturbed(t, func() error {
			alice.attaches(id)
			alice.sees("^a flood$")
			alice.sees("read-only")
			began := time.Now()
			alice.keys(detach)
			alice.sees("detached")
			if took := time.Since(began); took > 5*time.Second {
				return fmt.Errorf("leaving took %s", took)
			}
			return nil
		})
	}
	alice.attaches("--write " + id)
	alice.sees("you are typing")
	alice.keys("C-c")
	alice.sees("the command has ended")
	alice.shows(id)
	alice.keys(detach)
	alice.sees("detached")
	if e, err := o.agent.ExecInfo(t.Context(), api.ExecParams{ExecID: flood}); err != nil || e.Signal != "SIGINT" {
		t.Errorf("%+v, %v", e, err)
	}
}

// Whatever ends `trl attach`, the session is free again, and the window is as
// it was unless nothing could be done.
func TestPersonIsKilled(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 24, 80)
	settings := func() string {
		out, err := exec.Command("stty", "-a", "-F", alice.format("#{pane_tty}")).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	// A shell that edits its line has settings of its own: it must wait.
	alice.line("cat")
	sane := ""
	o.await("cat reads", func() bool { sane = settings(); return strings.Contains(sane, " icanon") })
	alice.keys("C-d")
	alice.sees("^% $")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		alice.line("clear; (trl attach -w " + id + "; cat)")
		alice.sees("you are typing")
		if alice.format("#{alternate_on}") != "1" {
			t.Error("the window's own screen is painted on")
		}
		out, err := exec.Command("pgrep", "-f", "trl attach -w "+id).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(out)) {
			if pid, err := strconv.Atoi(field); err == nil {
				if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "trl\n" {
					_ = syscall.Kill(pid, sig) // it is there, for it was seen
				}
			}
		}
		o.await("the window's own screen is back", func() bool { return alice.format("#{alternate_on}#{cursor_flag}") == "01" })
		o.await("the settings are back", func() bool { return settings() == sane })
		alice.keys("C-d")
		o.await("the keyboard is free", func() bool { return o.held(id) == "" })
	}
	alice.attaches("-w " + id)
	alice.sees("you are typing")
	if err := syscall.Kill(alice.attached(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o.held(id) == "" {
		t.Error("nobody holds the session of a person who died right now")
	}
	o.await("the keyboard is free", func() bool { return o.held(id) == "" })
}

// A prompt of one's own: lines, statuses, programs that want a terminal.
func TestPersonAtAShell(t *testing.T) {
	o := newOffice(t, "vim.tiny")
	alice := o.window("alice", 24, 80)
	alice.line("trl shell --shell bash --cwd /usr")
	alice.sees(`^/usr \$$`)
	own := o.trl("session", "list", "-q")
	alice.line("cd lib; false")
	alice.prompts(own, 1, "/usr/lib")
	alice.line("read -r x; stty size; echo got $x")
	alice.line("some words")
	alice.sees("^got some words$")
	alice.sees("^24 80$")
	alice.line("printf without-an-end")
	alice.sees("^without-an-end$")
	alice.prompts(own, 0, "/usr/lib")
	alice.line("vim.tiny -u NONE -N -i NONE")
	alice.sees("^~$")
	alice.keys(":", "q", "Enter")
	alice.sees("^without-an-end$")
	alice.prompts(own, 0, "/usr/lib")
	alice.line("clear; sleep 1000; echo not said")
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.prompts(own, 130, "/usr/lib")
	alice.keys("Up", "C-c") // a line that is not wanted after all
	alice.sees(`^\[130.* \$\n\[130.* \$$`)
	alice.line("sleep 500 &")
	alice.sees("it left processes running: [0-9]+ ")
	alice.line("exit 7")
	alice.sees(`^% $`)
	alice.line("echo status $?")
	alice.sees("^status 7$")
	if left := o.trl("session", "list", "-q"); left != "" {
		t.Errorf("the shell's session is left: %s", left)
	}

	alice.line("clear; trl shell --cwd /")
	alice.sees(`^/ \$$`)
	alice.line("cat")
	alice.line("to a cat")
	alice.sees("^to a cat\nto a cat$")
	alice.keys(detach)
	alice.sees("runs on in (s-[a-z0-9]+); `trl attach --write s-")
	id := o.trl("session", "list", "-q")
	alice.attaches("--write " + id)
	alice.sees("^to a cat\nto a cat$")
	alice.line("again")
	alice.sees("^again\nagain$")
	alice.keys("C-d")
	alice.sees("the command has ended")
	alice.keys(detach)
	alice.sees("detached")
	o.trl("session", "destroy", id)

	alice.line("clear; trl shell")
	alice.sees(`\$$`)
	alice.keys("C-d")
	alice.sees(`^% $`)
	alice.line("echo status $?")
	alice.sees("^status 0$")
}

// A person works in the agent's session, with and without a terminal.
func TestPersonAtTheAgentsShell(t *testing.T) {
	o := newOffice(t)
	id := o.session(24, 80)
	alice := o.window("alice", 30, 90)
	if _, err := o.agent.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "cd /usr; word=secret"}}); err != nil {
		t.Fatal(err)
	}
	alice.line("trl shell " + id)
	alice.sees(`^/usr \$$`)
	busy := o.starts(id, "read line")
	alice.line("echo $word $line; read -r more; stty size")
	alice.sees("waiting for the command that runs")
	if err := o.types(busy, "from the agent\n"); err != nil {
		t.Fatalf("a person who waits keeps the agent from typing: %v", err)
	}
	alice.sees("^secret from the agent$")
	o.await("the person has the keyboard", func() bool { r := o.screen(id); return o.held(id) != "" && r.Rows == 30 && r.Cols == 90 })
	info, err := o.agent.SessionInfo(t.Context(), api.SessionParams{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.types(info.ExecID, "meddling\n"); !api.IsCode(err, api.CodeSessionHeld) {
		t.Errorf("the agent types into the person's command: %v", err)
	}
	alice.line("mine")
	alice.sees("^30 90$")
	alice.prompts(id, 0, "/usr")
	o.await("the keyboard is free", func() bool { return o.held(id) == "" })
	r, err := o.agent.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "echo $more; stty size"}})
	if err != nil || r.Stdout != "mine\r\n24 80\r\n" {
		t.Errorf("%q, %v", r.Stdout, err)
	}

	waits := o.starts(id, "read line")
	alice.line("clear; echo never")
	alice.sees("ctrl-c gives up")
	alice.keys("C-c")
	given := alice.prompts(id, 143, "/usr")
	alice.write("echo neither")
	alice.keys("Enter", "C-c") // before it is told to wait
	alice.sees("^" + given + ` echo neither\n.*ctrl-c gives up$`)
	again := alice.prompts(id, 143, "/usr")
	alice.sees("^" + given + ` echo neither\n.*ctrl-c gives up\n(.*\n)*` + again + "$")
	if err := o.types(waits, "\n"); err != nil {
		t.Fatal(err)
	}
	hold, err := o.agent.Hold(t.Context(), api.SessionHoldParams{SessionID: id, Holder: "another agent"})
	if err != nil {
		t.Fatal(err)
	}
	alice.line("clear; echo refused")
	alice.sees("another agent has taken the session's keyboard")
	if _, err := o.agent.Release(t.Context(), api.SessionReleaseParams{SessionID: id, Lease: hold.Lease}); err != nil {
		t.Fatal(err)
	}
	alice.keys("C-d")
	alice.sees(`^% $`)

	pipes := o.trl("session", "create", "--shell", "bash", "--cwd", "/")
	alice.line("clear; trl shell " + pipes)
	alice.sees(`^/ \$$`)
	alice.line("cat; tty")
	o.awaitProgram("cat") // else it may be typed in part before the terminal shows it
	alice.line("a line")
	alice.sees("^a line\na line$")
	alice.keys("C-d")
	alice.sees("not a tty")
	alice.prompts(pipes, 1, "/")
	alice.write("cat\rtyped ahead\r")
	alice.sees("^typed ahead\ntyped ahead$")
	alice.keys("C-d")
	alice.prompts(pipes, 0, "/")
	alice.line("clear; sleep 1000")
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.prompts(pipes, 130, "/")
	alice.line(`clear; (trap "" INT; sleep 1000)`)
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.pressesUntil("C-c", `^\[1[0-9][0-9](, [0-9.]+m?s)?\] / \$$`)
	alice.line("clear; sleep 1000; echo on")
	o.awaitProgram("sleep")
	alice.keys(detach)
	alice.sees("runs on in " + pipes + "; `trl exec output --follow e-")
}

// Without a terminal there are other ways.
func TestNobodyAtATerminal(t *testing.T) {
	o := newOffice(t)
	id := o.trl("session", "create")
	for command, want := range map[string]string{
		"attach " + id: "`trl screen " + id + "` prints",
		"shell":        "`trl run -- COMMAND` runs",
	} {
		cmd := exec.Command(o.binary(), strings.Fields(command)...)
		cmd.Env = o.env
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "needs a terminal") || !strings.Contains(string(out), want) {
			t.Errorf("trl %s: %v\n%s", command, err, out)
		}
	}
	alice := o.window("alice", 24, 80)
	alice.attaches(id)
	alice.sees("has no terminal")
	alice.sees("hint: `trl exec list " + id)
	alice.line("clear; trl attach s-none; trl attach --detach-key x " + id)
	alice.sees("SESSION_NOT_FOUND")
	alice.sees(`write a key such as ctrl-\\`)
	direct := o.session(24, 80, "cat")
	alice.line("clear; trl shell " + direct)
	alice.sees("is one command and no shell")
	alice.line("clear; trl attach --detach-key ctrl-t " + direct)
	alice.sees("ctrl-t detaches")
	alice.keys(detach) // is an ordinary key now, which ends cat
	alice.sees("has ended: its command was killed by SIGQUIT")
}

// A person takes the tour to its end, and another leaves it.
func TestPersonTakesTheTour(t *testing.T) {
	o := newOffice(t)
	alice := o.window("alice", 40, 100)
	alice.line("trl quickstart")
	for i, key := range []string{"Enter", "Enter", "Space", "Enter", "x", "Enter"} {
		if key == "x" { // is no answer
			alice.keys(key)
			key = "Enter"
		}
		alice.sees(fmt.Sprintf(`(?s)%d/7 .*\[Enter goes on, q ends\]$`, i+1))
		alice.keys(key)
	}
	alice.sees(`has the rest\.\n% $`)
	alice.line("clear; echo status $?")
	alice.sees("^status 0$")

	bob := o.window("bob", 40, 100)
	for _, key := range []string{"q", "C-c", "C-d"} {
		bob.line("clear; NO_COLOR=1 trl quickstart")
		bob.sees(`(?s)1/7 .*\[Enter goes on, q ends\]$`)
		bob.keys(key)
		bob.sees(`^% $`)
		bob.line("clear; echo status $?")
		bob.sees("^status 0$")
	}
	// While a command runs the key is a signal.
	bob.line("clear; trl quickstart; echo status $?")
	for i := range 3 {
		bob.sees(fmt.Sprintf(`(?s)%d/7 .*\[Enter goes on, q ends\]$`, i+1))
		bob.keys("Enter")
	}
	bob.sees(`4321 & sleep 4321`)
	bob.keys("C-c")
	bob.sees("status 130$")
	if left, err := filepath.Glob(filepath.Join(o.daemon.Dir, "tmp", "quickstart-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
