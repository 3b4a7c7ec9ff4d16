package places

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// TestRefusals asks for sessions in places that can't be used. Each error has the
// reason for programs, and words that a person can act on.
func TestRefusals(t *testing.T) {
	d := engines.Docker(t)
	sshd := engines.SSHD(t)
	later := fmt.Sprintf(`{"jsonrpc":"2.0","method":"system.hello","params":{"version":"v99.0.0","protocol":%d,"node":"later"}}`, api.Protocol+1)
	configuration := commandTable("later", []string{"sh", "-c", "echo '" + later + "'; cat >/dev/null"}) +
		commandTable("ended", []string{"sh", "-c", "echo 'pods \"web\" not found' >&2; exit 1"}) +
		commandTable("missing", []string{"/nonexistent/kubectl"}) +
		// Another machine: its uname says so.
		commandTable("sparc", []string{"env", "HOME=" + t.TempDir(), "PATH=" + fakeUname(t) + ":/usr/bin:/bin"}) + "deliver = true\n" +
		commandTable("noproc", []string{"env", "HOME=" + t.TempDir(), "unshare", "-m", "sh", "-c", `while umount -l /proc 2>/dev/null; do :; done; exec "$@"`, "sh"}) + "deliver = true\n"
	r := start(t, configuration)
	stopped := d.Container(t, engines.Busybox, "--stop-timeout", "0")
	d.Run(t, "stop", stopped)
	paused := d.Container(t, engines.Busybox)
	d.Run(t, "pause", paused)
	t.Cleanup(func() { d.Run(t, "unpause", paused) })
	noexec := d.Container(t, engines.Busybox, "--read-only", "--tmpfs", "/tmp:noexec")

	refuse := func(name, runtime, reason string, words ...string) {
		t.Run(name, func(t *testing.T) { r.refused(t, runtime, reason, words...) })
	}
	refuse("no such container", "docker:nosuch", "not_running", "no such container", "docker ps")
	refuse("stopped container", "docker:"+stopped, "not_running", "not running", "docker start "+stopped)
	refuse("paused container", "docker:"+paused, "paused", "docker unpause "+paused)
	refuse("noexec", "docker:"+noexec, "noexec", "--tmpfs /run:exec")
	refuse("no /proc", "cmd:noproc", "no_proc", "mount /proc")
	refuse("other architecture", "cmd:sparc", "no_arch", "sparc")
	refuse("other version", "cmd:later", "version", "v99.0.0", "the same version")
	refuse("command that ends", "cmd:ended", "unreachable", `pods "web" not found`)
	refuse("no such command", "cmd:missing", "no_engine", "/nonexistent/kubectl")
	refuse("access", "ssh:nosuchuser@"+engines.SSHHost, "auth", "Permission denied", "nosuchuser")
	refuse("no shell", "ssh:daemon@"+engines.SSHHost, "no_shell", "not available")
	refuse("no host", "ssh:nosuch.invalid", "unreachable", "nosuch.invalid")
	t.Run("unknown host key", func(t *testing.T) {
		sshd.ForgetHostKey(t)
		r.refused(t, guest, "host_key", "Host key verification failed", "ssh "+engines.Guest+"@"+engines.SSHHost)
	})
	t.Run("no server", func(t *testing.T) {
		sshd.Kill(t)
		defer sshd.Start(t)
		r.refused(t, "ssh:root@"+engines.SSHHost, "unreachable", "Connection refused")
	})
	t.Run("engine not running", func(t *testing.T) {
		d.Kill(t)
		defer d.Start(t)
		r.refused(t, "docker:web", "no_engine", "docker")
	})
	r.stop()
}

// refused asks for a session in a place that can't be used.
func (r *rig) refused(t *testing.T, runtime, reason string, words ...string) {
	t.Helper()
	ctx, cancel := within(t)
	defer cancel()
	_, err := r.client.CreateSession(ctx, api.SessionCreateParams{Runtime: runtime})
	if wrong := unavailable(err, reason, words...); wrong != nil {
		t.Error(wrong)
	} else if e := api.AsError(err); e.Details["runtime"] != runtime || e.Details["sent"] != "no" {
		t.Errorf("details %v", e.Details)
	} else {
		t.Logf("%s\n%s", e.Message, e.Hint)
	}
	// place.check says the same, and it is not an error there.
	var p api.Place
	r.call(api.MethodPlaceCheck, api.PlaceParams{Runtime: runtime}, &p)
	if p.State != api.PlaceUnreachable || p.Reason != reason || p.Message == "" || p.Hint == "" {
		t.Errorf("place.check: %+v", p)
	}
}

// fakeUname returns a directory with a uname of a machine for which there is no TRL.
func fakeUname(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase $1 in -s) echo Linux ;; *) echo sparc64 ;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "uname"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
