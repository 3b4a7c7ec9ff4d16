package transport

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
)

type rawParams = json.RawMessage

// HTTPConfig is the configuration of an HTTPServer.
type HTTPConfig struct {
	Keys    Keys            // required
	Limits  *access.Limiter // required
	Metrics http.Handler    // nil: not served
	MCP     http.Handler    // nil: not served. Its requests carry their actor in the context
	TLS     *tls.Config     // nil: plain HTTP

	// Hosts are the names by which clients may address the server, in addition
	// to loopback names. Origins are those of the pages that may call it; none
	// by default.
	Hosts, Origins []string

	ShuttingDown func() bool // reports whether the daemon is shutting down; nil: never
}

// The limits of HTTP connections. The Server limits the size of requests, the
// Limiter how many a token may make.
const (
	// headerTimeout is for the request line and the headers, which a
	// well-behaved client sends in one packet.
	headerTimeout = 10 * time.Second
	// unauthenticatedTimeout is the most that a client may take for anything
	// before it has sent a valid token: the handshake, a header, a body that is
	// refused, and the pause before the next request. A page sends OPTIONS
	// right before it calls; a monitor that polls /healthz less often
	// reconnects.
	unauthenticatedTimeout = headerTimeout
	// bodyTimeout is for a body: the longest one at 300 kB/s.
	bodyTimeout = 30 * time.Second
	// idleTimeout is how long an idle connection is kept: longer than a model
	// thinks between two calls.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is enough for a token and the headers that proxies add.
	maxHeaderBytes = 16 << 10
	// maxHTTPConns limits the open connections: one for each session that one
	// agent can drive. Each costs a descriptor and some 20 KiB. Unauthenticated
	// connections are closed to make room for new ones; if all are
	// authenticated, new ones wait in the kernel's queue.
	maxHTTPConns = 1024
	// keepAliveInterval is how long a stream may be silent before it sends a
	// comment: proxies close a silent connection after 30 s or 60 s.
	keepAliveInterval = 15 * time.Second
	// tokenPoll is how soon a stream or a WebSocket ends after its token was
	// revoked or has expired.
	tokenPoll = time.Second
	// mcpTimeout is for the whole answer to a tool call, which takes less than
	// a minute; a client that does not read it is disconnected.
	mcpTimeout = 2 * time.Minute
)

// HTTPServer serves HTTP with the method table and the limits of its Server.
type HTTPServer struct {
	guard
	srv  *Server
	cfg  HTTPConfig
	log  *slog.Logger
	http *http.Server

	mu       sync.Mutex
	closed   bool           // no new requests
	open     int            // requests that have not ended
	requests uint64         // requests so far
	running  sync.WaitGroup // requests, including WebSockets; Add is called under mu while not closed

	keepAlive     time.Duration // keepAliveInterval, except in tests
	bodyTime      time.Duration // bodyTimeout, except in tests
	maxConns      int           // maxHTTPConns, except in tests
	unauthTimeout time.Duration // unauthenticatedTimeout, except in tests
	onLink        func(*wsLink) // test hook: called with every WebSocket
}

// NewHTTPServer returns an HTTPServer; call Serve to serve a listener.
func NewHTTPServer(s *Server, cfg HTTPConfig) *HTTPServer {
	h := &HTTPServer{
		guard: guard{keys: cfg.Keys, limits: cfg.Limits},
		srv:   s, cfg: cfg, log: s.log, keepAlive: keepAliveInterval, bodyTime: bodyTimeout,
		maxConns: maxHTTPConns, unauthTimeout: unauthenticatedTimeout,
	}
	for _, host := range cfg.Hosts {
		h.hosts = append(h.hosts, hostOf(host))
	}
	for _, origin := range cfg.Origins {
		h.origins = append(h.origins, strings.TrimSuffix(strings.ToLower(origin), "/"))
	}
	// A connection carries one request at a time, so that the limit on
	// connections also limits requests; WebSockets need HTTP/1.1 too.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	h.http = &http.Server{
		Handler: h, Protocols: &protocols, ConnContext: withConn,
		DisableGeneralOptionsHandler: true, // ServeHTTP also handles "OPTIONS *"
		ReadHeaderTimeout:            headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// At debug level: anyone who can connect could fill the log with failed handshakes.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return h
}

// Serve accepts connections until the listener is closed or Shutdown is called.
// ctx is the parent of every request's context.
func (h *HTTPServer) Serve(ctx context.Context, l net.Listener) error {
	h.http.BaseContext = func(net.Listener) context.Context { return ctx }
	err := h.http.Serve(newHTTPListener(l, h.cfg.TLS, h.maxConns, h.unauthTimeout))
	if errors.Is(err, http.ErrServerClosed) {
		return ErrServerClosed
	}
	return err
}

// Shutdown stops accepting and lets the requests in flight finish. When ctx is
// done it closes the remaining connections and returns ctx's error. WebSockets
// end with the Server: shut that down too.
func (h *HTTPServer) Shutdown(ctx context.Context) error {
	err := h.http.Shutdown(ctx)
	if err != nil {
		_ = h.http.Close() // its error adds nothing to err
	}
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stuckGrace):
		h.log.ErrorContext(ctx, "HTTP requests did not end after cancellation")
	}
	return err
}

// Requests returns how many requests are open, and how many there were.
func (h *HTTPServer) Requests() (open int, ever uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open, h.requests
}

func (h *HTTPServer) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.running.Add(1)
		h.open++
		h.requests++
	}
	return !h.closed
}

func (h *HTTPServer) end() {
	h.mu.Lock()
	h.open--
	h.mu.Unlock()
	h.running.Done()
}

// health tells a monitor or a load balancer whether to send requests here.
func (h *HTTPServer) health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	status := `{"status":"ok"}`
	if h.cfg.ShuttingDown != nil && h.cfg.ShuttingDown() {
		w.WriteHeader(http.StatusServiceUnavailable)
		status = `{"status":"shutting down"}`
	}
	_, _ = io.WriteString(w, status+"\n") // the client may be gone
}

// ServeHTTP handles every request; see guard for the checks.
func (h *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		panic(http.ErrAbortHandler) // the connection is already closed
	}
	defer h.end()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.TransferEncoding != nil || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close") // framing does not follow later requests
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(h.unauthTimeout))
	h.limitBody(control, r) // even if the request is refused: the rest of its body is read then
	if refused := h.checkHostAndOrigin(r); refused != nil {
		h.refuse(w, r, refused)
		return
	}
	if h.cors(w, r) {
		return
	}
	if r.URL.Path == "/healthz" {
		h.requireMethod(w, r, http.MethodGet, func() { h.health(w) })
		return
	}
	token, refused := h.authenticate(r)
	if conn := connOf(r.Context()); conn != nil {
		conn.setAuthenticated(refused == nil)
	}
	if refused != nil {
		h.refuse(w, r, refused)
		return
	}
	_ = control.SetWriteDeadline(time.Time{})
	h.limitBody(control, r)
	leave, refused := h.enter(token.ID)
	if refused != nil {
		h.refuse(w, r, refused)
		return
	}
	defer leave()
	h.route(w, r, token)
}

// limitBody limits the time for the body of a request.
func (h *HTTPServer) limitBody(control *http.ResponseController, r *http.Request) {
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(time.Now().Add(h.bodyTime))
	}
}

func (h *HTTPServer) route(w http.ResponseWriter, r *http.Request, token access.Token) {
	actor := access.Actor{UID: -1, Transport: "http", TokenID: token.ID, TokenName: token.Name, Scope: token.Scope, Tag: token.Tag, Sandbox: token.Sandbox}
	execID, isStream := streamPath(r.URL.Path)
	switch {
	case r.URL.Path == "/rpc":
		h.requireMethod(w, r, http.MethodPost, func() { h.rpc(w, r.WithContext(access.With(r.Context(), actor))) })
	case isStream:
		h.requireMethod(w, r, http.MethodGet, func() { h.stream(w, r.WithContext(access.With(r.Context(), actor)), actor, execID) })
	case r.URL.Path == "/ws":
		actor.Transport = "websocket"
		h.requireMethod(w, r, http.MethodGet, func() { h.websocket(w, r, actor) })
	case r.URL.Path == "/mcp" && h.cfg.MCP != nil:
		h.requireMethod(w, r, http.MethodPost, func() {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(mcpTimeout))
			h.cfg.MCP.ServeHTTP(w, r.WithContext(access.With(r.Context(), actor)))
		})
	case r.URL.Path == "/metrics" && h.cfg.Metrics != nil:
		h.requireMethod(w, r, http.MethodGet, func() {
			if !actor.Scope.Covers(access.ScopeRead) {
				h.refuse(w, r, &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "the metrics require the scope read")})
				return
			}
			if actor.Tag != "" {
				h.refuse(w, r, &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "the metrics cover all sessions, but this token is restricted to a tag").
					With("tag", actor.Tag).WithHint("call system.stats for the sessions with this tag, or use a token created without --tag")})
				return
			}
			h.cfg.Metrics.ServeHTTP(w, r)
		})
	default:
		h.refuse(w, r, &refusal{status: http.StatusNotFound, err: api.Errorf(api.CodeInvalidRequest, "unknown path").
			WithHint("use one of POST /rpc, GET /v1/execs/{exec_id}/stream, GET /ws, POST /mcp, GET /metrics or GET /healthz")})
	}
}

// streamPath extracts the exec id from /v1/execs/{exec_id}/stream.
func streamPath(path string) (execID string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/execs/")
	if !ok {
		return "", false
	}
	execID, ok = strings.CutSuffix(rest, "/stream")
	return execID, ok && execID != "" && !strings.Contains(execID, "/")
}

// requireMethod calls serve if the request has the given HTTP method, and
// refuses it otherwise.
func (h *HTTPServer) requireMethod(w http.ResponseWriter, r *http.Request, method string, serve func()) {
	if r.Method == method {
		serve()
		return
	}
	h.refuse(w, r, &refusal{
		status: http.StatusMethodNotAllowed, err: api.Errorf(api.CodeInvalidRequest, "this path only accepts %s", method),
		header: http.Header{"Allow": {method}},
	})
}

// cors lets browsers call from pages of a configured origin, and answers their
// preflight request, which carries no token. It reports whether the request was
// a preflight.
func (h *HTTPServer) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin") // already checked by checkHostAndOrigin
	if origin == "" {
		return false
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", origin)
	header.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
	header.Set("Access-Control-Max-Age", "600") // the maximum of some browsers
	w.WriteHeader(http.StatusNoContent)
	return true
}

// refuse answers a request that is not served.
func (h *HTTPServer) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	for name, values := range why.header {
		w.Header()[name] = values
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // rather than read an unused body
	}
	if r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.explain(w, why)
	} else {
		h.answer(w, why.status, null, nil, why.err)
	}
	h.log.DebugContext(r.Context(), "HTTP request refused", "status", why.status, "from", r.RemoteAddr)
}

// explain refuses the request of a browser: a person has opened the address.
func (h *HTTPServer) explain(w http.ResponseWriter, why *refusal) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(why.status)
	_, _ = fmt.Fprintf(w, "This is a TRL daemon. It serves programs, and has no pages.\n\n"+
		"%s: %s\n\nFrom a shell: TRL_TOKEN=… trl --address http://HOST:PORT run -- COMMAND\n", why.err.Message, why.err.Hint) // the client may be gone
}

// answer sends a JSON-RPC answer as the body.
func (h *HTTPServer) answer(w http.ResponseWriter, status int, id rawParams, result any, failure *api.Error) {
	a := h.srv.answers.get()
	defer h.srv.answers.put(a)
	body := a.encode(id, result, failure)
	// As on the socket, the timeout applies to each piece.
	patience := h.srv.cfg.WriteTimeout * time.Duration(1+len(body)/writePieceBytes)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// rpc serves one request. The method's answer, including an error, is the body
// of a 200; other statuses are only for callers that may not call at all and
// for bodies that are not requests.
func (h *HTTPServer) rpc(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		h.refuse(w, r, &refusal{status: http.StatusUnsupportedMediaType, err: invalidRequest("the body must be application/json")})
		return
	}
	buf := h.srv.buffers.get()
	defer h.srv.buffers.put(buf)
	body, err := h.body(w, r, (*buf)[:0])
	*buf = body
	switch {
	case errors.Is(err, errTooLong):
		w.Header().Set("Connection", "close")
		q, failure := tooLong(body[:min(len(body), idPrefixBytes)], h.srv.cfg.MaxRequestBytes)
		h.answer(w, http.StatusRequestEntityTooLarge, q.id, nil, failure)
		return
	case err != nil:
		h.refuse(w, r, &refusal{status: http.StatusRequestTimeout, err: api.Errorf(api.CodeInvalidRequest, "the body did not arrive in time")})
		return
	}
	q, failure := parse(body)
	if failure == nil && q.actor != nil {
		failure = q.refused(service.UnexpectedActor())
	}
	if failure != nil {
		h.answer(w, http.StatusBadRequest, q.id, nil, failure)
		return
	}
	began := time.Now()
	result, err := h.srv.cfg.Handler.Call(r.Context(), q.method, q.params)
	status, code := http.StatusOK, "ok"
	if err != nil {
		failure = api.AsError(err)
		code = string(failure.Code)
	}
	// The chunks of an exec.stream are fetched at their own path.
	if opened, ok := result.(*service.OpenedStream); ok {
		result = opened.Result
	}
	switch {
	case failure != nil && (failure.Code == api.CodeUnauthorized || failure.Code == api.CodeForbidden):
		status = statusOf(failure.Code)
		if q.id == nil {
			q.id = null
		}
		h.answer(w, status, q.id, nil, failure)
	case q.id == nil:
		status = http.StatusNoContent
		w.WriteHeader(status)
	default:
		h.answer(w, status, q.id, result, failure)
	}
	if h.log.Enabled(r.Context(), slog.LevelDebug) {
		h.log.DebugContext(r.Context(), "request", "method", clip(q.method), "id", clip(string(q.id)),
			"duration", time.Since(began), "code", code, "status", status)
	}
}

// body reads the body into buf. It returns errTooLong if the body is over the
// limit.
func (h *HTTPServer) body(w http.ResponseWriter, r *http.Request, buf []byte) ([]byte, error) {
	limit := h.srv.cfg.MaxRequestBytes
	if r.ContentLength > int64(limit) {
		return buf, errTooLong
	}
	in := http.MaxBytesReader(w, r.Body, int64(limit))
	for {
		if len(buf) == cap(buf) {
			// Grow by the bytes received, not by the announced length.
			buf = append(buf, make([]byte, max(readBufferBytes, len(buf)))...)[:len(buf)]
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return buf, errTooLong
		}
		if errors.Is(err, io.EOF) {
			return buf, nil // net/http then lifts the deadline: the call may take any time
		}
		if err != nil {
			return buf, err
		}
	}
}

// statusOf returns the HTTP status for an error that is reported by status.
func statusOf(code api.Code) int {
	switch code {
	case api.CodeUnauthorized:
		return http.StatusUnauthorized
	case api.CodeForbidden:
		return http.StatusForbidden
	case api.CodeExecNotFound, api.CodeSessionNotFound, api.CodeMethodNotFound:
		return http.StatusNotFound
	case api.CodeOutputGone:
		return http.StatusGone
	case api.CodeShuttingDown, api.CodeRuntimeUnavailable:
		return http.StatusServiceUnavailable
	case api.CodeInternal:
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}
