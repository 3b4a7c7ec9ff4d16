package route

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
)

// stream is a stream of the output of an exec in a place. After a lost connection
// it attaches again at its offset, for as long as its client stays.
type stream struct {
	attachCall *outcall        // exec.attach
	params     json.RawMessage // of exec.attach
	id         string
	next       int64       // the offset of the next chunk
	at         *attachment // nil: not attached
}

// stream serves exec.stream and exec.attach.
//
// An exec.stream is sent over the connection for calls, because it has an order
// among them. The stream stays there as long as its client keeps up; one that does
// not continues on a connection for streams.
func (r *Router) stream(ctx context.Context, m *service.Method, p Place, params json.RawMessage) (any, error) {
	c, err := r.newCall(ctx, m, p, params)
	if err != nil {
		return nil, err
	}
	defer c.done()
	s := &stream{id: newStreamID()}
	result, err := c.persist(ctx, func() (result json.RawMessage, err error) {
		conn, exclusive, release, err := (*peer.Conn)(nil), false, func() {}, error(nil)
		if m.Ordered() {
			conn, err = p.Conn(ctx)
		} else {
			conn, exclusive, release, err = p.OpenStream(ctx)
		}
		if err != nil {
			return nil, &failedAttempt{unreachable, err}
		}
		s.at, result, err = c.attach(ctx, conn, exclusive, release, s.id, chunkBuffer)
		return result, err
	})
	if err != nil {
		return nil, err
	}
	if err := s.begin(c, m, params, result); err != nil {
		s.at.conn.Fail(err)
		s.at.end()
		return nil, unavailable(p, "refused", sentMaybe, err)
	}
	// The stream ends in the place if its feed is never started.
	unstarted := context.AfterFunc(ctx, s.at.end)
	return &service.OpenedStream{Result: result, StreamID: s.id, Feed: func(ctx context.Context, send func(notify.Notification) error) error {
		unstarted()
		return s.feed(ctx, send)
	}}, nil
}

// begin prepares to attach again, with the parameters of the client.
func (s *stream) begin(c *outcall, m *service.Method, params, result json.RawMessage) error {
	again := *c
	again.lane, again.position = nil, nil
	again.request.Method = api.MethodExecAttach
	s.attachCall = &again
	if m.Name == api.MethodExecAttach {
		from, err := member(result, "from")
		if err == nil {
			s.next, err = number(from)
		}
		s.params = append(json.RawMessage(nil), params...) // the client's are valid for the call only
		return err
	}
	exec, err := member(result, "exec_id")
	if id, ok := stringOf(exec); err != nil || !ok || id == "" {
		return errors.New("the place opened a stream without an exec")
	}
	s.params, err = set(nil, "exec_id", exec)
	return err
}

// maxStreamPause is the longest pause between attempts to attach again. A link may
// be down for hours; then it is back within this.
const maxStreamPause = 5 * time.Second

func (s *stream) feed(ctx context.Context, send func(notify.Notification) error) error {
	defer func() {
		if s.at != nil {
			s.at.end()
		}
	}()
	pause := time.Duration(0) // before the next attempt to attach
	for {
		if s.at == nil {
			if pause > 0 && !sleep(ctx, pause) {
				return ctx.Err()
			}
			pause = min(max(2*pause, firstPause), maxStreamPause)
			if err := s.attach(ctx); err != nil {
				if final(err) && ctx.Err() == nil {
					return send(s.forgotten(err))
				}
				pause = max(pause, min(retryAfter(err), maxStreamPause))
				continue
			}
		}
		n, err := s.at.next(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || n.offset != s.next || n.Next < n.offset {
			s.at.end()
			s.at = nil
			continue
		}
		if err := send(&n.Passed); err != nil {
			return err
		}
		buffers.put(n.JSON)
		s.next, pause = n.Next, 0
		if n.kind == string(api.ChunkExit) || n.kind == string(api.ChunkError) {
			s.at.over.Store(true)
			return nil
		}
	}
}

// attach attaches again at the offset.
func (s *stream) attach(ctx context.Context) error {
	c := s.attachCall
	params, err := set(s.params, "from", quoteNumber(s.next))
	if err != nil {
		return err
	}
	c.request.Params = params
	conn, exclusive, release, err := c.place.OpenStream(ctx)
	if err != nil {
		return &failedAttempt{unreachable, err}
	}
	s.at, _, err = c.attach(ctx, conn, exclusive, release, s.id, chunkBuffer)
	return err
}

// final reports whether trying again can't help: the place was reached, and
// answered that it will not.
func final(err error) bool {
	var failed *failedAttempt
	if errors.As(err, &failed) {
		return false
	}
	switch api.AsError(err).Code {
	case api.CodeRuntimeUnavailable, api.CodeShuttingDown, api.CodeInternal:
		return false
	}
	return true
}

// forgotten is the chunk that ends a stream whose place refuses to continue it.
func (s *stream) forgotten(err error) *api.Chunk {
	var exec string
	if raw, err := member(s.params, "exec_id"); err == nil {
		exec, _ = stringOf(raw)
	}
	e := api.AsError(err).With("runtime", s.attachCall.place.Runtime())
	return &api.Chunk{StreamID: s.id, ExecID: exec, Type: api.ChunkError, Offset: s.next, Next: s.next, Error: e}
}
