package place

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// startDaemon starts a real daemon and returns it with the command that reaches it.
func startDaemon(t *testing.T, args ...string) (*trltest.Daemon, []string) {
	t.Helper()
	binary, err := trltest.Binary()
	trltest.Need(t, err)
	d, err := trltest.Start(trltest.Config{Args: args})
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
	return d, []string{binary, "connect", "--socket", d.Socket}
}

// openRegistry opens a registry whose cmd:box is command.
func openRegistry(t *testing.T, command []string, change ...func(*Config)) *Registry {
	t.Helper()
	cfg := Config{
		Configured: map[string]Configured{"box": {Command: command}},
		File:       filepath.Join(t.TempDir(), "state", "places.json"),
		Log:        slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	r := Open(cfg)
	t.Cleanup(r.Close)
	return r
}

func getBox(t *testing.T, r *Registry) *Place {
	t.Helper()
	p, rest, err := r.Get(t.Context(), "cmd:box")
	if err != nil || rest != "" {
		t.Fatalf("Get: %v, rest %q", err, rest)
	}
	return p
}

// sessions lists the sessions of a place over conn.
func sessions(t *testing.T, p *Place, conn *peer.Conn) error {
	t.Helper()
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionList, Actor: p.actor()}, nil)
	if err != nil {
		return err
	}
	return peer.Decode(api.MethodSessionList, line, nil)
}

func TestCommandPlace(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	changed := r.Changed()
	if p := r.Find("k7"); p != nil || len(r.All()) != 0 {
		t.Fatalf("a new registry has %v", r.All())
	}
	p := getBox(t, r)
	conn, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sessions(t, p, conn); err != nil {
		t.Error(err)
	}
	select {
	case <-changed:
	default:
		t.Error("no change was announced")
	}
	if p.Name() != "k7" || r.Find("k7") != p || !p.Connected() || !p.Delegates() {
		t.Errorf("place %q, found %v, connected %t", p.Name(), r.Find("k7"), p.Connected())
	}
	// A connection that acts for others takes no request without an actor.
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionList}, nil)
	if err != nil || !api.IsCode(peer.Decode(api.MethodSessionList, line, nil), api.CodeUnauthorized) {
		t.Errorf("without an actor: %s, %v", line, err)
	}
	list := r.List(t.Context()).Places
	if len(list) != 1 || list[0].State != api.PlaceConnected || list[0].Version == "" || len(list[0].Shells) == 0 || !list[0].Configured {
		t.Errorf("list %+v", list)
	}
	if info, err := os.Stat(r.cfg.File); err != nil || info.Mode() != 0o600 {
		t.Errorf("notes: %v, %v", info, err)
	}

	// The next daemon knows the place without connecting to it.
	r.Close()
	next := openRegistry(t, command, func(c *Config) { c.File = r.cfg.File })
	found := next.Find("k7")
	if found == nil || found.Connected() || found.Runtime() != "cmd:box" {
		t.Fatalf("after a restart: %+v", found)
	}
	if conn, err = found.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sessions(t, found, conn); err != nil {
		t.Error(err)
	}
	removed, err := next.Remove(t.Context(), api.PlaceRemoveParams{Runtime: "k7"})
	if err != nil || removed.Runtime != "cmd:box" || removed.Name != "k7" {
		t.Errorf("remove: %+v, %v", removed, err)
	}
	if _, err := os.Stat(r.cfg.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the notes are still there: %v", err)
	}
	if _, err := found.Conn(t.Context()); !api.IsCode(err, api.CodeRuntimeNotFound) {
		t.Errorf("a removed place: %v", err)
	}
}

func TestNamesOfCommandPlaces(t *testing.T) {
	for node, want := range map[string]string{"k7": "k7", "eu1-k7": "k7", "k7-m2": "k7", "eu1": "", "eu1-eu1": "", "a": "", "7a": "", "": ""} {
		r := openRegistry(t, nil, func(c *Config) { c.Node = "eu1" })
		p, err := r.get(parsed{kind: kinds()[0], first: "cmd:box", address: "box"})
		if err != nil {
			t.Fatal(err)
		}
		err = p.admit(&api.Hello{Node: node})
		if refused := err != nil; p.Name() != want || refused != (want == "") {
			t.Errorf("node %q: name %q, %v; want %q", node, p.Name(), err, want)
		}
		if err != nil && asRefusal(err).(*refusal).hint == "" {
			t.Errorf("node %q: %v has no hint", node, err)
		}
	}
}

func TestADaemonWithoutANodeIsNoPlace(t *testing.T) {
	_, command := startDaemon(t)
	r := openRegistry(t, command)
	_, _, err := r.Get(t.Context(), "cmd:box")
	if e := api.AsError(err); e.Code != api.CodeRuntimeUnavailable || e.Details["reason"] != "refused" || !strings.Contains(e.Hint, "--node") {
		t.Errorf("got %v, %v", err, api.AsError(err).Details)
	}
	if len(r.All()) != 0 {
		t.Errorf("it is noted: %v", r.All())
	}
}

func TestBackoff(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	count := func() int {
		text, _ := os.ReadFile(runs)
		return len(text)
	}
	r := openRegistry(t, []string{"sh", "-c", "printf x >>" + runs + "; echo no such pod >&2; exit 3"})
	clock := time.Now()
	r.now = func() time.Time { return clock }
	var wait int64
	for i := 1; i <= 10; i++ {
		_, _, err := r.Get(t.Context(), "cmd:box")
		e := api.AsError(err)
		if e.Code != api.CodeRuntimeUnavailable || e.Details["reason"] != "unreachable" || e.Details["sent"] != "no" || !strings.Contains(e.Message, "no such pod") {
			t.Fatalf("attempt %d: %v, %v", i, err, e.Details)
		}
		if since, _ := e.Details["since"].(api.Time); !since.Equal(r.places[0].down) {
			t.Errorf("since %v", since)
		}
		if e.Details["retry_after_ms"] != nil {
			t.Errorf("a place that was never reached: %v", e.Details)
		}
		wait = r.places[0].retryAt.Sub(clock).Milliseconds()
		if _, _, again := r.Get(t.Context(), "cmd:box"); !strings.Contains(api.AsError(again).Message, "no such pod") || count() != i {
			t.Fatalf("within the backoff: %v after %d runs, want %d", again, count(), i)
		}
		clock = clock.Add(time.Duration(wait)*time.Millisecond + 100*time.Millisecond)
	}
	if wait < 3_000 || wait > 5_000 {
		t.Errorf("the longest wait is %d ms", wait)
	}
	// A check does not wait, and reports what it found.
	clock = clock.Add(-time.Minute)
	before := count()
	found, err := r.Check(t.Context(), api.PlaceParams{Runtime: "cmd:box"})
	if err != nil || found.State != api.PlaceUnreachable || found.Reason != "unreachable" || found.RetryMS == 0 || count() != before+1 {
		t.Errorf("check: %+v, %v after %d runs", found, err, count()-before)
	}
	if len(r.All()) != 0 || len(r.List(t.Context()).Places) != 1 {
		t.Errorf("all %v, list %v", r.All(), r.List(t.Context()).Places)
	}
}

// Callers share one attempt, which goes on when one of them leaves.
func TestOneAttemptForAll(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	wait, open := trltest.Gate(t)
	runs := filepath.Join(t.TempDir(), "runs")
	r := openRegistry(t, []string{"sh", "-c", "printf x >>" + runs + "; " + wait + "; exec " + strings.Join(command, " ")})
	impatient, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	errs := make(chan error, 3)
	for range 3 {
		group.Go(func() {
			_, _, err := r.Get(t.Context(), "cmd:box")
			errs <- err
		})
	}
	left := make(chan error, 1)
	group.Go(func() {
		_, _, err := r.Get(impatient, "cmd:box")
		left <- err
	})
	trltest.Eventually(t, "the command runs", func() bool { _, err := os.Stat(runs); return err == nil })
	leave()
	if err := <-left; !api.IsCode(err, api.CodeRuntimeUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	open()
	group.Wait()
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if text, _ := os.ReadFile(runs); len(text) != 1 {
		t.Errorf("the command ran %d times", len(text))
	}
}

func TestStreams(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	p := getBox(t, r)
	calls, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conns := map[*peer.Conn]int{}
	var releases []func()
	for i := range 5 {
		conn, exclusive, release, err := p.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if exclusive != (i < exclusiveStreams) || conn == calls {
			t.Errorf("stream %d: exclusive %t, shared with calls %t", i, exclusive, conn == calls)
		}
		if err := sessions(t, p, conn); err != nil {
			t.Error(err)
		}
		conns[conn]++
		releases = append(releases, release)
	}
	if len(conns) != maxStreams {
		t.Errorf("%d connections for streams, want %d", len(conns), maxStreams)
	}
	releases[1]()
	releases[1]()
	again, exclusive, release, err := p.OpenStream(t.Context())
	if err != nil || !exclusive || conns[again] != 1 {
		t.Errorf("after a release: exclusive %t, known %d, %v", exclusive, conns[again], err)
	}
	release()
	for _, release := range releases {
		release()
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	clock := time.Now()
	r.now = func() time.Time { return clock }
	p := getBox(t, r)
	conn, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream, _, release, err := p.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unused, _, releaseUnused, err := p.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	releaseUnused()
	clock = clock.Add(idleLimit)
	p.closeIdle()
	<-unused.Done()
	if stream.Ended() || !p.Connected() {
		t.Errorf("the stream's connection has ended: %t; connected %t", stream.Ended(), p.Connected())
	}
	release()
	clock = clock.Add(idleLimit)
	p.closeIdle()
	<-stream.Done()
	<-conn.Done()
	if state := r.List(t.Context()).Places[0].State; state != api.PlaceIdle {
		t.Errorf("state %s", state)
	}
	if again, err := p.Conn(t.Context()); err != nil || again == conn {
		t.Errorf("the next call: %v", err)
	}
}

// A connection with a call that is not answered yet is in use.
func TestBusyConnectionsStay(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	p := getBox(t, r)
	conn, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan struct{}, 1)
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionWatch, Params: json.RawMessage(`{}`), Actor: p.actor()}, func(string, []byte) {
		select {
		case events <- struct{}{}:
		default:
		}
	})
	if err != nil || peer.Decode(api.MethodSessionWatch, line, nil) != nil {
		t.Fatalf("%s, %v", line, err)
	}
	r.mu.Lock()
	p.calls.used = r.now().Add(-2 * idleLimit)
	r.mu.Unlock()
	p.closeIdle()
	if !p.Connected() {
		t.Error("a watched connection was closed")
	}
}

// A connection that is lost soon for the second time counts as a failed attempt; a
// steady one does not.
func TestLostConnection(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	var passed atomic.Int64
	start := time.Now()
	r.now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
	p := getBox(t, r)
	for i, c := range []struct {
		lasted time.Duration
		want   api.PlaceState
	}{{0, api.PlaceIdle}, {steadyAfter, api.PlaceIdle}, {0, api.PlaceIdle}, {0, api.PlaceUnreachable}} {
		conn, err := p.Conn(t.Context())
		if err != nil {
			t.Fatalf("loss %d: %v", i, err)
		}
		passed.Add(int64(c.lasted))
		conn.Fail(errors.New("cut off"))
		trltest.Eventually(t, "the loss is known", func() bool { return r.List(t.Context()).Places[0].State == c.want })
		if r.Find("k7") != p || p.Connected() {
			t.Errorf("loss %d: the place is not noted any more, or connected", i)
		}
	}
	if _, err := p.Conn(t.Context()); !api.IsCode(err, api.CodeRuntimeUnavailable) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("a call gets %v", err)
	}
}

// A place whose daemon dies is refused, with what its command said.
func TestDeadPlace(t *testing.T) {
	d, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	p := getBox(t, r)
	conn, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.Kill()
	<-conn.Done()
	found, err := r.Check(t.Context(), api.PlaceParams{Runtime: "k7"})
	if err != nil || found.State != api.PlaceUnreachable || !strings.Contains(found.Message, "no daemon is serving") {
		t.Errorf("check: %+v, %v", found, err)
	}
}

// A place with live sessions is only removed by force.
func TestRemoveWithLiveSessions(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	p := getBox(t, r)
	p.adopts = false // as if this registry had started the daemon
	conn, err := p.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionCreate, Params: json.RawMessage(`{}`), Actor: p.actor()}, nil)
	if err == nil {
		err = peer.Decode(api.MethodSessionCreate, line, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Remove(t.Context(), api.PlaceRemoveParams{Runtime: "cmd:box"})
	if e := api.AsError(err); e.Code != api.CodeSessionBusy || e.Details["sessions"] != 1 || r.Find("k7") != p {
		t.Errorf("without force: %v, %v", err, e.Details)
	}
	if _, err := r.Remove(t.Context(), api.PlaceRemoveParams{Runtime: "cmd:box", Force: true}); err != nil || r.Find("k7") != nil {
		t.Errorf("with force: %v", err)
	}
}

// Close does not wait for a command that does not answer.
func TestCloseEndsAnAttempt(t *testing.T) {
	wait, open := trltest.Gate(t)
	t.Cleanup(open)
	runs := filepath.Join(t.TempDir(), "runs")
	r := openRegistry(t, []string{"sh", "-c", "printf x >>" + runs + "; " + wait})
	failed := make(chan error, 1)
	go func() {
		_, _, err := r.Get(context.Background(), "cmd:box")
		failed <- err
	}()
	trltest.Eventually(t, "the command runs", func() bool { _, err := os.Stat(runs); return err == nil })
	r.Close()
	if err := <-failed; !api.IsCode(err, api.CodeRuntimeUnavailable) {
		t.Errorf("the call: %v", err)
	}
	if _, _, err := r.Get(t.Context(), "cmd:box"); !api.IsCode(err, api.CodeShuttingDown) {
		t.Errorf("the next call: %v", err)
	}
}

// A place that speaks another protocol is refused, and not noted.
func TestAnotherProtocol(t *testing.T) {
	for name, c := range map[string]struct{ script, reason string }{
		"protocol":  {`echo '{"jsonrpc":"2.0","method":"system.hello","params":{"version":"9.0","protocol":9,"os":"linux","arch":"amd64","node":"k7"}}'; cat`, "version"},
		"no answer": {`echo '{"jsonrpc":"2.0","method":"system.hello","params":{"version":"1.0","protocol":1,"os":"linux","arch":"amd64","node":"k7"}}'; echo oops >&2`, "unknown"},
		"no methods": {`echo '{"jsonrpc":"2.0","method":"system.hello","params":{"version":"1.0","protocol":1,"os":"linux","arch":"amd64","node":"k7"}}'
			for id in 1 2; do read -r line; echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method","data":{"code":"METHOD_NOT_FOUND"}}}'; done; cat`, "version"},
	} {
		r := openRegistry(t, []string{"sh", "-c", c.script})
		_, _, err := r.Get(t.Context(), "cmd:box")
		if e := api.AsError(err); e.Code != api.CodeRuntimeUnavailable || e.Details["reason"] != c.reason {
			t.Errorf("%s: %v, %v", name, err, e.Details)
		}
		if len(r.All()) != 0 {
			t.Errorf("%s: it is noted", name)
		}
	}
}

func TestEndAll(t *testing.T) {
	_, command := startDaemon(t, "--node", "k7")
	r := openRegistry(t, command)
	p := getBox(t, r)
	r.EndAll(t.Context())
	if len(r.All()) != 0 || p.Connected() {
		t.Errorf("left: %v", r.All())
	}
}
