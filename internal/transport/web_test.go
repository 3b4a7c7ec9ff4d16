package transport

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// webSessions answers every method, so that a request can only be refused by
// the checks of the HTTP server.
type webSessions struct {
	service.Sessions
	fakeExecs
	text string // output of exec e-1, which has ended
}

func (webSessions) Create(_ context.Context, p api.SessionCreateParams, _ string) (*api.Session, error) {
	return &api.Session{SessionID: "s-1", Tags: p.Tags}, nil
}

func (webSessions) List(context.Context, api.SessionListParams) (*api.SessionListResult, error) {
	return &api.SessionListResult{}, nil
}

func (webSessions) Info(context.Context, api.SessionParams) (*api.SessionInfo, error) {
	return &api.SessionInfo{}, nil
}

func (webSessions) Destroy(context.Context, api.SessionDestroyParams) (*api.SessionDestroyResult, error) {
	return &api.SessionDestroyResult{}, nil
}

func (webSessions) Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	return &api.SessionWatchResult{StreamID: "st-w"}, nil, nil
}

func (webSessions) Resize(context.Context, api.SessionResizeParams) (*api.SessionResizeResult, error) {
	return &api.SessionResizeResult{}, nil
}

func (webSessions) Hold(context.Context, api.SessionHoldParams) (*api.SessionHoldResult, error) {
	return &api.SessionHoldResult{}, nil
}

func (webSessions) Release(context.Context, api.SessionReleaseParams) (*api.SessionReleaseResult, error) {
	return &api.SessionReleaseResult{}, nil
}

func (webSessions) Screen(context.Context, api.SessionScreenParams) (*api.SessionScreenResult, error) {
	return &api.SessionScreenResult{}, nil
}

func (s webSessions) Stream(ctx context.Context, p api.ExecStreamParams) (*api.ExecStreamResult, notify.Feed, error) {
	_, feed, err := s.Attach(ctx, api.ExecAttachParams{ExecID: "e-1"})
	return &api.ExecStreamResult{ExecID: "e-1", StreamID: "st-e"}, feed, err
}

// Attach follows e-1, which wrote text, in chunks of three bytes; or e-quiet,
// which never writes anything.
func (s webSessions) Attach(_ context.Context, p api.ExecAttachParams) (*api.ExecAttachResult, notify.Feed, error) {
	switch {
	case p.ExecID == "e-quiet":
		return &api.ExecAttachResult{StreamID: "st-q"}, func(ctx context.Context, _ func(notify.Notification) error) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil
	case p.ExecID != "e-1":
		return nil, nil, api.Errorf(api.CodeExecNotFound, "no such exec")
	case p.From > int64(len(s.text)):
		return nil, nil, api.Errorf(api.CodeInvalidParams, "past the end")
	}
	feed := func(_ context.Context, send func(notify.Notification) error) error {
		at := p.From
		for at < int64(len(s.text)) {
			next := min(at+3, int64(len(s.text)))
			chunk := api.Chunk{StreamID: "st-e", ExecID: "e-1", Type: api.ChunkStdout, Offset: at, Next: next}
			if err := send(&notify.RawChunk{Chunk: chunk, Raw: []byte(s.text[at:next])}); err != nil {
				return err
			}
			at = next
		}
		return send(&api.Chunk{StreamID: "st-e", ExecID: "e-1", Type: api.ChunkExit, Offset: at, Next: at, Result: &api.ExecResult{ExecID: "e-1"}})
	}
	return &api.ExecAttachResult{StreamID: "st-e", From: p.From}, feed, nil
}

func (webSessions) Output(context.Context, api.ExecOutputParams) (*api.ExecOutputResult, error) {
	return &api.ExecOutputResult{}, nil
}

func (webSessions) Input(context.Context, api.ExecInputParams) (*api.ExecInputResult, error) {
	return &api.ExecInputResult{}, nil
}

func (webSessions) Signal(context.Context, api.ExecSignalParams) (*api.ExecSignalResult, error) {
	return &api.ExecSignalResult{}, nil
}

func (webSessions) Cancel(context.Context, api.ExecCancelParams) (*api.ExecCancelResult, error) {
	return &api.ExecCancelResult{}, nil
}

func (webSessions) ExecInfo(context.Context, api.ExecParams) (*api.ExecResult, error) {
	return &api.ExecResult{}, nil
}

func (webSessions) ExecList(context.Context, api.SessionParams) (*api.ExecListResult, error) {
	return &api.ExecListResult{}, nil
}

// webRig is an HTTP server with one token of each kind.
type webRig struct {
	t       testing.TB
	address string
	url     string
	tokens  string // path of the token file
	client  *http.Client
	server  *HTTPServer
}

// webTokens are the secrets of the tokens in a rig's file, by kind.
var webTokens = []struct {
	secret  string
	scope   access.Scope
	expires string
	tag     string
}{
	{"trl_reader", access.ScopeRead, "", ""},
	{"trl_runner", access.ScopeRun, "2999-01-01T00:00:00Z", ""},
	{"trl_admin", access.ScopeAdmin, "", ""},
	{"trl_expired", access.ScopeAdmin, "2020-01-01T00:00:00Z", ""},
	{"trl_red", access.ScopeAdmin, "", "red"},
}

// writeTokens writes a token file with the webTokens that are not omitted.
func writeTokens(t testing.TB, path string, without ...string) {
	t.Helper()
	var records []string
	for i, token := range webTokens {
		if slices.Contains(without, token.secret) {
			continue
		}
		hash := sha256.Sum256([]byte(token.secret))
		expires := ""
		if token.expires != "" {
			expires = `, "expires": "` + token.expires + `"`
		}
		records = append(records, fmt.Sprintf(`{"id": "t-%d", "scope": %q, "tag": %q, "created": "2020-01-01T00:00:00Z"%s, "sha256": %q}`,
			i, token.scope, token.tag, expires, hex.EncodeToString(hash[:])))
	}
	text := `{"version": 1, "tokens": [` + strings.Join(records, ", ") + `]}`
	fresh := path + ".fresh"
	if err := errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, path)); err != nil {
		t.Fatal(err)
	}
}

// webOptions are the settings of a rig that a test changes.
type webOptions struct {
	config  Config
	http    HTTPConfig
	limits  access.Limits
	run     runFunc
	text    string
	prepare func(*HTTPServer)
}

func startHTTP(t testing.TB, o webOptions) *webRig {
	t.Helper()
	rig := &webRig{t: t, tokens: filepath.Join(t.TempDir(), "tokens.json")}
	writeTokens(t, rig.tokens)
	keys, err := access.OpenKeyring(rig.tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.run == nil {
		o.run = func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
			return &api.ExecResult{Stdout: p.Command}, nil
		}
	}
	if o.text == "" {
		o.text = "what the command wrote\n"
	}
	sessions := webSessions{fakeExecs: fakeExecs{run: o.run}, text: o.text}
	o.config.Handler = service.New(service.Config{Sessions: sessions, Execs: sessions, System: fakeSystem{}})
	s := NewServer(o.config)
	o.http.Keys, o.http.Limits = keys, access.NewLimiter(o.limits)
	if o.http.Metrics == nil {
		o.http.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "trl_sessions 0\n") })
	}
	rig.server = NewHTTPServer(s, o.http)
	if o.prepare != nil {
		o.prepare(rig.server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rig.address = l.Addr().String()
	rig.url = "http://" + rig.address
	if o.http.TLS != nil {
		rig.url = "https://" + rig.address
	}
	roundTripper := &http.Transport{TLSClientConfig: &tls.Config{}, DisableCompression: true}
	rig.client = &http.Client{Transport: roundTripper, Timeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- rig.server.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		roundTripper.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		web := make(chan error, 1)
		go func() { web <- rig.server.Shutdown(ctx) }()
		if err := errors.Join(s.Shutdown(ctx), <-web); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return rig
}

// webRequest is one HTTP request of a test; "-" omits a header.
type webRequest struct {
	method, path, body  string
	token, host, origin string
	contentType, lastID string
	header              http.Header
}

func (rig *webRig) do(q webRequest) (*http.Response, string) {
	rig.t.Helper()
	r, err := http.NewRequestWithContext(rig.t.Context(), q.method, rig.url+q.path, strings.NewReader(q.body))
	if err != nil {
		rig.t.Fatal(err)
	}
	maps.Copy(r.Header, q.header)
	r.Host = q.host
	for name, value := range map[string]string{"Origin": q.origin, "Last-Event-ID": q.lastID} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if q.token != "" {
		r.Header.Set("Authorization", "Bearer "+q.token)
	}
	if q.contentType == "" {
		q.contentType = "application/json"
	}
	if q.contentType != "-" {
		r.Header.Set("Content-Type", q.contentType)
	}
	response, err := rig.client.Do(r)
	if err != nil {
		rig.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		rig.t.Fatal(err)
	}
	return response, string(body)
}

func call(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
}
