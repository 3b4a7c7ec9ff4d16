package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// stream sends an exec's output as Server-Sent Events. The id of an event is
// the offset after it, so that a disconnected client resumes by sending back
// the last id it has, as browsers do by themselves.
func (h *HTTPServer) stream(w http.ResponseWriter, r *http.Request, actor access.Actor, execID string) {
	from, ok := startOffset(r)
	if !ok {
		h.refuse(w, r, &refusal{status: http.StatusBadRequest, err: api.Errorf(api.CodeInvalidParams, "from must be an offset: an integer from 0 up").
			With("field", "from").WithHint("send the id of the last event you have as Last-Event-ID, or leave it out to start at 0")})
		return
	}
	params, err := json.Marshal(api.ExecAttachParams{ExecID: execID, From: from})
	var result any
	if err == nil {
		result, err = h.srv.cfg.Handler.Call(r.Context(), api.MethodExecAttach, params)
	}
	opened, ok := result.(*service.OpenedStream)
	if err == nil && !ok {
		err = errors.New("exec.attach opened no stream")
	}
	if err != nil {
		failure := api.AsError(err)
		h.refuse(w, r, &refusal{status: statusOf(failure.Code), err: failure})
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	e := &eventWriter{w: w, buffers: &h.srv.buffers, control: http.NewResponseController(w), cancel: cancel}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // keeps nginx from buffering events
	w.WriteHeader(http.StatusOK)
	if err := e.control.Flush(); err != nil {
		return
	}
	var watching sync.WaitGroup
	watching.Go(func() { h.monitorStream(ctx, e, actor.TokenID) })
	err = opened.Feed(ctx, e.send)
	if err != nil && ctx.Err() == nil {
		h.log.ErrorContext(ctx, "stream failed", "stream", opened.StreamID, "error", err)
	}
	cancel()
	watching.Wait()
}

// startOffset returns the offset to start at: where the client was
// disconnected, or the requested one.
func startOffset(r *http.Request) (from int64, ok bool) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("from")
	}
	if text == "" {
		return 0, true
	}
	from, err := strconv.ParseInt(text, 10, 64)
	return from, err == nil && from >= 0
}

// monitorStream ends a stream whose token is no longer valid, and sends
// keep-alive comments while the stream is silent. It leaves a slow reader
// alone: the reader keeps its position, and the kernel notices when it is gone.
func (h *HTTPServer) monitorStream(ctx context.Context, e *eventWriter, token string) {
	for range every(ctx, min(tokenPoll, h.keepAlive)) {
		if !h.keys.Valid(token) {
			e.cancel()
			return
		}
		e.keepAlive(h.keepAlive)
	}
}

// every yields once per interval, until ctx is done.
func every(ctx context.Context, interval time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !yield() {
					return
				}
			}
		}
	}
}

// eventWriter writes the events of one response, one at a time.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	cancel  context.CancelFunc // ends the stream

	buffers *bufferPool // a waiting stream holds no buffer

	mu   sync.Mutex // guards the fields below; held while writing
	last time.Time  // last write
}

// send writes one chunk as an event.
func (e *eventWriter) send(n notify.Notification) error {
	var next int64
	switch chunk := n.(type) {
	case *api.Chunk:
		next = chunk.Next
	case *notify.RawChunk:
		next = chunk.Next
	case *notify.Passed:
		next = chunk.Next
	default:
		return fmt.Errorf("transport: unexpected notification %T in a stream of chunks", n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	buf := e.buffers.get()
	defer e.buffers.put(buf)
	b := strconv.AppendInt(append((*buf)[:0], "id: "...), next, 10)
	b = append(b, "\nevent: chunk\ndata: "...)
	b, err := n.AppendJSON(b)
	b = append(b, '\n', '\n')
	*buf = b
	if err != nil {
		return err
	}
	return e.put(b)
}

// keepAlive writes a comment if nothing was written for the given time. It does
// not wait for a write in progress.
func (e *eventWriter) keepAlive(quiet time.Duration) {
	if !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()
	if e.last.IsZero() {
		e.last = time.Now()
	}
	if time.Since(e.last) < quiet {
		return
	}
	if e.put([]byte(": \n\n")) != nil {
		e.cancel()
	}
}

// put writes and flushes an event. The caller must hold e.mu.
func (e *eventWriter) put(event []byte) error {
	if _, err := e.w.Write(event); err != nil {
		return err
	}
	if err := e.control.Flush(); err != nil {
		return err
	}
	e.last = time.Now()
	return nil
}
