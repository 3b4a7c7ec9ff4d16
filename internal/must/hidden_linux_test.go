package must

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// TestMustHideItsMemory runs a daemon as an unprivileged user: its commands work
// on pipes and on terminals, and cannot read the memory of the daemon, which
// holds the secrets of all sessions.
func TestMustHideItsMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can run a daemon as another user"))
	}
	const unprivileged = 65534
	dir, err := os.MkdirTemp("", "hidden")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "trl") // the test's binary is in a directory of root
	built, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(trltest.Install(built, binary), os.Chown(dir, unprivileged, unprivileged)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "run", "s")
	serve := exec.Command(binary, "serve", "--socket", socket)
	serve.Dir, serve.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	serve.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	var log strings.Builder
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log.String())
		}
	}()
	var c *client.Client
	if err := eventually(trltest.Patience, func() (err error) {
		c, err = client.Dial(t.Context(), socket)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		daemon := daemonOf(serve.Process.Pid)
		for _, tty := range []*api.TTYSize{nil, {Rows: 24, Cols: 80}} {
			for _, shell := range []string{"dash", "bash", "zsh"} {
				s, err := c.CreateSession(t.Context(), api.SessionCreateParams{Shell: shell, TTY: tty})
				if err != nil {
					t.Fatal(err)
				}
				command := fmt.Sprintf("id -u; cat /proc/%d/environ /proc/%d/mem; ls /proc/%d/fd", daemon, daemon, daemon)
				res, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
				if err != nil {
					t.Fatal(err)
				}
				if out := res.Stdout + res.Stderr; !strings.HasPrefix(out, fmt.Sprint(unprivileged)) || strings.Count(out, "Permission denied") != 3 {
					t.Errorf("a command in %s sees %q", shell, out)
				}
			}
		}
		if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := eventually(trltest.Patience, func() error {
			if now := daemonOf(serve.Process.Pid); now == 0 || now == daemon {
				return fmt.Errorf("no daemon other than %d", daemon)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
