package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
)

// The columns of the access table.
var accessTokens = []struct{ name, secret string }{
	{"no token", ""},
	{"wrong token", "trl_wrong"},
	{"expired token", "trl_expired"},
	{"read token", "trl_reader"},
	{"run token", "trl_runner"},
	{"admin token", "trl_admin"},
}

// The expected statuses, by token.
var (
	allowAll         = [6]int{200, 200, 200, 200, 200, 200}
	forRead          = [6]int{401, 401, 401, 200, 200, 200}
	forRun           = [6]int{401, 401, 401, 403, 200, 200}
	forAdmin         = [6]int{401, 401, 401, 403, 403, 200}
	upgradeRequired  = [6]int{401, 401, 401, 426, 426, 426} // without upgrade headers
	notFound         = [6]int{401, 401, 401, 404, 404, 404}
	methodNotAllowed = [6]int{401, 401, 401, 405, 405, 405}
)

// methodAccess says who may call each method, with valid params.
var methodAccess = map[string]struct {
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
	api.MethodSessionHold:    {`{"session_id":"s-1","holder":"me"}`, forRun},
	api.MethodSessionRelease: {`{"session_id":"s-1","lease":"l-1"}`, forRun},
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
	api.MethodSystemUpgrade:  {"{}", [6]int{401, 401, 401, 403, 403, 403}}, // only on the Unix socket

	api.MethodPlaceList:    {`{}`, forRead},
	api.MethodPlaceAdd:     {`{"runtime":"docker:web"}`, forAdmin}, // this and the following: answered, with RUNTIME_NOT_FOUND
	api.MethodPlaceCheck:   {`{"runtime":"docker:web"}`, forAdmin},
	api.MethodPlaceRemove:  {`{"runtime":"docker:web"}`, forAdmin},
	api.MethodPlaceUpgrade: {`{"runtime":"docker:web"}`, forAdmin},

	api.MethodSystemDelegate:   {"{}", [6]int{401, 401, 401, 403, 403, 403}}, // only on the Unix socket and stdio
	api.MethodSystemDisconnect: {`{"connection":"c-1"}`, forRead},            // answered, with INVALID_REQUEST
}

type accessCase struct {
	webRequest
	want [6]int
}

func accessCases(t *testing.T) map[string]accessCase {
	rows := map[string]accessCase{
		"healthz":             {webRequest{method: "GET", path: "/healthz"}, allowAll},
		"POST healthz":        {webRequest{method: "POST", path: "/healthz"}, [6]int{405, 405, 405, 405, 405, 405}},
		"metrics":             {webRequest{method: "GET", path: "/metrics"}, forRead},
		"POST metrics":        {webRequest{method: "POST", path: "/metrics"}, methodNotAllowed},
		"mcp":                 {webRequest{method: "POST", path: "/mcp", body: "{}"}, forRead},
		"GET mcp":             {webRequest{method: "GET", path: "/mcp"}, methodNotAllowed},
		"events":              {webRequest{method: "GET", path: "/v1/execs/e-1/stream"}, forRead},
		"events of none":      {webRequest{method: "GET", path: "/v1/execs/e-2/stream"}, notFound},
		"events past the end": {webRequest{method: "GET", path: "/v1/execs/e-1/stream?from=9999"}, [6]int{401, 401, 401, 400, 400, 400}},
		"events from nowhere": {webRequest{method: "GET", path: "/v1/execs/e-1/stream?from=x"}, [6]int{401, 401, 401, 400, 400, 400}},
		"POST events":         {webRequest{method: "POST", path: "/v1/execs/e-1/stream"}, methodNotAllowed},
		"websocket":           {webRequest{method: "GET", path: "/ws"}, upgradeRequired},
		"POST websocket":      {webRequest{method: "POST", path: "/ws"}, methodNotAllowed},
		"GET rpc":             {webRequest{method: "GET", path: "/rpc"}, methodNotAllowed},
		"root":                {webRequest{method: "GET", path: "/"}, notFound},
		"rpc below":           {webRequest{method: "POST", path: "/rpc/"}, notFound},
		"healthz below":       {webRequest{method: "GET", path: "/healthz/"}, notFound},
		"exec without id":     {webRequest{method: "GET", path: "/v1/execs//stream"}, notFound},
		"no method":           {webRequest{method: "POST", path: "/rpc", body: call("no.such", "{}")}, forRead},
		"wrong params":        {webRequest{method: "POST", path: "/rpc", body: call("exec.run", "{}")}, forRun},
		"not JSON":            {webRequest{method: "POST", path: "/rpc", body: "{"}, [6]int{401, 401, 401, 400, 400, 400}},
		"a batch":             {webRequest{method: "POST", path: "/rpc", body: "[" + call("system.ping", "{}") + "]"}, [6]int{401, 401, 401, 400, 400, 400}},
		"no id":               {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","method":"system.ping"}`}, [6]int{401, 401, 401, 204, 204, 204}},
		"no id and no scope":  {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","method":"session.create"}`}, [6]int{401, 401, 401, 403, 204, 204}},
		"an actor":            {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","id":1,"method":"system.ping","actor":{"scope":"read"}}`}, [6]int{401, 401, 401, 400, 400, 400}},
		"an actor and no id":  {webRequest{method: "POST", path: "/rpc", body: `{"jsonrpc":"2.0","method":"system.ping","actor":null}`}, [6]int{401, 401, 401, 400, 400, 400}},
		"a form":              {webRequest{method: "POST", path: "/rpc", body: "a=b", contentType: "text/plain"}, [6]int{401, 401, 401, 415, 415, 415}},
		"no type":             {webRequest{method: "POST", path: "/rpc", body: "{}", contentType: "-"}, [6]int{401, 401, 401, 415, 415, 415}},
		"a preflight":         {webRequest{method: "OPTIONS", path: "/rpc"}, methodNotAllowed},
	}
	served := service.New(service.Config{}).Methods()
	for _, m := range served {
		row, ok := methodAccess[m.Name]
		if !ok {
			t.Errorf("no access rule for %s", m.Name)
		}
		rows[m.Name] = accessCase{webRequest{method: "POST", path: "/rpc", body: call(m.Name, row.params)}, row.want}
	}
	if len(methodAccess) != len(served) {
		t.Errorf("%d methods are served, and the table has %d", len(served), len(methodAccess))
	}
	return rows
}

// seesActor answers requests whose context has an actor.
func seesActor(t *testing.T) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if actor, ok := access.From(r.Context()); !ok || actor.TokenID == "" {
			t.Errorf("a request from %+v was not refused", actor)
		}
	})
}

// TestWhoMayCall checks who may call each path and each method, by token and by the
// Host and Origin headers.
func TestWhoMayCall(t *testing.T) {
	rig := startHTTP(t, webOptions{http: HTTPConfig{MCP: seesActor(t), Hosts: []string{"trl.example:7040"}, Origins: []string{"https://ui.example"}}})
	_, port, _ := net.SplitHostPort(rig.address)
	fronts := map[string]struct {
		host, origin string
		want         int // 0: depends on the token
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
	for name, row := range accessCases(t) {
		t.Run(name, func(t *testing.T) {
			for front, from := range fronts {
				for i, token := range accessTokens {
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

// checkRefusal checks what all refusals have in common.
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
	ping.header = http.Header{"Authorization": {"bearer  trl_admin"}} // the scheme is case-insensitive
	if response, body := rig.do(ping); response.StatusCode != 200 {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestListedOriginsAreAllowed(t *testing.T) {
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
		t.Error("a request without an origin got CORS headers")
	}
}
