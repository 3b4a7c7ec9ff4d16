package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// startPlaceless serves without a local place until the test ends. stop returns what
// servePlaceless returned.
func startPlaceless(t *testing.T, cfg Config) (log *os.File, stop func() error) {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stderr.Close() })
	ctx, cancel := context.WithCancelCause(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- servePlaceless(ctx, cfg, Options{Version: "test", Stderr: stderr})
	}()
	t.Cleanup(func() { cancel(nil) })
	return stderr, func() error {
		cancel(errors.New("the test ends"))
		return <-served
	}
}

func dial(t *testing.T, address, token string) *client.Client {
	t.Helper()
	c, err := client.DialWith(t.Context(), address, client.Options{Token: token, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A machine without a local place serves the same contract: it describes itself, and
// refuses sessions with what to do instead.
func TestServePlaceless(t *testing.T) {
	dir := t.TempDir()
	cfg := Defaults(Environment{Home: dir})
	cfg.Socket, cfg.TokenFile, cfg.HTTP = filepath.Join(dir, "trl.sock"), filepath.Join(dir, "tokens.json"), "127.0.0.1:0"
	secret, _, err := access.File{Path: cfg.TokenFile}.Create(access.NewToken{Name: "test", Scope: access.ScopeRun})
	if err != nil {
		t.Fatal(err)
	}
	stderr, stop := startPlaceless(t, cfg)
	trltest.Eventually(t, "the daemon listens", func() bool {
		nc, err := net.Dial("unix", cfg.Socket)
		if err != nil {
			return false
		}
		nc.Close()
		return true
	})
	local := dial(t, cfg.Socket, "")
	info, err := local.SystemInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address, _ := info.Config["http"].(string)
	for where, c := range map[string]*client.Client{"socket": local, "HTTP": dial(t, "http://"+address, secret)} {
		ping, err := c.Ping(t.Context())
		if err != nil || ping.Version != "test" {
			t.Errorf("%s: ping: %+v, %v", where, ping, err)
		}
		info, err := c.SystemInfo(t.Context())
		if err != nil || len(info.Runtimes) != 0 || len(info.Shells) != 0 || info.Process.Tracking != "none" {
			t.Errorf("%s: info: %+v, %v", where, info, err)
		}
		stats, err := c.Stats(t.Context())
		if err != nil || stats.SessionsTotal != 0 || stats.Goroutines == 0 {
			t.Errorf("%s: stats: %+v, %v", where, stats, err)
		}
		_, err = c.CreateSession(t.Context(), api.SessionCreateParams{})
		if !api.IsCode(err, api.CodeRuntimeUnavailable) || !strings.Contains(api.AsError(err).Hint, "--address") {
			t.Errorf("%s: create: %v, hint %q", where, err, api.AsError(err).Hint)
		}
	}
	if text := get(t, "http://"+address+"/metrics", secret); !strings.Contains(text, `trl_requests_total{code="RUNTIME_UNAVAILABLE",method="session.create"} 2`) {
		t.Error("the metrics do not count the refusals")
	}
	assertFound(t, cfg.Socket)
	if err := servePlaceless(t.Context(), cfg, Options{Stderr: stderr}); !errors.Is(err, ErrServing) {
		t.Errorf("a second daemon on the socket: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for _, name := range []string{cfg.Socket, cfg.Socket + ".lock"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	text, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"msg":"no local place: ` + whyPlaceless() + `","event":"no_local_place"`,
		`"event":"ready","on":"` + cfg.Socket + ` and http://` + address + `"`,
		`"event":"stopping","reason":"the test ends"`, `"event":"stopped"`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
}

// assertFound finds the daemon on a socket, which is this process, and no other.
func assertFound(t *testing.T, socket string) {
	t.Helper()
	found, err := FindPlaceless(socket, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if found.PID() != os.Getpid() || found.WaitExit(0) {
		t.Errorf("found process %d", found.PID())
	}
	found.Close()
	if _, err := FindPlaceless(socket, os.Getppid()); !errors.Is(err, ErrNotServer) {
		t.Errorf("another process: %v", err)
	}
	// A socket without a lock, such as one of a service manager, says nothing about
	// who serves.
	bare := filepath.Join(t.TempDir(), "s")
	if err := os.Symlink(socket, bare); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPlaceless(bare, os.Getpid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a lock: %v", err)
	}
}

// A daemon that cannot serve HTTP as configured serves nothing, and leaves nothing.
func TestPlacelessWithoutTokens(t *testing.T) {
	dir := t.TempDir()
	cfg := Defaults(Environment{Home: dir})
	cfg.Socket, cfg.TokenFile, cfg.HTTP = filepath.Join(dir, "trl.sock"), filepath.Join(dir, "tokens.json"), "127.0.0.1:0"
	_, stop := startPlaceless(t, cfg)
	if err := stop(); err == nil || !strings.Contains(err.Error(), "trl token create") {
		t.Errorf("started: %v", err)
	}
	if _, err := os.Lstat(cfg.Socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func get(t *testing.T, url, token string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
