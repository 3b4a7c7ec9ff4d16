package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// A person runs commands on their own terminal: size, colours, keys, statuses.
func TestPersonRunsOnATerminal(t *testing.T) {
	o := newTerminalRig(t, "vim.tiny")
	alice := o.window("alice", 20, 70)
	alice.line(`clear; trl run -t -- 'stty size; printf "\033[31mred\033[m\n"; read -r x; echo "got $x"; exit 3'; echo "status $?"`)
	alice.waitFor("^20 70$")
	alice.line("some words")
	alice.waitFor("^some words\ngot some words\nstatus 3$")
	if raw := alice.styled(); !strings.Contains(raw, "\x1b[31mred") {
		t.Errorf("the colour is lost: %q", raw)
	}

	// Ctrl-c is a key of the command, and ctrl-\ too where its session ends with
	// it.
	for key, status := range map[string]string{"C-c": "130", detach: "131"} {
		alice.line(`clear; trl run -t -- 'sleep 1000'; echo "status $?"`)
		o.awaitProgram("sleep")
		alice.keys(key)
		alice.waitFor("status " + status + "$")
	}
	alice.line(`clear; trl run -t --timeout 1s -- 'sleep 1000'; echo "status $?"`)
	alice.waitFor("timed out after")
	alice.waitFor("^status 124$")

	// The terminal follows the window while a program draws on all of it.
	file := filepath.Join(o.daemon.Dir, "tmp", "letter")
	alice.line("clear; trl run -t -- vim.tiny -u NONE -N -i NONE " + file)
	alice.waitFor("^~$")
	own := o.trl("session", "list", "-q")
	alice.size(12, 50)
	o.await("the terminal is resized", func() bool { r := o.screen(own); return r.Rows == 12 && r.Cols == 50 })
	alice.line("iDear Bob,")
	alice.keys("Escape")
	alice.line(":set columns? lines?")
	alice.waitFor("columns=50")
	alice.waitFor("lines=12")
	alice.keys("Enter")
	alice.line(":wq")
	alice.waitFor(`^% $`)
	if letter, err := os.ReadFile(file); err != nil || string(letter) != "Dear Bob,\n\n" {
		t.Errorf("the letter: %q, %v", letter, err)
	}
	if alice.format("#{alternate_on}#{cursor_flag}") != "01" {
		t.Error("the window's own screen is not back")
	}
	if left := o.trl("session", "list", "-q"); left != "" {
		t.Errorf("sessions are left: %s", left)
	}

	// Without a terminal there is only output.
	alice.line("clear; trl run -t -- echo no | cat; trl run -tn -- tty | cat")
	alice.waitFor("needs a terminal")
	alice.waitFor("^/dev/pts/")
}

// A person runs a command in a session that lives on: the command can be left
// running, and other clients can't type meanwhile.
func TestPersonRunsInASession(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80)
	alice := o.window("alice", 20, 100)
	alice.line("clear; trl run -t -s " + id + ` -- 'stty size; cat'; echo "status $?"`)
	alice.waitFor("^20 100$")
	o.awaitProgram("cat")
	alice.line("a line")
	alice.waitFor("^a line\na line$")
	info, err := o.agent.SessionInfo(t.Context(), api.SessionParams{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.typeText(info.ExecID, "meddling\n"); !api.IsCode(err, api.CodeSessionHeld) {
		t.Errorf("the agent can type into the person's command: %v", err)
	}
	alice.keys(detach)
	alice.waitFor("keeps running in " + id + "; `trl attach --write " + id)
	alice.waitFor("^status 0$")
	o.await("the size is restored", func() bool { r := o.screen(id); return r.Rows == 24 && r.Cols == 80 })
	o.trl("input", "--eof", id)
	o.trl("wait", info.ExecID)

	alice.line("clear; trl run -t -s " + id + ` --detach-key ctrl-t -- 'sleep 1000'; echo "status $?"`)
	o.awaitProgram("sleep")
	alice.keys("C-t")
	alice.waitFor("keeps running")
	o.trl("keys", id, "C-c")
	o.await("the session is idle", func() bool {
		info, err := o.agent.SessionInfo(t.Context(), api.SessionParams{SessionID: id})
		return err == nil && info.State == api.StateIdle
	})
	alice.line("clear; trl run -t -s $(trl session create) -- true")
	alice.waitFor("has no terminal")
	alice.waitFor("hint: leave out -t")
}

// However `trl run -t` ends, the window is restored and its session is gone.
func TestPersonWhoRunsIsKilled(t *testing.T) {
	o := newTerminalRig(t)
	alice := o.window("alice", 24, 80)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		alice.line(`clear; trl run -t -- 'printf "\033[?1049hfull screen"; sleep 1000'; echo "status $?"`)
		alice.waitFor("^full screen$")
		if err := syscall.Kill(alice.attached(), sig); err != nil {
			t.Fatal(err)
		}
		alice.waitFor("^status 1[0-9][0-9]$")
		if alice.format("#{alternate_on}") != "0" {
			t.Errorf("%s: the window's own screen is not back", sig)
		}
		alice.line("stty -a")
		alice.waitFor(`[^-]icanon`)
		if left := o.trl("session", "list", "-q"); left != "" {
			t.Errorf("%s: sessions are left: %s", sig, left)
		}
	}
}

// Lines typed on a terminal reach a command on pipes with -i.
func TestPersonTypesLines(t *testing.T) {
	o := newTerminalRig(t)
	alice := o.window("alice", 24, 80)
	alice.line(`clear; trl run -i -- 'cat; tty'; echo "status $?"`)
	o.awaitProgram("cat")
	alice.line("a line")
	alice.waitFor("^a line\na line$")
	alice.keys("C-d")
	alice.waitFor("^not a tty\nstatus 1$")
}

// styled returns what the window shows, with colours.
func (w *window) styled() string {
	w.t.Helper()
	out, err := w.tmux("capture-pane", "-p", "-e", "-t", w.name).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}
