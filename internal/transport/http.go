package transport

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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

// HTTPConfig is how requests come in over HTTP.
type HTTPConfig struct {
	Keys    Keys            // required
	Limits  *access.Limiter // required
	Metrics http.Handler    // nil: there are none
	MCP     http.Handler    // nil: there is none. Its requests have their actor in the context
	TLS     *tls.Config     // nil: plain

	// Hosts are names that clients may call the server by, besides those of
	// the loopback interface. Origins are those of pages that may call it;
	// none by default.
	Hosts, Origins []string

	ShuttingDown func() bool // whether the daemon is about to end; nil: it never is
}

// The bounds of HTTP connections. What a request may be is the Server's to
// bound, how many a token may make the Limiter's.
const (
	// headerTimeout is for a request line and its headers, which arrive in one
	// packet from anyone who means it.
	headerTimeout = 10 * time.Second
	// strangerTimeout is the most that a client may take for anything before it
	// has shown a token: the handshake, a header, a body that is refused, and the
	// pause before the next request. A page asks by OPTIONS right before it
	// calls; a monitor that asks for /healthz less often connects anew.
	unauthenticatedTimeout = headerTimeout
	// bodyTimeout is for a body: the longest at 300 kB/s.
	bodyTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept for a next request: longer
	// than a model thinks between two calls.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is room for a token and what proxies add.
	maxHeaderBytes = 16 << 10
	// maxHTTPConns bounds the open connections: as many as sessions one agent
	// can drive. Each costs a descriptor and some 20 KiB. Those that have shown no
	// token make room for the next ones; behind those that have, the next ones
	// wait in the kernel's queue.
	maxHTTPConns = 1024
	// quietTime is after how long without an event a stream sends a sign of
	// life: proxies give up a connection after 30 s or 60 s.
	keepAliveInterval = 15 * time.Second
	// tokenPoll is how soon a stream or a WebSocket ends whose token was
	// revoked or has expired.
	tokenPoll = time.Second
	// mcpTime is for the whole answer to a call of a tool, which waits for less
	// than a minute; a client that does not take it is not waited for.
	mcpTimeout = 2 * time.Minute
)

// HTTPServer serves HTTP over the same method table, and with the same limits,
// as the Server it belongs to.
type HTTPServer struct {
	guard
	srv  *Server
	cfg  HTTPConfig
	log  *slog.Logger
	http *http.Server

	mu      sync.Mutex
	closed  bool           // no request begins any more
	running sync.WaitGroup // the requests, WebSockets included; grows under mu while not closed

	keepAlive     time.Duration // quietTime, but for tests
	bodyTime      time.Duration // bodyTimeout, but for tests
	maxConns      int           // maxHTTPConns, but for tests
	unauthTimeout time.Duration // strangerTimeout, but for tests
	onLink        func(*wsLink) // of tests: is shown every WebSocket
}

// NewHTTPServer makes one that serves nothing yet.
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
	// A connection carries one request at a time, so that the bound on
	// connections bounds requests too, and WebSockets need it.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	h.http = &http.Server{
		Handler: h, Protocols: &protocols, ConnContext: withConn,
		DisableGeneralOptionsHandler: true, // also "OPTIONS *" comes by ServeHTTP
		ReadHeaderTimeout:            headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// Whoever can connect could fill the log with failed handshakes.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return h
}

// Serve accepts connections until the listener is closed or Shutdown is
// called. ctx is the parent of every request's context.
func (h *HTTPServer) Serve(ctx context.Context, l net.Listener) error {
	h.http.BaseContext = func(net.Listener) context.Context { return ctx }
	err := h.http.Serve(newHTTPListener(l, h.cfg.TLS, h.maxConns, h.unauthTimeout))
	if errors.Is(err, http.ErrServerClosed) {
		return ErrServerClosed
	}
	return err
}

// Shutdown stops accepting and lets the requests in flight be answered. When
// ctx is done it closes the connections of those that are left, and returns
// ctx's error. WebSockets end with the Server: shut that down too.
func (h *HTTPServer) Shutdown(ctx context.Context) error {
	err := h.http.Shutdown(ctx)
	if err != nil {
		_ = h.http.Close() // it says again what err says
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
		h.log.ErrorContext(ctx, "HTTP requests ignore their cancellation and are left behind")
	}
	return err
}

func (h *HTTPServer) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.running.Add(1)
	}
	return !h.closed
}

// health tells a monitor, or a balancer, whether to send anybody here.
func (h *HTTPServer) health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	status := `{"status":"ok"}`
	if h.cfg.ShuttingDown != nil && h.cfg.ShuttingDown() {
		w.WriteHeader(http.StatusServiceUnavailable)
		status = `{"status":"shutting down"}`
	}
	_, _ = io.WriteString(w, status+"\n") // who asked may be gone
}

// ServeHTTP is every request's way in; see guard.
func (h *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		panic(http.ErrAbortHandler) // its connection is closed already
	}
	defer h.running.Done()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.TransferEncoding != nil || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close") // framing does not follow what comes after
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(h.unauthTimeout))
	h.limitBody(control, r) // also of a request that is refused: what is left of it is read then
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

// limitBody bounds the time for a request's body.
func (h *HTTPServer) limitBody(control *http.ResponseController, r *http.Request) {
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(time.Now().Add(h.bodyTime))
	}
}

func (h *HTTPServer) route(w http.ResponseWriter, r *http.Request, token access.Token) {
	actor := access.Actor{UID: -1, Transport: "http", TokenID: token.ID, TokenName: token.Name, Scope: token.Scope, Tag: token.Tag}
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
				h.refuse(w, r, &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "the metrics need the scope read")})
				return
			}
			if actor.Tag != "" {
				h.refuse(w, r, &refusal{status: http.StatusForbidden, err: api.Errorf(api.CodeForbidden, "the metrics count all sessions, and this token is bound to a tag").
					With("tag", actor.Tag).WithHint("system.stats counts the sessions with this tag; for the metrics, ask for a token made without --tag")})
				return
			}
			h.cfg.Metrics.ServeHTTP(w, r)
		})
	default:
		h.refuse(w, r, &refusal{status: http.StatusNotFound, err: api.Errorf(api.CodeInvalidRequest, "there is nothing at this path").
			WithHint("the paths are POST /rpc, GET /v1/execs/{exec_id}/stream, GET /ws, POST /mcp, GET /metrics and GET /healthz")})
	}
}

// streamPath takes the exec out of /v1/execs/{exec_id}/stream.
func streamPath(path string) (execID string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/execs/")
	if !ok {
		return "", false
	}
	execID, ok = strings.CutSuffix(rest, "/stream")
	return execID, ok && execID != "" && !strings.Contains(execID, "/")
}

// only serves a path that takes one HTTP method.
func (h *HTTPServer) requireMethod(w http.ResponseWriter, r *http.Request, method string, serve func()) {
	if r.Method == method {
		serve()
		return
	}
	h.refuse(w, r, &refusal{
		status: http.StatusMethodNotAllowed, err: api.Errorf(api.CodeInvalidRequest, "this path takes %s alone", method),
		header: http.Header{"Allow": {method}},
	})
}

// cors tells browsers that pages of a listed origin may call, and answers the
// question that they ask before, which carries no token. It reports whether
// the request was that question.
func (h *HTTPServer) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin") // front has let it through
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
	header.Set("Access-Control-Max-Age", "600") // as long as some browsers remember at all
	w.WriteHeader(http.StatusNoContent)
	return true
}

// refuse answers a request that gets no further.
func (h *HTTPServer) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	for name, values := range why.header {
		w.Header()[name] = values
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // rather than read a body that nobody wants
	}
	h.answer(w, why.status, null, nil, why.err)
	h.log.DebugContext(r.Context(), "HTTP request refused", "status", why.status, "from", r.RemoteAddr)
}

// answer sends a JSON-RPC answer as the body.
func (h *HTTPServer) answer(w http.ResponseWriter, status int, id rawParams, result any, failure *api.Error) {
	a := h.srv.answers.get()
	defer h.srv.answers.put(a)
	body := a.encode(id, result, failure)
	// As on the socket: so much time for each piece.
	patience := h.srv.cfg.WriteTimeout * time.Duration(1+len(body)/writePieceBytes)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone does not need to know
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// rpc serves one request. What the method answers, an error too, is the body
// of a 200: only who may not call at all, and what is no request, is told by
// the status.
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
		h.refuse(w, r, &refusal{status: http.StatusRequestTimeout, err: api.Errorf(api.CodeInvalidRequest, "the body did not arrive")})
		return
	}
	q, failure := parse(body)
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
	// What follows an exec.stream is fetched at its own path.
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

// body reads the body into buf: errTooLong if it is over the limit.
func (h *HTTPServer) body(w http.ResponseWriter, r *http.Request, buf []byte) ([]byte, error) {
	limit := h.srv.cfg.MaxRequestBytes
	if r.ContentLength > int64(limit) {
		return buf, errTooLong
	}
	in := http.MaxBytesReader(w, r.Body, int64(limit))
	for {
		if len(buf) == cap(buf) {
			// By what came, not by what was announced.
			buf = append(buf, make([]byte, max(readBufferBytes, len(buf)))...)[:len(buf)]
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return buf, errTooLong
		}
		if errors.Is(err, io.EOF) {
			return buf, nil // and net/http lifts the deadline: the call may take as long as it takes
		}
		if err != nil {
			return buf, err
		}
	}
}

// statusOf is the HTTP status of an error that is answered by one.
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
