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

// A person types into a program, detaches, and attaches again to the same
// screen.
func TestPersonComesBack(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 24, 80)
	alice.attach(id)
	alice.waitFor("you are typing")
	alice.line("x=6; echo $((x*7))")
	alice.waitFor("^42$")
	alice.waitForScreen(id)
	alice.keys(detach)
	alice.waitFor("detached; `trl attach " + id + "` attaches again")
	alice.attach("--write " + id)
	alice.waitForScreen(id)
	alice.line("echo $((x*8))")
	alice.waitFor("^48$")
	alice.line("exit 3")
	alice.waitFor("session " + id + " has ended: its command exited with status 3")
	alice.line("echo status $?")
	alice.waitFor("^status 0$")
	alice.attach(id)
	alice.waitFor("hint: `trl screen " + id)
}

// A person detaches from an editor and attaches again from windows of other
// sizes.
func TestPersonInAnEditor(t *testing.T) {
	o := newTerminalRig(t, "vim.tiny")
	id := o.session(20, 60)
	file := filepath.Join(o.daemon.Dir, "tmp", "letter")
	o.start(id, "vim.tiny -u NONE -N -i NONE "+file)
	o.await("vim runs", func() bool { return o.screen(id).Alternate })
	alice := o.window("alice", 20, 60)
	alice.attach("--write " + id)
	alice.waitFor(`^~$`)
	alice.line("iDear Bob,")
	alice.waitFor("Dear Bob,")
	alice.typeText("日本語")
	alice.keys("Up", "End")
	alice.typeText(" hello")
	alice.waitFor("Dear Bob, hello")
	alice.waitForScreen(id)
	if got, want := alice.format("#{cursor_y},#{cursor_x}"), o.screen(id).Cursor; got != fmt.Sprintf("%d,%d", want.Row, want.Column) {
		t.Errorf("the cursor is at %s, not at %+v", got, want)
	}
	alice.keys(detach)
	alice.waitFor("detached")

	large := o.window("large", 30, 100)
	large.attach("--read-only " + id)
	large.waitFor("read-only; q quits")
	before := o.screen(id).Text
	o.await("a larger window shows it all", func() bool { return strings.HasPrefix(large.text(), before) })
	large.keys("q")
	large.waitFor("detached")

	// The terminal takes the size of the client that types, and its own size
	// again when that client leaves.
	large.attach("-w " + id)
	o.await("vim has the size", func() bool { r := o.screen(id); return r.Rows == 30 && r.Cols == 100 })
	large.waitForScreen(id)
	large.keys("Enter")
	large.typeText("more")
	large.keys("Escape")
	large.line(":wq")
	large.waitFor("the command has ended")
	large.keys(detach)
	large.waitFor("detached")
	if r := o.screen(id); r.Rows != 20 || r.Cols != 60 {
		t.Errorf("the size is %dx%d after all clients left", r.Rows, r.Cols)
	}
	letter, err := os.ReadFile(file)
	if err != nil || string(letter) != "Dear Bob, hello\nmore\n日本語\n" {
		t.Errorf("the letter: %q, %v", letter, err)
	}
}

// An agent and two people share a session: one types, the others watch and see
// who it is.
func TestPeopleBesideAnAgent(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80)
	command := o.start(id, `while read -r line; do echo "got $line"; done`)
	alice, bob := o.window("alice", 24, 80), o.window("bob", 24, 80)
	alice.attach(id)
	alice.waitFor("read-only: another client runs commands")
	alice.line("not this")
	alice.waitFor("--write takes the keyboard")
	if err := o.typeText(command, "agent 1\n"); err != nil {
		t.Fatal(err)
	}
	alice.waitFor("^got agent 1$")
	alice.keys("q")
	alice.waitFor("detached")
	alice.attach("--write " + id)
	alice.waitFor("you are typing")
	alice.line("alice 1")
	alice.waitFor("^got alice 1$")

	err := o.typeText(command, "agent 2\n")
	if !api.IsCode(err, api.CodeSessionHeld) {
		t.Fatalf("the agent can type while a person does: %v", err)
	}
	holder, _ := api.AsError(err).Details["holder"].(string)
	if !regexp.MustCompile(`^\S+@\S+ pts/\d+$`).MatchString(holder) {
		t.Errorf("the holder in the agent's error is %q", holder)
	}

	bob.attach(id)
	bob.waitFor("read-only: " + regexp.QuoteMeta(holder) + " is typing")
	bob.keys("q")
	bob.waitFor("detached")
	bob.attach("--write " + id)
	bob.waitFor("you are typing")
	alice.waitFor("pts/[0-9]+ took the keyboard")
	alice.line("too late")
	bob.line("bob 1")
	bob.waitFor("^got bob 1$")
	alice.waitFor("^got bob 1$")
	bob.keys(detach)
	bob.waitFor("detached")
	if err := o.typeText(command, "agent 3\n"); err != nil {
		t.Fatal(err)
	}
	alice.waitFor("^got agent 3$")
	alice.keys("C-c")
	alice.waitFor("detached")
	if text := o.screen(id).Text; strings.Contains(text, "too late") || strings.Contains(text, "not this") {
		t.Errorf("refused input was typed:\n%s", text)
	}
}

// The session's terminal follows the window of the client that types; others
// see what fits.
func TestPersonResizesTheWindow(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 30, 100)
	alice.attach(id)
	alice.waitFor("you are typing")
	alice.line("stty size")
	alice.waitFor("^30 100$")
	small := o.window("small", 8, 40)
	small.attach(id)
	small.waitFor("8x40 of 30x100 shown")
	alice.size(20, 60)
	o.await("the session is resized", func() bool { r := o.screen(id); return r.Rows == 20 && r.Cols == 60 })
	alice.keys("C-l")
	alice.line("stty size; seq 30; echo bottom")
	alice.waitFor("^20 60$|^bottom$")
	small.waitFor("^bottom$")
	small.waitFor("^30$")
	alice.waitForScreen(id)
	alice.keys(detach)
	alice.waitFor("detached")
	o.await("the size is restored", func() bool { r := o.screen(id); return r.Rows == 24 && r.Cols == 80 })
}

// Output that is too fast to read does not keep a person from leaving.
func TestPersonInAFlood(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80)
	flood := o.start(id, "yes 'a flood'")
	alice := o.window("alice", 24, 80)
	for range 2 {
		trltest.Undisturbed(t, func() error {
			alice.attach(id)
			alice.waitFor("^a flood$")
			alice.waitFor("read-only")
			began := time.Now()
			alice.keys(detach)
			alice.waitFor("detached")
			if took := time.Since(began); took > 5*time.Second {
				return fmt.Errorf("leaving took %s", took)
			}
			return nil
		})
	}
	alice.attach("--write " + id)
	alice.waitFor("you are typing")
	alice.keys("C-c")
	alice.waitFor("the command has ended")
	alice.waitForScreen(id)
	alice.keys(detach)
	alice.waitFor("detached")
	if e, err := o.agent.ExecInfo(t.Context(), api.ExecParams{ExecID: flood}); err != nil || e.Signal != "SIGINT" {
		t.Errorf("%+v, %v", e, err)
	}
}

// However `trl attach` ends, the keyboard is released, and the window is
// restored unless the process was killed.
func TestPersonIsKilled(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80, "bash", "--norc", "--noprofile")
	alice := o.window("alice", 24, 80)
	settings := func() string {
		out, err := exec.Command("stty", "-a", "-F", alice.format("#{pane_tty}")).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	// A shell that edits its line changes the settings: compare while cat runs.
	alice.line("cat")
	sane := ""
	o.await("cat reads", func() bool { sane = settings(); return strings.Contains(sane, " icanon") })
	alice.keys("C-d")
	alice.waitFor("^% $")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		alice.line("clear; (trl attach -w " + id + "; cat)")
		alice.waitFor("you are typing")
		if alice.format("#{alternate_on}") != "1" {
			t.Error("attach paints on the window's main screen")
		}
		out, err := exec.Command("pgrep", "-f", "trl attach -w "+id).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(out)) {
			if pid, err := strconv.Atoi(field); err == nil {
				if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "trl\n" {
					_ = syscall.Kill(pid, sig) // it runs: the window shows it
				}
			}
		}
		o.await("the window's own screen is back", func() bool { return alice.format("#{alternate_on}#{cursor_flag}") == "01" })
		o.await("the settings are back", func() bool { return settings() == sane })
		alice.keys("C-d")
		o.await("the keyboard is free", func() bool { return o.leaseHolder(id) == "" })
	}
	alice.attach("-w " + id)
	alice.waitFor("you are typing")
	if err := syscall.Kill(alice.attached(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o.leaseHolder(id) == "" {
		t.Error("the lease ended at once after its holder was killed")
	}
	o.await("the keyboard is free", func() bool { return o.leaseHolder(id) == "" })
}

// A person at their own prompt: lines, statuses, programs that need a terminal.
func TestPersonAtAShell(t *testing.T) {
	o := newTerminalRig(t, "vim.tiny")
	alice := o.window("alice", 24, 80)
	alice.line("trl shell --shell bash --cwd /usr")
	alice.waitFor(`^/usr \$$`)
	own := o.trl("session", "list", "-q")
	alice.line("cd lib; false")
	alice.waitForPrompt(own, 1, "/usr/lib")
	alice.line("read -r x; stty size; echo got $x")
	alice.line("some words")
	alice.waitFor("^got some words$")
	alice.waitFor("^24 80$")
	alice.line("printf without-an-end")
	alice.waitFor("^without-an-end$")
	alice.waitForPrompt(own, 0, "/usr/lib")
	alice.line("vim.tiny -u NONE -N -i NONE")
	alice.waitFor("^~$")
	alice.keys(":", "q", "Enter")
	alice.waitFor("^without-an-end$")
	alice.waitForPrompt(own, 0, "/usr/lib")
	alice.line("clear; sleep 1000; echo not said")
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.waitForPrompt(own, 130, "/usr/lib")
	alice.keys("Up", "C-c") // discard the line
	alice.waitFor(`^\[130.* \$ clear; sleep .*\^C\n\[130.* \$$`)
	alice.line("sleep 500 &")
	alice.waitFor("it left processes running: [0-9]+ ")
	alice.line("exit 7")
	alice.waitFor(`^% $`)
	alice.line("echo status $?")
	alice.waitFor("^status 7$")
	if left := o.trl("session", "list", "-q"); left != "" {
		t.Errorf("the shell's session still exists: %s", left)
	}

	alice.line("clear; trl shell --cwd /")
	alice.waitFor(`^/ \$$`)
	alice.line("cat")
	alice.line("to a cat")
	alice.waitFor("^to a cat\nto a cat$")
	alice.keys(detach)
	alice.waitFor("keeps running in (s-[a-z0-9]+); `trl attach --write s-")
	id := o.trl("session", "list", "-q")
	alice.attach("--write " + id)
	alice.waitFor("^to a cat\nto a cat$")
	alice.line("again")
	alice.waitFor("^again\nagain$")
	alice.keys("C-d")
	alice.waitFor("the command has ended")
	alice.keys(detach)
	alice.waitFor("detached")
	o.trl("session", "destroy", id)

	alice.line("clear; trl shell")
	alice.waitFor(`\$$`)
	alice.keys("C-d")
	alice.waitFor(`^% $`)
	alice.line("echo status $?")
	alice.waitFor("^status 0$")
}

// A person works in the agent's session, with and without a terminal.
func TestPersonAtTheAgentsShell(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80)
	alice := o.window("alice", 30, 90)
	if _, err := o.agent.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "cd /usr; word=secret"}}); err != nil {
		t.Fatal(err)
	}
	alice.line("trl shell " + id)
	alice.waitFor(`^/usr \$$`)
	busy := o.start(id, "read line")
	alice.line("echo $word $line; read -r more; stty size")
	alice.waitFor("waiting for the command that runs")
	if err := o.typeText(busy, "from the agent\n"); err != nil {
		t.Fatalf("the agent can't type while a person waits: %v", err)
	}
	alice.waitFor("^secret from the agent$")
	o.await("the person has the keyboard", func() bool { r := o.screen(id); return o.leaseHolder(id) != "" && r.Rows == 30 && r.Cols == 90 })
	info, err := o.agent.SessionInfo(t.Context(), api.SessionParams{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.typeText(info.ExecID, "meddling\n"); !api.IsCode(err, api.CodeSessionHeld) {
		t.Errorf("the agent can type into the person's command: %v", err)
	}
	alice.line("mine")
	alice.waitFor("^30 90$")
	alice.waitForPrompt(id, 0, "/usr")
	o.await("the keyboard is free", func() bool { return o.leaseHolder(id) == "" })
	r, err := o.agent.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: id, Command: "echo $more; stty size"}})
	if err != nil || r.Stdout != "mine\r\n24 80\r\n" {
		t.Errorf("%q, %v", r.Stdout, err)
	}

	waits := o.start(id, "read line")
	alice.line("clear; echo never")
	alice.waitFor("ctrl-c cancels")
	alice.keys("C-c")
	given := alice.waitForPrompt(id, 143, "/usr")
	alice.typeText("echo neither")
	alice.keys("Enter", "C-c") // before it reports that it waits
	alice.waitFor("^" + given + ` echo neither\n.*ctrl-c cancels$`)
	again := alice.waitForPrompt(id, 143, "/usr")
	alice.waitFor("^" + given + ` echo neither\n.*ctrl-c cancels\n(.*\n)*` + again + "$")
	if err := o.typeText(waits, "\n"); err != nil {
		t.Fatal(err)
	}
	hold, err := o.agent.Hold(t.Context(), api.SessionHoldParams{SessionID: id, Holder: "another agent"})
	if err != nil {
		t.Fatal(err)
	}
	alice.line("clear; echo refused")
	alice.waitFor("another agent has taken the session's keyboard")
	if _, err := o.agent.Release(t.Context(), api.SessionReleaseParams{SessionID: id, Lease: hold.Lease}); err != nil {
		t.Fatal(err)
	}
	alice.keys("C-d")
	alice.waitFor(`^% $`)

	pipes := o.trl("session", "create", "--shell", "bash", "--cwd", "/")
	alice.line("clear; trl shell " + pipes)
	alice.waitFor(`^/ \$$`)
	alice.line("cat; tty")
	o.awaitProgram("cat") // otherwise part of the line may be typed before the terminal echoes
	alice.line("a line")
	alice.waitFor("^a line\na line$")
	alice.keys("C-d")
	alice.waitFor("not a tty")
	alice.waitForPrompt(pipes, 1, "/")
	alice.typeText("cat\rtyped ahead\r")
	alice.waitFor("^typed ahead\ntyped ahead$")
	alice.keys("C-d")
	alice.waitForPrompt(pipes, 0, "/")
	alice.line("clear; sleep 1000")
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.waitForPrompt(pipes, 130, "/")
	alice.line(`clear; (trap "" INT; sleep 1000)`)
	o.awaitProgram("sleep")
	alice.keys("C-c")
	alice.pressUntil("C-c", `^\[1[0-9][0-9](, [0-9.]+m?s)?\] / \$$`)
	alice.line("clear; sleep 1000; echo on")
	o.awaitProgram("sleep")
	alice.keys(detach)
	alice.waitFor("keeps running in " + pipes + "; `trl exec output --follow e-")
}

// Without a terminal the errors suggest other commands.
func TestNoTerminal(t *testing.T) {
	o := newTerminalRig(t)
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
	alice.attach(id)
	alice.waitFor("has no terminal")
	alice.waitFor("hint: `trl exec list " + id)
	alice.line("clear; trl attach s-none; trl attach --detach-key x " + id)
	alice.waitFor("SESSION_NOT_FOUND")
	alice.waitFor(`write a key such as ctrl-\\`)
	direct := o.session(24, 80, "cat")
	alice.line("clear; trl shell " + direct)
	alice.waitFor("runs a single command, not a shell")
	alice.line("clear; trl attach --detach-key ctrl-t " + direct)
	alice.waitFor("ctrl-t detaches")
	alice.keys(detach) // now an ordinary key, which ends cat
	alice.waitFor("has ended: its command was killed by SIGQUIT")
}

// One person takes the tour to its end, another leaves it.
func TestPersonTakesTheTour(t *testing.T) {
	o := newTerminalRig(t)
	alice := o.window("alice", 40, 100)
	alice.line("trl quickstart")
	for i, key := range []string{"Enter", "Enter", "Space", "Enter", "x", "Enter"} {
		if key == "x" { // not an answer
			alice.keys(key)
			key = "Enter"
		}
		alice.waitFor(fmt.Sprintf(`(?s)%d/7 .*\[Enter continues, q quits\]$`, i+1))
		alice.keys(key)
	}
	alice.waitFor(`has the rest\.\n% $`)
	alice.line("clear; echo status $?")
	alice.waitFor("^status 0$")

	bob := o.window("bob", 40, 100)
	for _, key := range []string{"q", "C-c", "C-d"} {
		bob.line("clear; NO_COLOR=1 trl quickstart")
		bob.waitFor(`(?s)1/7 .*\[Enter continues, q quits\]$`)
		bob.keys(key)
		bob.waitFor(`^% $`)
		bob.line("clear; echo status $?")
		bob.waitFor("^status 0$")
	}
	// While a command runs, ctrl-c is a signal.
	bob.line("clear; trl quickstart; echo status $?")
	for i := range 3 {
		bob.waitFor(fmt.Sprintf(`(?s)%d/7 .*\[Enter continues, q quits\]$`, i+1))
		bob.keys("Enter")
	}
	bob.waitFor(`4321 & sleep 4321`)
	bob.keys("C-c")
	bob.waitFor("status 130$")
	if left, err := filepath.Glob(filepath.Join(o.daemon.Dir, "tmp", "quickstart-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
