package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// On a terminal, lists and errors have colours and lists fit the width; elsewhere,
// and for users who turn them off, they are plain.
func TestListsOnATerminal(t *testing.T) {
	o := newTerminalRig(t)
	dir := filepath.Join(o.daemon.Dir, "tmp", strings.Repeat("deep/", 30)+"日本語")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	session, err := o.agent.CreateSession(t.Context(), api.SessionCreateParams{Name: "構築", Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	o.start(session.SessionID, "sleep 4714")
	alice := o.window("alice", 24, 80)
	for _, list := range []string{"trl ps", "trl session list", "trl status"} {
		alice.run(list)
		alice.waitFor(`^` + session.SessionID + `  構築 .*…`)
		for line := range strings.Lines(alice.text()) {
			if strings.Contains(line, "deep/") && !strings.HasPrefix(line, session.SessionID) {
				t.Errorf("%s does not fit the terminal:\n%s", list, alice.text())
			}
		}
		alice.wantColours(list, "\x1b[1mID", "\x1b[32mrunning")
	}
	alice.run("trl exec list 構築")
	alice.waitFor(` \d+s ago .* sleep 4714$`)
	alice.run("trl session info missing")
	alice.waitFor(`^trl: no session "missing"`)
	alice.wantColours("an error", "\x1b[31mtrl:", "\x1b[36mhint:")
	for _, plain := range []string{
		"NO_COLOR=1 trl ps", "TERM=dumb trl ps", "trl ps | cat", "NO_COLOR=1 trl session info missing", "trl session info missing 2>&1 | cat",
	} {
		alice.run(plain)
		alice.wantColours(plain)
	}
	alice.run("trl ps | wc -L")
	alice.waitFor(`^[12]\d\d$`) // the whole path
}

// A command that waits for a person is in `trl status`.
func TestStatusNamesWhatWaits(t *testing.T) {
	o := newTerminalRig(t)
	id := o.session(24, 80)
	o.start(id, "stty -echo; printf 'Password: '; read -r secret")
	o.await("status says that it waits", func() bool {
		return strings.Contains(o.trl("status"), "note  waiting  the command in "+id+" waits for password")
	})
	if status := o.trl("status"); !strings.Contains(status, "→ trl attach --write "+id) || strings.Contains(status, "problems  none") {
		t.Errorf("it does not say what to do:\n%s", status)
	}
}

// --mine leaves out the sessions of agents, whose owner has their name.
func TestMyOwnSessions(t *testing.T) {
	o := newTerminalRig(t)
	if _, err := o.agent.CreateSession(t.Context(), api.SessionCreateParams{Client: "robot"}); err != nil {
		t.Fatal(err)
	}
	mine := o.trl("session", "create")
	for _, list := range [][]string{{"ps", "-q"}, {"session", "list", "-q"}, {"ps", "--format", "{{.session_id}}"}} {
		if got := o.trl(append(list, "--mine")...); got != mine {
			t.Errorf("%q lists %q, want %s", list, got, mine)
		}
	}
	if all := o.trl("ps"); !strings.Contains(all, "/robot ") {
		t.Errorf("the owner of the agent's session is not shown:\n%s", all)
	}
}

// run clears the window, runs a command in it and waits until it has ended.
func (w *window) run(command string) {
	w.t.Helper()
	token := trltest.Token() // the window may still show the end of the command before
	w.line("clear; " + command + "; echo ended " + token)
	w.waitFor("^ended " + token + "$")
}

// wantColours checks that the window has all of the escape sequences, or no
// colour if there are none.
func (w *window) wantColours(what string, sequences ...string) {
	w.t.Helper()
	out, err := w.tmux("capture-pane", "-p", "-e", "-t", w.name).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sequence := range sequences {
		if !strings.Contains(string(out), sequence) {
			w.t.Errorf("%s has no %q: %q", what, sequence, out)
		}
	}
	if len(sequences) == 0 && strings.Contains(string(out), "\x1b[") {
		w.t.Errorf("%s has colours: %q", what, out)
	}
}
