// Package notify has the types that carry a stream from the layer that opens it to
// the transport that sends it.
package notify

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// Notification is a message that the daemon sends after the answer to a method
// that opened a stream: an *api.Chunk, a *RawChunk, an *api.SessionEvent, or a
// *Passed one of another TRL.
type Notification interface {
	Method() string
	// AppendJSON appends the params of the notification.
	AppendJSON(b []byte) ([]byte, error)
}

// Feed sends the notifications of one stream in order. It returns when the
// stream has ended or ctx is done. send returns once the notification has been
// handed on; an error from send ends the feed.
type Feed func(ctx context.Context, send func(Notification) error) error

// RawChunk is a chunk that is about to be sent: Raw holds its content as bytes,
// in place of Data and Encoding.
type RawChunk struct {
	api.Chunk
	Raw []byte
}

// AppendJSON appends the chunk, with its content as text or as base64.
func (c *RawChunk) AppendJSON(b []byte) ([]byte, error) { return c.AppendJSONWith(b, c.Raw) }

// Passed is a notification of another TRL that is passed on as it came. Its stream
// has the id of the stream that passes it on.
type Passed struct {
	Name string // of the notification
	JSON []byte // its params, one line; valid until send returns
	Next int64  // of a chunk: the offset that follows it
}

// Method returns the name of the notification.
func (p *Passed) Method() string { return p.Name }

// AppendJSON appends the params.
func (p *Passed) AppendJSON(b []byte) ([]byte, error) { return append(b, p.JSON...), nil }
