package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// httpTransport is the transport for http and https addresses: a call is a
// POST, a stream is a response of Server-Sent Events.
type httpTransport struct {
	base   string // without a trailing slash
	opts   Options
	client *http.Client

	mu     sync.Mutex
	events []*lineTransport // connections of watches, which need a WebSocket
}

func newHTTP(addr string, opts Options) (daemonTransport, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("address %q: use http://HOST:PORT or https://HOST:PORT", addr)
	}
	return &httpTransport{base: strings.TrimSuffix(addr, "/"), opts: opts, client: httpClient(opts)}, nil
}

// httpClient returns a client that shares nothing with other clients of the
// program.
func httpClient(opts Options) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = opts.TLS
	t.DisableCompression = true // the daemon is usually nearby
	t.ReadBufferSize = peer.BufferBytes
	// HTTP/1.1: each stream has its own connection and flow control.
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.MaxIdleConnsPerHost = maxIdleConns
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // never send the token to a redirect target
	}}
}

// maxIdleConns is the number of idle connections kept for later calls: one for
// each goroutine that an agent's program may call from concurrently.
const maxIdleConns = 64

func (h *httpTransport) canRedial() bool { return true }

func (h *httpTransport) close() {
	h.client.CloseIdleConnections()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.events {
		l.close()
	}
}

func (h *httpTransport) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, h.base+path, body)
	if err == nil && h.opts.Token != "" {
		r.Header.Set("Authorization", "Bearer "+h.opts.Token)
	}
	return r, err
}

// do sends a request. Its error is the context's, or wraps ErrClosed or
// ErrNoDaemon.
func (h *httpTransport) do(r *http.Request) (*http.Response, error) {
	res, err := h.client.Do(r)
	if err != nil {
		if ctx := r.Context(); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err = peer.NoDaemon(h.base, err); !errors.Is(err, ErrNoDaemon) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		return nil, err
	}
	return res, nil
}

func (h *httpTransport) call(ctx context.Context, method string, params, result any) error {
	body, err := peer.Encode(1, peer.Request{Method: method, Params: params})
	if err != nil {
		return fmt.Errorf("%s: params: %w", method, err)
	}
	r, err := h.request(ctx, http.MethodPost, "/rpc", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := h.do(r)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if res.StatusCode != http.StatusOK {
		return refusal(res)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", method, ctx.Err())
		}
		return fmt.Errorf("%s: %w: %w", method, ErrClosed, err)
	}
	return peer.Decode(method, answer, result)
}

func (h *httpTransport) stream(ctx context.Context, p api.ExecStreamParams) (string, *feed[api.Chunk], error) {
	var r api.ExecStreamResult
	err := h.call(ctx, api.MethodExecStream, p, &r)
	return r.ExecID, nil, err
}

func (h *httpTransport) attach(ctx context.Context, execID string, from int64) (*feed[api.Chunk], error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := h.request(ctx, http.MethodGet, "/v1/execs/"+url.PathEscape(execID)+"/stream", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", strconv.FormatInt(from, 10))
	res, err := h.do(r)
	if err == nil && res.StatusCode != http.StatusOK {
		err = refusal(res)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	f := newFeed[api.Chunk]()
	ended := make(chan struct{})
	var why error // read after ended is closed
	f.ended, f.reason, f.stop = ended, func() error { return why }, cancel
	go func() {
		defer cancel()
		defer res.Body.Close()
		why = readEvents(res.Body, func(data []byte) error {
			c, err := parseChunk(data)
			if err != nil {
				return err
			}
			select {
			case f.notifications <- c:
				return nil
			case <-f.closed:
				return ErrClosed
			}
		})
		why = fmt.Errorf("%w: %w", ErrClosed, why)
		close(ended)
	}()
	return f, nil
}

func (h *httpTransport) watch(ctx context.Context, p api.SessionWatchParams) (*feed[api.SessionEvent], error) {
	addr := "ws" + strings.TrimPrefix(h.base, "http") // https becomes wss
	c, err := dialLines(ctx, func(ctx context.Context) (peer.Wire, error) { return dialWebSocket(ctx, addr, h.opts) })
	if err != nil {
		return nil, err
	}
	l := c.(*lineTransport)
	f, err := l.watch(ctx, p)
	if err != nil {
		l.close()
		return nil, err
	}
	h.mu.Lock()
	h.events = append(h.events, l)
	h.mu.Unlock()
	stop := f.stop
	f.stop = func() {
		stop()
		l.close()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = slices.DeleteFunc(h.events, func(e *lineTransport) bool { return e == l })
	}
	return f, nil
}

// readEvents calls fn with the data of each event until fn or reading fails. At
// the end of the input it returns io.EOF: only the events say whether the
// stream is complete.
func readEvents(r io.Reader, fn func(data []byte) error) error {
	lines := peer.NewLines(r, 0)
	var data []byte
	have := false
	for {
		line, err := lines.Next()
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 { // end of an event
			if have {
				if err := fn(data); err != nil {
					return err
				}
			}
			data, have = data[:0], false
			continue
		}
		// The other fields, id and event, repeat what is in the data.
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if have {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			have = true
		}
	}
}

func unmarshal(b []byte, v any) bool { return json.Unmarshal(b, v) == nil }
