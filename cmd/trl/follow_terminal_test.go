package main_test

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// A person follows events, the output of a command and the log of a daemon, and
// leaves each with ctrl-c.
func TestPersonFollows(t *testing.T) {
	o := newTerminalRig(t)
	alice := o.window("alice", 24, 100)
	leave := func() {
		t.Helper()
		alice.keys("C-c")
		alice.line("echo left $?")
		alice.waitFor("^left 130$")
	}
	alice.line("trl events")
	o.await("alice sees an event", func() bool {
		if _, err := o.agent.CreateSession(t.Context(), api.SessionCreateParams{Name: "probe"}); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(alice.text(), " probe created")
	})
	leave()

	id := o.session(24, 80)
	command := o.start(id, `while read -r line; do echo "heard $line"; done`)
	alice.line("clear; trl logs -f -s " + id)
	if err := o.typeText(command, "hello\n"); err != nil {
		t.Fatal(err)
	}
	alice.waitFor("^heard hello$")
	leave()
	if session := o.trl("session", "info", id); !strings.Contains(session, "running") {
		t.Errorf("ctrl-c has reached the command: %s", session)
	}

	// A daemon in the foreground of another window logs to that.
	bob := o.window("bob", 24, 100)
	bob.line("trl --socket $HOME/bob.sock serve")
	bob.waitFor("serving on .*bob.sock")
	alice.line("clear; trl --socket $HOME/bob.sock logs")
	alice.waitFor("logs to the terminal /dev/pts/[0-9]+")
	bob.keys("C-c")
	bob.waitFor("stopped")
	bob.line("clear; trl --socket $HOME/bob.sock serve --detach")
	bob.waitFor(`trl stop. ends it`)
	alice.line("clear; trl --socket $HOME/bob.sock logs -f")
	alice.waitFor("INFO +serving event=ready")
	bob.line("clear; trl --socket $HOME/bob.sock stop")
	bob.waitFor("there were no sessions")
	alice.waitFor("INFO +stopped event=stopped")
	leave()
}
