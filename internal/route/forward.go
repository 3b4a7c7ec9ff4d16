package route

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service"
)

// outcall is a call to a place.
type outcall struct {
	place       Place
	translation translation
	request     peer.Request
	// repeatable means that making the call twice has the same effect as once.
	repeatable bool
	lane       *lane     // nil: the call has no order
	position   *position // in the lane

	answeredOver *peer.Conn // nil: it is not answered yet
}

// newCall returns a call to a place for the request of ctx. done must be called
// when it is over. params is used until then.
func (r *Router) newCall(ctx context.Context, m *service.Method, p Place, params json.RawMessage) (*outcall, error) {
	from := r.clients.of(ctx)
	actor, err := r.actor(ctx, p, from)
	if err != nil {
		return nil, err
	}
	params, repeatable, err := makeRepeatable(m, params)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidParams, "%s: params are not JSON: %w", m.Name, err).WithHint("send params as one JSON object in UTF-8")
	}
	c := &outcall{
		place: p, translation: translation{names: r.names, place: p.Name(), runtime: p.Runtime()}, repeatable: repeatable,
		request: peer.Request{Method: m.Name, Params: params, Actor: actor, MaxAnswer: maxAnswer(m, params)},
	}
	if from == nil {
		return c, nil
	}
	lane := from.lane(p) // also without an order: the place has seen the client
	if m.Ordered() {
		c.lane, c.position = lane, lane.join()
		arrival.MarkQueued(ctx)
	}
	return c, nil
}

// maxAnswer returns how long the answer to a call may be, in bytes, if it reads or runs
// a command: two streams of the output that it asks for, each byte of which takes up to
// six in JSON, and the rest of the answer. Otherwise it returns 0: what else a place
// sends is short.
func maxAnswer(m *service.Method, params json.RawMessage) int {
	const name = "max_output_bytes"
	if !m.Reads && m.Result != reflect.TypeFor[api.ExecResult]() {
		return 0
	}
	if m.Name != api.MethodExecRun || !bytes.Contains(params, []byte(name)) {
		return peer.LongAnswer
	}
	raw, err := member(params, name)
	if err != nil || raw == nil {
		return peer.LongAnswer
	}
	n, err := number(raw)
	if err != nil || n <= 0 {
		return peer.LongAnswer // the place refuses it, unless it is null
	}
	return max(peer.LongAnswer, 12*int(min(n, maxOutput))+1<<20)
}

// maxOutput is the most output of a stream that a result has, in bytes.
const maxOutput = 4 << 20

func (c *outcall) done() {
	if c.lane != nil {
		c.lane.leave(c.position)
	}
}

// makeRepeatable returns the parameters of a call, with a key if it takes one and
// has none, and whether the call may be repeated.
func makeRepeatable(m *service.Method, params json.RawMessage) (_ json.RawMessage, repeatable bool, err error) {
	var key, at, exec json.RawMessage
	if len(params) > 0 {
		err = members(params, func(name, value []byte, _, _ int) {
			switch string(name) {
			case "key":
				key = value
			case "at":
				at = value
			case "exec_id":
				exec = value
			}
		})
	}
	given := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" && string(raw) != `""` }
	switch {
	case err != nil:
		return nil, false, err
	case m.Name == api.MethodExecRun, m.Name == api.MethodExecStream, m.Routing.Kind == service.Create:
		switch {
		case given(key):
		case key == nil:
			params = insert(params, "key", newKey())
		default:
			params, err = set(params, "key", newKey())
		}
		return params, true, err
	case m.Name == api.MethodExecInput:
		return params, given(key) || given(at), nil
	case m.Name == api.MethodExecCancel:
		return params, given(exec), nil // by session it could cancel the next command
	case m.Name == api.MethodExecAttach, m.Routing.Kind == service.Watch:
		return params, true, nil // the first stream ended with its connection
	}
	return params, m.Reads, nil
}

// newKey returns a random key as JSON.
func newKey() json.RawMessage { return json.RawMessage(`"k-` + rand.Text() + `"`) }

// forward makes a call that opens no stream, and returns its result.
func (r *Router) forward(ctx context.Context, m *service.Method, p Place, params json.RawMessage) (json.RawMessage, error) {
	c, err := r.newCall(ctx, m, p, params)
	if err != nil {
		return nil, err
	}
	defer c.done()
	return c.calls(ctx)
}

// calls makes the call over the connection for calls.
func (c *outcall) calls(ctx context.Context) (json.RawMessage, error) {
	return c.persist(ctx, func() (json.RawMessage, error) {
		conn, err := c.place.Conn(ctx)
		if err != nil {
			return nil, &failedAttempt{unreachable, err}
		}
		return c.over(ctx, conn, nil)
	})
}

// failedAttempt is the error of an attempt to which the place gave no answer.
type failedAttempt struct {
	stage stage
	cause error
}

func (f *failedAttempt) Error() string { return f.cause.Error() }
func (f *failedAttempt) Unwrap() error { return f.cause }

// stage says how far an attempt came.
type stage int

const (
	unreachable stage = iota // there is no connection
	unsent                   // the connection ended before the call was sent, or the place was about to
	lost                     // the connection ended before the answer came
)

// over makes the call once, over one connection. The error is the place's answer,
// a *failedAttempt, or that the caller has left.
func (c *outcall) over(ctx context.Context, conn *peer.Conn, sub peer.Subscriber) (json.RawMessage, error) {
	q := c.request
	if c.lane != nil {
		if err := c.lane.await(ctx, c.position); err != nil {
			return nil, err
		}
		q.Sent = func() { c.lane.sent(c.position, conn) }
	}
	c.place.Touch()
	line, err := conn.Call(ctx, q, sub)
	c.place.Touch()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, arrival.ErrCallerLeft(ctx)
	case peer.Unsent(err):
		return nil, &failedAttempt{unsent, err}
	default:
		return nil, &failedAttempt{lost, err}
	}
	c.answeredOver = conn
	result, failure, err := c.translation.answer(line)
	if err != nil {
		conn.Fail(err)
		return nil, unavailable(c.place, "refused", sentMaybe, err)
	}
	if failure != nil && failure.Code == api.CodeShuttingDown {
		// It has not done anything, and another daemon takes over from it.
		return nil, &failedAttempt{unsent, failure}
	}
	if failure != nil {
		return nil, failure
	}
	return result, nil
}

const (
	// repeatFor is how long a call is repeated after its connection was lost: a place
	// that restarts, or a machine that changes its network, is back by then. A
	// caller that wants to wait longer repeats the call itself.
	repeatFor = 30 * time.Second
	// The pauses between attempts: after a broken connection the place is usually
	// back at once.
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// persist makes attempts until the place answers, as long as it is safe and ctx
// allows. A place that can't be reached at first is an error at once.
func (c *outcall) persist(ctx context.Context, try func() (json.RawMessage, error)) (json.RawMessage, error) {
	sent := sentNo
	var failing time.Time
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		result, err := try()
		var failed *failedAttempt
		if err == nil || !errors.As(err, &failed) {
			return result, err
		}
		if failed.stage == lost {
			sent = sentMaybe
		}
		if sent == sentMaybe && !c.repeatable || sent == sentNo && failed.stage == unreachable {
			return nil, asUnavailable(c.place, failed.cause, sent)
		}
		now := time.Now()
		if failing.IsZero() || now.Sub(began) > repeatFor { // it had worked for long
			failing, pause = now, firstPause
		}
		wait := max(pause, retryAfter(failed.cause))
		if now.Sub(failing)+wait > repeatFor {
			return nil, asUnavailable(c.place, failed.cause, sent)
		}
		if !sleep(ctx, wait) {
			return nil, arrival.ErrCallerLeft(ctx)
		}
	}
}

// retryAfter returns how long to wait as an error asks, 0 if it does not.
func retryAfter(err error) time.Duration {
	var e *api.Error
	if !errors.As(err, &e) {
		return 0
	}
	var ms float64
	switch v := e.Details["retry_after_ms"].(type) {
	case int:
		ms = float64(v)
	case int64:
		ms = float64(v)
	case float64:
		ms = v
	}
	return time.Duration(min(max(ms, 0), float64(repeatFor.Milliseconds()))) * time.Millisecond
}

// sleep waits, and returns false if ctx is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
