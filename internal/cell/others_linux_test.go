package cell_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// A token that is bound to a tag sees only the confined sessions with it.
func TestTags(t *testing.T) {
	binary, err := trltest.Binary()
	trltest.Need(t, err)
	d, err := trltest.Start(trltest.Config{HTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(d.Dir)
	})
	token := func(tag string) *client.Client {
		t.Helper()
		cmd := exec.Command(binary, "token", "create", "--scope", "run", "--tag", tag)
		cmd.Env = trltest.Environ(d.Dir)
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.DialWith(t.Context(), "http://"+d.HTTP, client.Options{Token: strings.TrimSpace(string(text))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ours, theirs := token("ours"), token("theirs")
	s, err := ours.CreateSession(t.Context(), api.SessionCreateParams{Tags: []string{"ours"}, Isolation: weak()})
	if err != nil {
		t.Fatal(err)
	}
	sees := func(when string, c *client.Client, want int) {
		t.Helper()
		list, err := c.ListSessions(t.Context(), api.SessionListParams{})
		if err != nil || len(list.Sessions) != want {
			t.Errorf("%s: %+v, %v, want %d sessions", when, list, err, want)
		}
		_, err = c.SessionInfo(t.Context(), api.SessionParams{SessionID: s.SessionID})
		if want == 0 && !api.IsCode(err, api.CodeSessionNotFound) || want == 1 && err != nil {
			t.Errorf("%s: session.info: %v", when, err)
		}
	}
	sees("its own", ours, 1)
	sees("another's", theirs, 0)
	_, err = theirs.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}})
	if !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("a command in another's session: %v", err)
	}
	if _, err := theirs.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("destroying another's session: %v", err)
	}
	if _, err := ours.DestroySession(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Error(err)
	}
	sees("its own, ended", ours, 1)
	sees("another's, ended", theirs, 0)
}

// Without a holder, cells end with their daemon.
func TestStdio(t *testing.T) {
	binary, err := trltest.Binary()
	trltest.Need(t, err)
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(binary, "serve", "--stdio")
	cmd.Env = trltest.Environ(dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"isolation":{"no_new_privs":true}}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := out.Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), `"no_new_privs":true`) {
		t.Fatalf("%s, %v", answer[:n], err)
	}
	theirs := trltest.Descendants(cmd.Process.Pid)
	if len(theirs) < 3 { // a holder, a daemon and a shell
		t.Errorf("a cell is only %v", theirs)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	trltest.Eventually(t, "nothing is left", func() bool { return len(trltest.Remaining(theirs)) == 0 })
}

// Cells whose daemon, holder and cleaner were killed end with the next start.
func TestNextStart(t *testing.T) {
	r := newRig(t)
	s := r.create(api.SessionCreateParams{})
	r.run(s.SessionID, "setsid sleep 1000 >/dev/null 2>&1 &")
	theirs := r.added()
	all := append(trltest.Descendants(r.daemon.PID), trltest.Process{PID: r.daemon.PID})
	// The holder is stopped first, so that it does not start what is killed again.
	if err := unix.Kill(r.daemon.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.PID == r.daemon.PID || isOf(p, r.before) {
			if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.daemon.AwaitExit(); err == nil {
		t.Error("the holder was not killed")
	}
	if len(trltest.Remaining(theirs)) == 0 {
		t.Fatal("nothing was left to clean up")
	}
	next, err := trltest.Start(trltest.Config{Dir: r.daemon.Dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := next.Stop(); err != nil {
			t.Error(err)
		}
	}()
	trltest.Eventually(t, "the next daemon has killed all", func() bool { return len(trltest.Remaining(theirs)) == 0 })
}

func isOf(p trltest.Process, all []trltest.Process) bool {
	for _, q := range all {
		if p.PID == q.PID {
			return true
		}
	}
	return false
}
