package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// startDaemon starts the real program until the test ends.
func startDaemon(t *testing.T, cfg trltest.Config) *trltest.Daemon {
	t.Helper()
	_, err := trltest.Binary()
	trltest.Need(t, err)
	d, err := trltest.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Running() {
			if err := d.Stop(); err != nil {
				t.Errorf("stop: %v\n%s", err, d.Log())
			}
		}
		_ = os.RemoveAll(d.Dir)
	})
	return d
}

func dialDaemon(t *testing.T, d *trltest.Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// withPlace returns a configuration file whose cmd:pod is the daemon.
func withPlace(t *testing.T, d *trltest.Daemon, more string) string {
	t.Helper()
	binary, err := trltest.Binary()
	trltest.Need(t, err)
	file := filepath.Join(t.TempDir(), "config.toml")
	text := more + "\n[place.pod]\ncommand = [\"" + strings.Join([]string{binary, "connect", "--socket", d.Socket}, `", "`) + "\"]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func run(t *testing.T, c *client.Client, session, command string) string {
	t.Helper()
	result, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Stdout
}

// Sessions run in a place, and their daemon finds them again after it was replaced.
func TestSessionsInAPlace(t *testing.T) {
	far := startDaemon(t, trltest.Config{Args: []string{"--node", "k7"}})
	near := startDaemon(t, trltest.Config{Args: []string{"--config", withPlace(t, far, "")}})
	c := dialDaemon(t, near)
	s, err := c.CreateSession(t.Context(), api.SessionCreateParams{Runtime: "cmd:pod"})
	if err != nil {
		t.Fatalf("%v\n%s", err, near.Log())
	}
	if !strings.HasPrefix(s.SessionID, "s-k7-") || s.Runtime != "cmd:pod" {
		t.Errorf("session %s, runtime %s", s.SessionID, s.Runtime)
	}
	if got := run(t, c, s.SessionID, "echo $HOME; x=kept"); !strings.HasPrefix(got, far.Dir) {
		t.Errorf("the command ran in %q", got)
	}
	runtimes := func() []string {
		info, err := c.SystemInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Runtimes
	}
	if diff := cmp.Diff([]string{"host", "cmd:pod"}, runtimes()); diff != "" {
		t.Error(diff)
	}

	var list api.PlaceListResult
	if err := c.Call(t.Context(), api.MethodPlaceList, nil, &list); err != nil || len(list.Places) != 1 || list.Places[0].Name != "k7" || list.Places[0].State != api.PlaceConnected {
		t.Errorf("place.list: %+v, %v", list, err)
	}

	before, err := c.SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "another daemon serves", func() bool {
		now, err := c.SystemInfo(t.Context())
		return err == nil && now.PID != before.PID
	})
	if diff := cmp.Diff([]string{"host", "cmd:pod"}, runtimes()); diff != "" {
		t.Error(diff)
	}
	if got := run(t, c, s.SessionID, "echo $x"); got != "kept\n" {
		t.Errorf("after a restart: %q", got)
	}
	// The end of a daemon does not end the sessions of its places.
	if err := near.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, dialDaemon(t, far), s.SessionID, "echo $x"); got != "kept\n" {
		t.Errorf("in the place: %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(near.Socket), ".places-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDefaultRuntimeWithoutAHost(t *testing.T) {
	far := startDaemon(t, trltest.Config{Args: []string{"--node", "k7"}})
	near := startDaemon(t, trltest.Config{Args: []string{"--config", withPlace(t, far, "host_runtime = \"off\"\ndefault_runtime = \"cmd:pod\"")}})
	c := dialDaemon(t, near)
	s, err := c.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil || s.Runtime != "cmd:pod" {
		t.Fatalf("without a runtime: %+v, %v", s, err)
	}
	if _, err := c.CreateSession(t.Context(), api.SessionCreateParams{Runtime: "host"}); err == nil {
		t.Error("a session of the host was created")
	}
	var removed api.PlaceRemoveResult
	if err := c.Call(t.Context(), api.MethodPlaceRemove, api.PlaceRemoveParams{Runtime: "cmd:pod"}, &removed); err != nil || removed.Name != "k7" {
		t.Errorf("place.remove: %+v, %v", removed, err)
	}
}

func TestAllowedRuntimes(t *testing.T) {
	far := startDaemon(t, trltest.Config{Args: []string{"--node", "k7"}})
	near := startDaemon(t, trltest.Config{Args: []string{"--config", withPlace(t, far, `allowed_runtimes = ["docker:*"]`)}})
	_, err := dialDaemon(t, near).CreateSession(t.Context(), api.SessionCreateParams{Runtime: "cmd:pod"})
	if !api.IsCode(err, api.CodeForbidden) {
		t.Errorf("got %v", err)
	}
}

func TestIdleDaemonExits(t *testing.T) {
	d := startDaemon(t, trltest.Config{Args: []string{"--daemon-ttl-ms", "300ms"}})
	if err := d.AwaitExit(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if log := d.Log(); !strings.Contains(log, `"event":"idle_exit"`) || !strings.Contains(log, `"event":"stopped"`) {
		t.Errorf("log: %s", log)
	}
}

// A result may be as long as the call asks for, also if each byte takes six in JSON.
func TestLongResultsOfAPlace(t *testing.T) {
	far := startDaemon(t, trltest.Config{Args: []string{"--node", "k7"}})
	near := startDaemon(t, trltest.Config{Args: []string{"--config", withPlace(t, far, "")}})
	c := dialDaemon(t, near)
	s, err := c.NewSession(t.Context(), api.SessionCreateParams{Runtime: "cmd:pod"})
	if err != nil {
		t.Fatal(err)
	}
	most := int64(4 << 20)
	result, err := s.RunWith(t.Context(), api.ExecRunParams{MaxOutputBytes: &most, ExecCommand: api.ExecCommand{
		Command: `head -c 4194304 /dev/zero | tr '\000' '\001' | tee /dev/stderr`,
	}})
	if err != nil || len(result.Stdout) != int(most) || len(result.Stderr) != int(most) {
		t.Fatalf("%v, %+.200v", err, result)
	}
}
