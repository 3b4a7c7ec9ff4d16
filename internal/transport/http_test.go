package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
)

// webSessions answers every method, so that what a request is refused by can
// only be the door.
type webSessions struct {
	fakeSessions
	text string // what exec e-1 wrote; it has ended
}

func (webSessions) Create(_ context.Context, p api.SessionCreateParams) (*api.Session, error) {
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

func (webSessions) Watch(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, api.Feed, error) {
	return &api.SessionWatchResult{StreamID: "st-w"}, nil, nil
}

func (webSessions) Resize(context.Context, api.SessionResizeParams) (*api.SessionResizeResult, error) {
	return &api.SessionResizeResult{}, nil
}

func (webSessions) Screen(context.Context, api.SessionScreenParams) (*api.SessionScreenResult, error) {
	return &api.SessionScreenResult{}, nil
}

func (s webSessions) Stream(ctx context.Context, p api.ExecStreamParams) (*api.ExecStreamResult, api.Feed, error) {
	_, feed, err := s.Attach(ctx, api.ExecAttachParams{ExecID: "e-1"})
	return &api.ExecStreamResult{ExecID: "e-1", StreamID: "st-e"}, feed, err
}

// Attach follows e-1, which wrote text, in chunks of three bytes; or e-quiet,
// which never writes anything.
func (s webSessions) Attach(_ context.Context, p api.ExecAttachParams) (*api.ExecAttachResult, api.Feed, error) {
	switch {
	case p.ExecID == "e-quiet":
		return &api.ExecAttachResult{StreamID: "st-q"}, func(ctx context.Context, _ func(api.Notification) error) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil
	case p.ExecID != "e-1":
		return nil, nil, api.Errorf(api.CodeExecNotFound, "no such exec")
	case p.From > int64(len(s.text)):
		return nil, nil, api.Errorf(api.CodeInvalidParams, "past the end")
	}
	feed := func(_ context.Context, send func(api.Notification) error) error {
		at := p.From
		for at < int64(len(s.text)) {
			next := min(at+3, int64(len(s.text)))
			chunk := api.Chunk{StreamID: "st-e", ExecID: "e-1", Type: api.ChunkStdout, Offset: at, Next: next}
			if err := send(&api.RawChunk{Chunk: chunk, Raw: []byte(s.text[at:next])}); err != nil {
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

// webRig is an HTTP server with a token of each kind.
type webRig struct {
	t       testing.TB
	address string
	url     string
	tokens  string // the file
	client  *http.Client
	server  *HTTPServer
}

// The secrets of the tokens in a rig's file, by what is special about them.
var webTokens = []struct {
	secret  string
	scope   access.Scope
	expires string
}{
	{"trl_reader", access.ScopeRead, ""},
	{"trl_runner", access.ScopeRun, "2999-01-01T00:00:00Z"},
	{"trl_admin", access.ScopeAdmin, ""},
	{"trl_expired", access.ScopeAdmin, "2020-01-01T00:00:00Z"},
}

// writeTokens writes a token file with those of webTokens that are not left
// out.
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
		records = append(records, fmt.Sprintf(`{"id": "t-%d", "scope": %q, "created": "2020-01-01T00:00:00Z"%s, "sha256": %q}`,
			i, token.scope, expires, hex.EncodeToString(hash[:])))
	}
	text := `{"version": 1, "tokens": [` + strings.Join(records, ", ") + `]}`
	fresh := path + ".fresh"
	if err := errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, path)); err != nil {
		t.Fatal(err)
	}
}

// webOptions is what a test changes about a rig.
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
	sessions := webSessions{fakeSessions: fakeSessions{run: o.run}, text: o.text}
	o.config.Handler = service.New(service.Config{Sessions: sessions, System: fakeSystem{}})
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
	carrier := &http.Transport{TLSClientConfig: &tls.Config{}, DisableCompression: true}
	rig.client = &http.Client{Transport: carrier, Timeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- rig.server.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		carrier.CloseIdleConnections()
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

// webRequest is one HTTP request of a test; "-" is a header that is not sent.
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

// The columns of the door table.
var doorTokens = []struct{ name, secret string }{
	{"no token", ""},
	{"wrong token", "trl_wrong"},
	{"expired token", "trl_expired"},
	{"read token", "trl_reader"},
	{"run token", "trl_runner"},
	{"admin token", "trl_admin"},
}

// What the door lets through, by token.
var (
	open     = [6]int{200, 200, 200, 200, 200, 200}
	forRead  = [6]int{401, 401, 401, 200, 200, 200}
	forRun   = [6]int{401, 401, 401, 403, 200, 200}
	upgrades = [6]int{401, 401, 401, 426, 426, 426} // without the headers of an upgrade
	missing  = [6]int{401, 401, 401, 404, 404, 404}
	notThat  = [6]int{401, 401, 401, 405, 405, 405}
)

// methodDoors is who may call each method, with params it takes.
var methodDoors = map[string]struct {
	params string
	want   [6]int
}{
	api.MethodSystemPing:     {`{}`, forRead},
	api.MethodSystemInfo:     {`{}`, forRead},
	api.MethodSystemStats:    {`{}`, forRead},
	api.MethodSessionCreate:  {`{}`, forRun},
	api.MethodSessionList:    {`{}`, forRead},
	api.MethodSessionInfo:    {`{"session_id":"s-1"}`, forRead},
	api.MethodSessionDestroy: {`{"session_id":"s-1"}`, forRun},
	api.MethodSessionWatch:   {`{}`, forRead},
	api.MethodSessionResize:  {`{"session_id":"s-1","rows":24,"cols":80}`, forRun},
	api.MethodSessionScreen:  {`{"session_id":"s-1"}`, forRead},
	api.MethodExecRun:        {`{"session_id":"s-1","command":"true"}`, forRun},
	api.MethodExecStream:     {`{"session_id":"s-1","command":"true"}`, forRun},
	api.MethodExecAttach:     {`{"exec_id":"e-1"}`, forRead},
	api.MethodExecOutput:     {`{"exec_id":"e-1"}`, forRead},
	api.MethodExecInput:      {`{"exec_id":"e-1","data":"x"}`, forRun},
	api.MethodExecSignal:     {`{"exec_id":"e-1","signal":"INT"}`, forRun},
	api.MethodExecCancel:     {`{"exec_id":"e-1"}`, forRun},
	api.MethodExecInfo:       {`{"exec_id":"e-1"}`, forRead},
	api.MethodExecList:       {`{"session_id":"s-1"}`, forRead},
	api.MethodStreamClose:    {`{"stream_id":"st-1"}`, forRead},
}

type door struct {
	webRequest
	want [6]int
}

func doors(t *testing.T) map[string]door {
	rows := map[string]door{
		"healthz":             {webRequest{method: "GET", path: "/healthz"}, open},
		"POST healthz":        {webRequest{method: "POST", path: "/healthz"}, [6]int{405, 405, 405, 405, 405, 405}},
		"metrics":             {webRequest{method: "GET", path: "/metrics"}, forRead},
		"POST metrics":        {webRequest{method: "POST", path: "/metrics"}, notThat},
		"events":              {webRequest{method: "GET", path: "/v1/execs/e-1/stream"}, forRead},
		"events of none":      {webRequest{method: "GET", path: "/v1/execs/e-2/stream"}, missing},
		"events past the end": {webRequest{method: "GET", path: "/v1/execs/e-1/stream?from=9999"}, [6]int{401, 401, 401, 400, 400, 400}},
		"events from nowhere": {webRequest{method: "GET", path: "/v1/execs/e-1/stream?from=x"}, [6]int{401, 401, 401, 400, 400, 400}},
		"POST events":         {webRequest{method: "POST", path: "/v1/execs/e-1/stream"}, notThat},
		"websocket":           {webRequest{method: "GET", path: "/ws"}, upgrades},
		"POST websocket":      {webRequest{method: "POST", path: "/ws"}, notThat},
		"GET rpc":             {webRequest{method: "GET", path: "/rpc"}, notThat},
		"root":                {webRequest{method: "GET", path: "/"}, missing},
		"rpc below":           {webRequest{method: "POST", path: "/rpc/"}, missing},
		"healthz below":       {webRequest{method: "GET", path: "/healthz/"}, missing},
		"exec without id":     {webRequest{method: "GET", path: "/v1/execs//stream"}, missing},
		"no method":           {webRequest{method: "POST", path: "/rpc", body: call("no.such", "{}")}, forRead},
		"wrong params":        {webRequest{method: "POST", path: "/rpc", body: call("exec.run", "{}")}, forRun},
		"not JSON":            {webRequest{method: "POST", path: "/rpc", body: "{"}, [6]int{401, 401, 401, 400, 400, 400}},
		"a batch":             {webRequest{method: "POST", path: "/rpc", body: "[" + call("system.ping", "{}") + "]"}, [6]int{401, 401, 401, 400, 400, 400}},
		"no id":               {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","method":"system.ping"}`}, [6]int{401, 401, 401, 204, 204, 204}},
		"no id and no scope":  {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","method":"session.create"}`}, [6]int{401, 401, 401, 403, 204, 204}},
		"a form":              {webRequest{method: "POST", path: "/rpc", body: "a=b", contentType: "text/plain"}, [6]int{401, 401, 401, 415, 415, 415}},
		"no type":             {webRequest{method: "POST", path: "/rpc", body: "{}", contentType: "-"}, [6]int{401, 401, 401, 415, 415, 415}},
		"a preflight":         {webRequest{method: "OPTIONS", path: "/rpc"}, notThat},
	}
	served := service.New(service.Config{Sessions: webSessions{}}).Methods()
	for _, m := range served {
		row, ok := methodDoors[m.Name]
		if !ok {
			t.Errorf("nothing says who may call %s", m.Name)
		}
		rows[m.Name] = door{webRequest{method: "POST", path: "/rpc", body: call(m.Name, row.params)}, row.want}
	}
	if len(methodDoors) != len(served) {
		t.Errorf("%d methods are served, and the table has %d", len(served), len(methodDoors))
	}
	return rows
}

// TestDoor is who gets in, for each path and each method, by the token and by
// where the request says it comes from and goes to.
func TestDoor(t *testing.T) {
	rig := startHTTP(t, webOptions{http: HTTPConfig{Hosts: []string{"trl.example:7040"}, Origins: []string{"https://ui.example"}}})
	_, port, _ := net.SplitHostPort(rig.address)
	fronts := map[string]struct {
		host, origin string
		want         int // 0: it depends on the token
	}{
		"by address":         {"", "", 0},
		"by name":            {"localhost:" + port, "", 0},
		"by IPv6":            {"[::1]:" + port, "", 0},
		"in capitals":        {"LOCALHOST.:" + port, "", 0},
		"by a listed name":   {"trl.example", "", 0},
		"a listed origin":    {"", "https://ui.example", 0},
		"rebound":            {"evil.example:" + port, "", 421},
		"rebound, same site": {"evil.example:" + port, "http://evil.example:" + port, 421},
		"rebound, listed":    {"evil.example", "https://ui.example", 421},
		"a name like ours":   {"localhost.evil.example", "", 421},
		"an address like it": {"127.0.0.1.evil.example", "", 421},
		"another address":    {"192.0.2.1:" + port, "", 421},
		"a foreign origin":   {"", "https://evil.example", 403},
		"our own as origin":  {"", "http://127.0.0.1:" + port, 403},
		"origin null":        {"", "null", 403},
		"a longer origin":    {"", "https://ui.example.evil", 403},
	}
	for name, row := range doors(t) {
		t.Run(name, func(t *testing.T) {
			for front, from := range fronts {
				for i, token := range doorTokens {
					q := row.webRequest
					q.token, q.host, q.origin = token.secret, from.host, from.origin
					want := from.want
					if want == 0 {
						want = row.want[i]
					}
					response, body := rig.do(q)
					if response.StatusCode != want {
						t.Errorf("%s, %s: %d, want %d (%s)", front, token.name, response.StatusCode, want, body)
						continue
					}
					checkRefusal(t, response, body)
				}
			}
		})
	}
}

// checkRefusal checks what every refusal has in common.
func checkRefusal(t *testing.T, response *http.Response, body string) {
	t.Helper()
	codes := map[int]api.Code{401: api.CodeUnauthorized, 403: api.CodeForbidden, 421: api.CodeForbidden}
	want, ok := codes[response.StatusCode]
	if !ok {
		return
	}
	if r := decodeReply(t, body); !api.IsCode(r.Error, want) || r.Error.Hint == "" {
		t.Errorf("%d with %s", response.StatusCode, body)
	}
	if has := response.Header.Get("WWW-Authenticate") != ""; has != (want == api.CodeUnauthorized) {
		t.Errorf("%d with WWW-Authenticate: %t", response.StatusCode, has)
	}
}

func TestTokensInOtherPlacesDoNotCount(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	ping := webRequest{method: "POST", path: "/rpc", body: call("system.ping", "{}")}
	for name, change := range map[string]func(*webRequest){
		"query":   func(q *webRequest) { q.path += "?token=trl_admin&access_token=trl_admin" },
		"cookie":  func(q *webRequest) { q.header = http.Header{"Cookie": {"token=trl_admin"}} },
		"basic":   func(q *webRequest) { q.header = http.Header{"Authorization": {"Basic dHJsX2FkbWluOg=="}} },
		"bare":    func(q *webRequest) { q.header = http.Header{"Authorization": {"trl_admin"}} },
		"two":     func(q *webRequest) { q.header = http.Header{"Authorization": {"Bearer trl_admin", "Bearer trl_wrong"}} },
		"a hash":  func(q *webRequest) { h := sha256.Sum256([]byte("trl_admin")); q.token = hex.EncodeToString(h[:]) },
		"a part":  func(q *webRequest) { q.token = "trl_admi" },
		"nothing": func(q *webRequest) { q.header = http.Header{"Authorization": {"Bearer "}} },
	} {
		t.Run(name, func(t *testing.T) {
			q := ping
			change(&q)
			if response, body := rig.do(q); response.StatusCode != 401 {
				t.Errorf("%d %s", response.StatusCode, body)
			}
		})
	}
	ping.header = http.Header{"Authorization": {"bearer  trl_admin"}} // the word has no case
	if response, body := rig.do(ping); response.StatusCode != 200 {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestListedOriginsAreToldSo(t *testing.T) {
	rig := startHTTP(t, webOptions{http: HTTPConfig{Origins: []string{"https://UI.example/"}}})
	response, _ := rig.do(webRequest{
		method: "OPTIONS", path: "/rpc", origin: "https://ui.example", contentType: "-",
		header: http.Header{"Access-Control-Request-Method": {"POST"}},
	})
	if response.StatusCode != 204 || response.Header.Get("Access-Control-Allow-Origin") != "https://ui.example" ||
		!strings.Contains(response.Header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	response, _ = rig.do(webRequest{method: "GET", path: "/healthz"})
	if response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("who sends no origin is told of one")
	}
}

func TestRPCOverHTTP(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	for name, tc := range map[string]struct {
		body, want string
		code       api.Code
	}{
		"a result":       {body: call("exec.run", `{"session_id":"s","command":"hi"}`), want: `"stdout":"hi"`},
		"pretty printed": {body: "\n{\n \"jsonrpc\": \"2.0\",\r\n \"id\": 1,\n \"method\": \"system.ping\"\n}\n", want: `"version":"test"`},
		"a stream":       {body: call("exec.stream", `{"session_id":"s","command":"hi"}`), want: `"exec_id":"e-1"`},
		"an error":       {body: call("exec.attach", `{"exec_id":"none"}`), code: api.CodeExecNotFound},
		"no such method": {body: call("nothing", `{}`), code: api.CodeMethodNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: tc.body, token: "trl_runner", contentType: "application/json; charset=utf-8"})
			if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %v", response.StatusCode, response.Header)
			}
			r := decodeReply(t, body)
			if string(r.ID) != "1" || !strings.Contains(string(r.Result), tc.want) || tc.code != "" && !api.IsCode(r.Error, tc.code) {
				t.Errorf("answer %s", body)
			}
		})
	}
}

func TestTooLargeOverHTTP(t *testing.T) {
	const limit = 2 << 10
	rig := startHTTP(t, webOptions{config: Config{MaxRequestBytes: limit}})
	long := call("exec.run", `{"session_id":"s","command":"`+strings.Repeat("x", limit)+`"}`)
	fits := call("exec.run", `{"session_id":"s","command":""}`)
	fits += strings.Repeat(" ", limit-len(fits))
	announced, body := rig.do(webRequest{method: "POST", path: "/rpc", body: long, token: "trl_runner"})
	if r := decodeReply(t, body); announced.StatusCode != 413 || !api.IsCode(r.Error, api.CodeInvalidRequest) || r.Error.Details["max_request_bytes"] != 2048. {
		t.Errorf("%d %s", announced.StatusCode, body)
	}
	// The same without its length.
	r, err := http.NewRequestWithContext(t.Context(), "POST", rig.url+"/rpc", io.MultiReader(strings.NewReader(long)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_runner")
	r.Header.Set("Content-Type", "application/json")
	response, err := rig.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if q := decodeReply(t, string(text)); response.StatusCode != 413 || string(q.ID) != "1" {
		t.Errorf("%d %s", response.StatusCode, text)
	}
	if response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: fits, token: "trl_runner"}); response.StatusCode != 200 {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestRateOfOneToken(t *testing.T) {
	rig := startHTTP(t, webOptions{limits: access.Limits{Rate: 1}})
	ping := webRequest{method: "POST", path: "/rpc", body: call("system.ping", "{}"), token: "trl_reader"}
	var refused *http.Response
	var text string
	for range 20 { // a slow machine may let several through
		if response, body := rig.do(ping); response.StatusCode == 429 {
			refused, text = response, body
			break
		}
	}
	if refused == nil {
		t.Fatal("20 requests at once pass at one a second")
	}
	r := decodeReply(t, text)
	ms, ok := r.Error.Details["retry_after_ms"].(float64)
	if !api.IsCode(r.Error, api.CodeRuntimeUnavailable) || !ok || ms < 1 || ms > 1000 || refused.Header.Get("Retry-After") != "1" {
		t.Errorf("%v %s", refused.Header, text)
	}
	ping.token = "trl_admin"
	if response, body := rig.do(ping); response.StatusCode != 200 {
		t.Errorf("another token: %d %s", response.StatusCode, body)
	}
	if response, _ := rig.do(webRequest{method: "GET", path: "/healthz"}); response.StatusCode != 200 {
		t.Errorf("healthz: %d", response.StatusCode)
	}
}

func TestRequestsAtOnceOfOneToken(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{limits: access.Limits{Concurrent: 1}, run: g.run})
	run := webRequest{method: "POST", path: "/rpc", body: call("exec.run", `{"session_id":"s","command":"x"}`), token: "trl_runner"}
	first := make(chan int, 1)
	go func() {
		response, _ := rig.do(run)
		first <- response.StatusCode
	}()
	<-g.begun
	if response, body := rig.do(run); response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	close(g.open)
	if status := <-first; status != 200 {
		t.Errorf("the first: %d", status)
	}
	if response, body := rig.do(run); response.StatusCode != 200 {
		t.Errorf("afterwards: %d %s", response.StatusCode, body)
	}
}

func TestDisconnectCancelsOverHTTP(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run})
	ctx, cancel := context.WithCancel(t.Context())
	body := strings.NewReader(call("exec.run", `{"session_id":"s","command":"mine"}`))
	r, err := http.NewRequestWithContext(ctx, "POST", rig.url+"/rpc", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_runner")
	r.Header.Set("Content-Type", "application/json")
	go func() {
		if response, err := rig.client.Do(r); err == nil {
			response.Body.Close()
		}
	}()
	<-g.begun
	cancel()
	if got := <-g.cancelled; got != "mine" {
		t.Errorf("cancelled %q", got)
	}
}

// raw sends bytes over a connection of their own and returns what comes back
// until it is closed.
func (rig *webRig) raw(text string) string {
	rig.t.Helper()
	nc, err := net.Dial("tcp", rig.address)
	if err != nil {
		rig.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, text); err != nil {
		rig.t.Fatal(err)
	}
	answer, err := io.ReadAll(nc)
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		rig.t.Fatalf("after %q: %v", answer, err)
	}
	return string(answer)
}

func TestSlowAndOversizedRequestsEnd(t *testing.T) {
	const soon = 200 * time.Millisecond
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) {
		h.bodyTime = soon
		h.http.ReadHeaderTimeout = soon
		h.http.IdleTimeout = soon
	}})
	for name, tc := range map[string]struct{ sent, want string }{
		"nothing":           {"", ""},
		"half a header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ", ""},
		"half a body":       {"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_admin\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 408 "},
		"a body, no token":  {"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 401 "},
		"a body, no host":   {"POST /rpc HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "HTTP/1.1 421 "},
		"a long header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n", "HTTP/1.1 431 "},
		"no Host":           {"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"two Hosts":         {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", "HTTP/1.1 400 "},
		"HTTP/1.0, no Host": {"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 421 "},
		"another in target": {"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 421 "},
		"an empty Origin":   {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: \r\nConnection: close\r\n\r\n", "HTTP/1.1 403 "},
	} {
		t.Run(name, func(t *testing.T) {
			got := rig.raw(tc.sent)
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %.200q, want %q", got, tc.want)
			}
		})
	}
}

// A call takes as long as it takes: the time for the body is for the body.
func TestLongCallOutlivesTheBodyTimeout(t *testing.T) {
	g := newGate()
	rig := startHTTP(t, webOptions{run: g.run, prepare: func(h *HTTPServer) { h.bodyTime = 50 * time.Millisecond }})
	go func() {
		<-g.begun
		time.Sleep(200 * time.Millisecond) // what is waited for is that nothing happens
		close(g.open)
	}()
	response, body := rig.do(webRequest{method: "POST", path: "/rpc", body: call("exec.run", `{"session_id":"s","command":"x"}`), token: "trl_runner"})
	if response.StatusCode != 200 || !strings.Contains(body, `"stdout":"x"`) {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestOpenConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := &boundedListener{Listener: l, room: make(chan struct{}, 1), closed: make(chan struct{})}
	dialTCP := func() net.Conn {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	dialTCP()
	dialTCP()
	first, err := bounded.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan net.Conn, 1)
	go func() {
		nc, _ := bounded.Accept()
		second <- nc
	}()
	select {
	case <-second:
		t.Error("there was no room")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // gives back one place, not two
	nc := <-second
	if nc == nil {
		t.Fatal("the second was not accepted")
	}
	third := make(chan error, 1)
	go func() {
		_, err := bounded.Accept()
		third <- err
	}()
	bounded.Close()
	if err := <-third; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	nc.Close()
}

// event is one Server-Sent Event.
type event struct{ id, kind, data string }

// readEvents reads events until the end, or until there are n; comments are
// counted.
func readEvents(t testing.TB, r io.Reader, n int) (events []event, comments int) {
	t.Helper()
	var e event
	for in := bufio.NewScanner(r); len(events) < n && in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch {
		case in.Text() == "":
			if e != (event{}) {
				events = append(events, e)
			}
			e = event{}
		case name == "":
			comments++
			if comments == n {
				return events, comments
			}
		case name == "id":
			e.id = value
		case name == "event":
			e.kind = value
		case name == "data":
			e.data = value
		default:
			t.Fatalf("line %q", in.Text())
		}
	}
	return events, comments
}

func (rig *webRig) events(t testing.TB, path, lastID string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", rig.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer trl_reader")
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := rig.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	return response
}

// Cut off after every event, a client that sends back the last id has it all,
// byte for byte.
func TestEventsResume(t *testing.T) {
	const text = "line one\nline \"two\"\\\r\n\ttab\x01 and <é>\n"
	rig := startHTTP(t, webOptions{text: text})
	whole, _ := readEvents(t, rig.events(t, "/v1/execs/e-1/stream", "").Body, 1000)
	for cut := range whole {
		var got bytes.Buffer
		lastID := ""
		take := func(events []event) {
			for _, e := range events {
				var chunk api.Chunk
				if err := json.Unmarshal([]byte(e.data), &chunk); err != nil {
					t.Fatalf("%s: %v", e.data, err)
				}
				if e.kind != "chunk" || e.id != strconv.FormatInt(chunk.Next, 10) {
					t.Errorf("event %+v", e)
				}
				content, err := chunk.Content()
				if err != nil {
					t.Fatal(err)
				}
				got.Write(content) // a cut character is base64
				lastID = e.id
			}
		}
		response := rig.events(t, "/v1/execs/e-1/stream?from=0", "")
		first, _ := readEvents(t, response.Body, cut)
		response.Body.Close()
		take(first)
		// The header is stronger than the address, which a browser repeats.
		rest, _ := readEvents(t, rig.events(t, "/v1/execs/e-1/stream?from=0", lastID).Body, 1000)
		take(rest)
		if got.String() != text {
			t.Errorf("cut after %d: %q", cut, got.String())
		}
		if last := rest[len(rest)-1]; !strings.Contains(last.data, `"type":"exit"`) {
			t.Errorf("the last event is %+v", last)
		}
	}
}

func TestQuietEventsShowLife(t *testing.T) {
	rig := startHTTP(t, webOptions{prepare: func(h *HTTPServer) { h.quiet = 10 * time.Millisecond }})
	response := rig.events(t, "/v1/execs/e-quiet/stream", "")
	if _, comments := readEvents(t, response.Body, 3); comments != 3 {
		t.Errorf("%d signs of life", comments)
	}
	response.Body.Close()
}

func TestRevokedTokenEndsItsEvents(t *testing.T) {
	rig := startHTTP(t, webOptions{})
	response := rig.events(t, "/v1/execs/e-quiet/stream", "")
	writeTokens(t, rig.tokens, "trl_reader")
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if response, _ := rig.do(webRequest{method: "GET", path: "/metrics", token: "trl_reader"}); response.StatusCode != 401 {
		t.Errorf("then %d", response.StatusCode)
	}
}

// FuzzHTTP throws bytes at a server. Whatever they are, what comes back is
// HTTP, and the next one who asks is answered.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"", "\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer trl_runner\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
		"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		"GET /v1/execs/e-1/stream HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: -1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\x05hello",
	} {
		f.Add([]byte(seed))
	}
	rig := startHTTP(f, webOptions{prepare: func(h *HTTPServer) {
		h.http.ReadHeaderTimeout = 50 * time.Millisecond
		h.http.IdleTimeout = 50 * time.Millisecond
		h.bodyTime = 50 * time.Millisecond
	}})
	f.Fuzz(func(t *testing.T, sent []byte) {
		nc, err := net.Dial("tcp", rig.address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = nc.Write(sent)
		_ = nc.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(nc)
		if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.")) {
			t.Errorf("%q was answered with %q", sent, answer)
		}
		if response, err := rig.client.Get(rig.url + "/healthz"); err != nil || response.StatusCode != 200 {
			t.Errorf("after %q: %v", sent, err)
		} else {
			response.Body.Close()
		}
	})
}
