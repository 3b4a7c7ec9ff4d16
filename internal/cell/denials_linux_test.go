package cell_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// listed is a session with an allow-list. Its shell can connect by itself.
var listed = api.SessionCreateParams{
	Shell: "bash", Isolation: &api.Isolation{Network: &api.Network{Allow: []string{"allowed.test:443"}}},
}

// ask returns a command that asks the proxy for a host, and prints its answer.
func ask(host string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3128; printf "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n" >&3; head -n 1 <&3; exec 3>&-`, host)
}

// denied runs a command, and returns what the network refused meanwhile, and how
// much of it the result leaves out.
func (r *rig) denied(session, command string) (list []string, left int) {
	r.t.Helper()
	result, err := r.Run(r.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.daemon.Log())
	}
	again, err := r.ExecInfo(r.t.Context(), api.ExecParams{ExecID: result.ExecID})
	if err != nil || len(again.NetworkDenied) != len(result.NetworkDenied) {
		r.t.Errorf("exec.info: %+v, %v", again, err)
	}
	for _, d := range result.NetworkDenied {
		if left += d.Suppressed; d.Message == "" {
			r.t.Errorf("no message: %+v", d)
		}
		list = append(list, fmt.Sprintf("%s:%d", d.Host, d.Port))
	}
	return list, left
}

// The result of a command has what the network refused while it ran, and no other's.
// Neither the death of the daemon nor that of the TRL in the cell changes that.
func TestDeniedInResult(t *testing.T) {
	r := newRig(t)
	s := r.create(listed)
	expect := func(when, command string, want ...string) {
		t.Helper()
		if got, _ := r.denied(s.SessionID, command); !slices.Equal(got, want) {
			t.Errorf("%s: denied %q, want %q", when, got, want)
		}
	}
	expect("one", ask("one.test:443"), "one.test:443")
	expect("none", "true")
	expect("two", ask("two.test:443")+"; "+ask("three.test:80"), "two.test:443", "three.test:80")

	result := r.interrupted(s.SessionID, ask("before.test:443")+"; read line; "+ask("after.test:443"))
	if d := result.NetworkDenied; len(d) != 2 || d[0].Host != "before.test" || d[1].Host != "after.test" {
		t.Errorf("a command that both deaths interrupted: %+v", result)
	}
	expect("after both deaths", ask("four.test:443"), "four.test:443")

	many, left := r.denied(s.SessionID, "for i in $(seq 100); do "+ask("host$i.test:443")+"; done")
	if len(many) != 8 || many[7] != "host100.test:443" {
		t.Errorf("of 100 denials the result has %v", many)
	}
	if told := len(many) + left; told != 100 {
		t.Errorf("the result counts %d denials, want 100", told)
	}
	expect("the next", "true")
}

// No command inherits the log, nor can it write to it.
func TestNoCommandHasTheLog(t *testing.T) {
	r := newRig(t)
	s := r.create(listed)
	if got := r.run(s.SessionID, "ls -l /proc/self/fd | grep denials"); got != "" {
		t.Errorf("a command has inherited %q", got)
	}
	write := `for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in *denials*) echo x >$f && echo written;; esac; done 2>/dev/null`
	if got := r.run(s.SessionID, write); got != "" {
		t.Error("a command can write to the log")
	}
}

// interrupted runs a command that prints a line and then reads one. In between, the
// daemon and the one in the cell die.
func (r *rig) interrupted(session, command string) *api.ExecResult {
	r.t.Helper()
	stream, err := r.Stream(r.t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command, StdinOpen: true}})
	if err != nil {
		r.t.Fatal(err)
	}
	defer stream.Close()
	done := false
	for c, err := range stream.Chunks() {
		switch {
		case err != nil:
			r.t.Fatalf("%v\n%s", err, r.daemon.Log())
		case c.Type == api.ChunkExit:
			return c.Result
		case c.Type == api.ChunkStdout && !done:
			done = true
			r.restartDaemon()
			r.restartInside()
			if _, err := r.Input(r.t.Context(), api.ExecInputParams{ExecID: c.ExecID, Data: "\n"}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.t.Fatal("the stream has no end")
	return nil
}

// restartInside kills the daemon in the only cell, and waits for the next one.
func (r *rig) restartInside() {
	r.t.Helper()
	before := r.inside()
	if before == 0 {
		r.t.Fatalf("no daemon in the cell: %v", r.added())
	}
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	trltest.Eventually(r.t, "another daemon serves the cell", func() bool {
		now := r.inside()
		return now != 0 && now != before
	})
}

// inside returns the process id of the daemon in the only cell; 0 if there is none.
func (r *rig) inside() int {
	for _, p := range r.added() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err == nil && strings.Contains(string(line), "be-daemon") && strings.Contains(string(line), "--node") {
			return p.PID
		}
	}
	return 0
}
