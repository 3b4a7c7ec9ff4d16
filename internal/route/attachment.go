package route

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// notification is one of a stream of a place, as it is to be passed on.
type notification struct {
	notify.Passed
	kind   string // the member type
	offset int64  // of a chunk
}

// notification reads the params of a notification. They must begin with the id of
// their stream, which becomes ours. into is used for the result if it is large
// enough.
func (t translation) notification(name string, raw []byte, stream string, into []byte) (n notification, err error) {
	w := walk{translation: t, scan: rawjson.Scan(raw), raw: raw, into: into}
	first := true
	err = w.object(func(key []byte) error {
		if isID := bytes.EqualFold(key, streamMember); isID != first {
			return errors.New("a notification does not begin with the id of its stream")
		}
		first = false
		switch string(key) {
		case "offset", "next", "type", "stream_id":
			value, err := w.scan.Value()
			if err != nil {
				return err
			}
			return n.head(&w, key, value, stream)
		}
		return w.member(key, 1)
	})
	if err == nil {
		err = w.scan.End()
	}
	if err == nil && first {
		err = errNoObject
	}
	if err != nil {
		return n, err
	}
	n.Name = name
	n.JSON, err = w.applied(0, len(raw))
	return n, err
}

var streamMember = []byte("stream_id")

// head takes one of the members that the router reads.
func (n *notification) head(w *walk, key, value []byte, stream string) (err error) {
	switch string(key) {
	case "stream_id":
		end := w.scan.Offset()
		w.edits = append(w.edits, edit{end - len(value), end, quote(stream)})
	case "offset":
		n.offset, err = number(value)
	case "next":
		n.Next, err = number(value)
	case "type":
		n.kind, _ = stringOf(value)
	}
	return err
}

// buffers are for the JSON of large notifications: a busy stream has many in quick
// succession.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// maxPooled is larger than a chunk of text or base64, and minPooled than an event,
// which needs no pool.
const (
	minPooled = 16 << 10
	maxPooled = 512 << 10
)

func (p *bufferPool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

// put takes the buffer of a notification that was sent.
func (p *bufferPool) put(b []byte) {
	if cap(b) >= minPooled && cap(b) <= maxPooled {
		p.pool.Put(&b)
	}
}

// attachment is a stream of a place, for as long as one connection lasts.
type attachment struct {
	call      *outcall // that opened it
	conn      *peer.Conn
	exclusive bool
	release   func() // the connection

	stream string // the id that the stream has for our client
	theirs string // the id that it has in the place; set before opened is closed
	opened chan struct{}

	received chan notification
	torn     chan struct{} // closed by the subscriber when it drops notifications
	dropping bool          // it does; only the subscriber uses it
	left     chan struct{} // closed when no one reads any more
	leave    sync.Once
	over     atomic.Bool // the place has sent the last notification
	close    func()      // ends the stream in the place, once
}

// chunkBuffer and eventBuffer are how many notifications are kept for a reader that
// shares a connection; a reader that falls behind more loses its attachment. Chunks
// are large; events are small and come in bursts.
const (
	chunkBuffer = 4
	eventBuffer = 256
)

// newStreamID returns the id of a stream of ours.
func newStreamID() string { return "st-" + strings.ToLower(rand.Text()[:10]) }

// attach makes a call that opens a stream over a connection. It owns release. The
// result has the id that the stream has for our client.
func (c *outcall) attach(ctx context.Context, conn *peer.Conn, exclusive bool, release func(), stream string, buffer int) (*attachment, json.RawMessage, error) {
	a := &attachment{
		call: c, conn: conn, exclusive: exclusive, release: release, stream: stream, opened: make(chan struct{}),
		received: make(chan notification, buffer), torn: make(chan struct{}), left: make(chan struct{}),
	}
	a.close = sync.OnceFunc(a.closeThere)
	result, err := c.over(ctx, conn, a.receive)
	if err == nil {
		var raw json.RawMessage
		raw, err = member(result, "stream_id")
		if theirs, ok := stringOf(raw); ok && err == nil {
			a.theirs = theirs
			result, err = set(result, "stream_id", quote(stream))
		} else {
			err = unavailable(c.place, "refused", sentMaybe, errors.New("the place opened a stream without an id"))
			conn.Fail(err)
		}
	}
	close(a.opened)
	if err != nil {
		a.end()
		return nil, nil, err
	}
	return a, result, nil
}

// receive is the subscriber. It blocks only on a connection of its own.
func (a *attachment) receive(name string, params []byte) {
	if a.dropping {
		return
	}
	n, err := a.call.translation.notification(name, params, a.stream, buffers.get())
	if err != nil {
		a.conn.Fail(fmt.Errorf("%w: %s: %w", peer.ErrClosed, a.call.place.Runtime(), err))
		a.drop()
		return
	}
	if a.exclusive {
		select {
		case a.received <- n:
		case <-a.left:
			a.drop()
		case <-a.conn.Done():
			a.drop()
		}
		return
	}
	select {
	case a.received <- n:
	default:
		a.drop()
		go a.close() // this goroutine reads the answer
	}
}

func (a *attachment) drop() {
	a.dropping = true
	close(a.torn)
}

// errTorn is the error of a reader that was too slow for a shared connection.
var errTorn = errors.New("the reader of a stream was too slow")

// next returns the next notification. It returns what was received before the end
// of the attachment before it returns an error.
func (a *attachment) next(ctx context.Context) (notification, error) {
	select {
	case n := <-a.received:
		return n, nil
	default:
	}
	var ended error
	select {
	case n := <-a.received:
		return n, nil
	case <-ctx.Done():
		return notification{}, ctx.Err()
	case <-a.torn:
		ended = errTorn
	case <-a.conn.Done():
		ended = peer.ErrClosed
	}
	select {
	case n := <-a.received:
		return n, nil
	default:
		return notification{}, ended
	}
}

// end ends the attachment. It may be called more than once.
func (a *attachment) end() {
	a.leave.Do(func() { close(a.left) })
	a.close()
}

// streamCloseTimeout bounds the request that closes a stream. A place that does not
// answer it in time goes on sending until the connection ends; nothing is read of it.
const streamCloseTimeout = 2 * time.Second

func (a *attachment) closeThere() {
	defer a.release()
	<-a.opened // over has returned, or is about to
	a.conn.Unsubscribe(a.theirs)
	if a.theirs == "" || a.over.Load() || a.conn.Ended() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), streamCloseTimeout)
	defer cancel()
	q := peer.Request{Method: api.MethodStreamClose, Params: api.StreamCloseParams{StreamID: a.theirs}, Actor: a.call.request.Actor}
	_, _ = a.conn.Call(ctx, q, nil) // the stream may have ended
}
