package route

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	trltest.Exit(code)
}

// testPlace is a place that is reached by dial.
type testPlace struct {
	name, runtime string
	dial          func(ctx context.Context) (peer.Wire, error)
	foreign       bool // it does not delegate
	shared        bool // its streams share the connection for calls

	mu      sync.Mutex
	conn    *peer.Conn
	streams map[*peer.Conn]bool
	away    error // why it can't be reached; nil: it can
}

func (p *testPlace) Name() string    { return p.name }
func (p *testPlace) Runtime() string { return p.runtime }
func (p *testPlace) Delegates() bool { return !p.foreign }

func (p *testPlace) Touch()            {}
func (p *testPlace) SessionDestroyed() {}

func (p *testPlace) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away == nil && p.conn != nil && !p.conn.Ended()
}

func (p *testPlace) Conn(ctx context.Context) (*peer.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == nil && p.conn != nil && !p.conn.Ended() {
		return p.conn, nil
	}
	c, err := p.connect(ctx)
	if err == nil {
		p.conn = c
		changed()
	}
	return c, err
}

// connect dials. The caller must hold mu.
func (p *testPlace) connect(ctx context.Context) (*peer.Conn, error) {
	if p.away != nil {
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "%s: %w", p.runtime, p.away).With("reason", "unreachable").
			With("retry_after_ms", 10).With("sent", "no").With("runtime", p.runtime)
	}
	w, err := p.dial(ctx)
	if err != nil {
		return nil, api.Errorf(api.CodeRuntimeUnavailable, "%w", err).With("sent", "no")
	}
	c := peer.NewConn(w)
	if !p.foreign {
		line, err := c.Call(ctx, peer.Request{Method: api.MethodSystemDelegate}, nil)
		if err == nil {
			err = peer.Decode(api.MethodSystemDelegate, line, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (p *testPlace) OpenStream(ctx context.Context) (*peer.Conn, bool, func(), error) {
	if p.shared {
		c, err := p.Conn(ctx)
		return c, false, func() {}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := p.connect(ctx)
	if err != nil {
		return nil, false, nil, err
	}
	if p.streams == nil {
		p.streams = map[*peer.Conn]bool{}
	}
	p.streams[c] = true
	return c, true, c.Close, nil
}

// cut ends all connections, as a link that breaks does.
func (p *testPlace) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
	}
	for c := range p.streams {
		c.Close()
	}
	clear(p.streams)
	changed()
}

// leave makes the place unreachable; nil makes it reachable again.
func (p *testPlace) leave(why error) {
	p.mu.Lock()
	p.away = why
	p.mu.Unlock()
	p.cut()
}

// testPlaces are places by their names.
type testPlaces []*testPlace

func (all testPlaces) Find(name string) Place {
	for _, p := range all {
		if p.name == name {
			return p
		}
	}
	return nil
}

func (all testPlaces) Get(_ context.Context, runtime string) (Place, string, error) {
	list := all.All()
	p, inner := longest(list, runtime)
	if p == nil {
		return nil, "", api.Errorf(api.CodeRuntimeNotFound, "no such runtime")
	}
	return p, inner, nil
}

func (all testPlaces) MakesSingle(string) bool { return false }

func (all testPlaces) Single(context.Context, string, api.Limits, string) (Place, func(), error) {
	return nil, nil, nil
}

func (all testPlaces) All() (list []Place) {
	for _, p := range all {
		list = append(list, p)
	}
	return list
}

func (all testPlaces) Changed() <-chan struct{} {
	changes.Lock()
	defer changes.Unlock()
	if changes.next == nil {
		changes.next = make(chan struct{})
	}
	return changes.next
}

// changes wakes those who wait for a change of any place of any test.
var changes struct {
	sync.Mutex
	next chan struct{}
}

func changed() {
	changes.Lock()
	defer changes.Unlock()
	if changes.next != nil {
		close(changes.next)
		changes.next = nil
	}
}

// start starts a daemon and returns it as a place.
func start(t *testing.T, name string) *testPlace {
	t.Helper()
	d, err := trltest.Start(trltest.Config{Args: []string{"--node", name}})
	if err != nil {
		t.Fatal(err)
	}
	p := &testPlace{name: name, runtime: "cmd:" + name, dial: func(ctx context.Context) (peer.Wire, error) {
		c, err := peer.DialUnix(ctx, d.Socket)
		if err != nil {
			return nil, err
		}
		return peer.NewLineWire(c), nil
	}}
	t.Cleanup(func() {
		p.cut()
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(d.Dir)
	})
	return p
}

// user is a client connection to a router.
type user struct {
	t      *testing.T
	router *Router
	ctx    context.Context
	leave  func()
}

func newUser(t *testing.T, r *Router) *user {
	ctx, cancel := context.WithCancel(access.With(t.Context(), access.Actor{Scope: access.ScopeAdmin, Transport: "unix", UID: os.Getuid()}))
	t.Cleanup(cancel)
	return &user{t: t, router: r, ctx: arrival.With(ctx, func() {}), leave: cancel}
}

// try calls a method and decodes the result.
func (u *user) try(method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	got, err := u.router.Call(u.ctx, method, raw)
	clear(raw) // params are valid only until Call returns
	if err != nil || result == nil {
		return err
	}
	answer, ok := got.(json.RawMessage)
	if !ok {
		return errors.New("the result is not raw")
	}
	return json.Unmarshal(answer, result)
}

func (u *user) call(method string, params, result any) {
	u.t.Helper()
	if err := u.try(method, params, result); err != nil {
		u.t.Fatalf("%s: %v", method, err)
	}
}

func (u *user) open(method string, params any) *service.OpenedStream {
	u.t.Helper()
	raw, _ := json.Marshal(params)
	got, err := u.router.Call(u.ctx, method, raw)
	clear(raw)
	if err != nil {
		u.t.Fatalf("%s: %v", method, err)
	}
	return got.(*service.OpenedStream)
}

// session creates one.
func (u *user) session(runtime string) string {
	u.t.Helper()
	var s api.Session
	u.call(api.MethodSessionCreate, api.SessionCreateParams{Runtime: runtime}, &s)
	if s.Runtime != runtime {
		u.t.Fatalf("the session has the runtime %q", s.Runtime)
	}
	return s.SessionID
}

// read reads a stream to its end and returns the output. It checks that chunks are
// contiguous, and calls each before each chunk.
func read(t *testing.T, o *service.OpenedStream, each func(*api.Chunk)) (out []byte, last *api.Chunk) {
	t.Helper()
	at := int64(0)
	err := o.Feed(t.Context(), func(n notify.Notification) error {
		raw, err := n.AppendJSON(nil)
		if err != nil {
			return err
		}
		c := &api.Chunk{}
		if err := c.ParseJSON(raw); err != nil {
			return err
		}
		if c.StreamID != o.StreamID || c.Offset != at || n.Method() != api.NotifyExecChunk {
			t.Errorf("chunk of %s at %d, expected %s at %d", c.StreamID, c.Offset, o.StreamID, at)
		}
		at, last = c.Next, c
		data, err := c.Content()
		out = append(out, data...)
		if each != nil {
			each(c)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, last
}
