package route

import (
	"context"
	"slices"
	"sync"

	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/peer"
)

// lane keeps the ordered calls of one client connection to one place in order: a
// call is sent only after those before it, even if these must be repeated over a
// new connection. Its zero value is ready to use.
type lane struct {
	mu      sync.Mutex
	line    []*position   // of calls that are not answered, in order
	changed chan struct{} // closed at the next change; nil if no one waits
}

// position is that of one call. Its lane's mu guards it.
type position struct{ sentOver *peer.Conn }

// join takes the last position.
func (l *lane) join() *position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &position{}
	l.line = append(l.line, p)
	return p
}

// leave releases a position: its call has been answered or has failed.
func (l *lane) leave(p *position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.line, p); i >= 0 {
		l.line = slices.Delete(l.line, i, i+1)
	}
	l.broadcast()
}

// sent records that the call was sent.
func (l *lane) sent(p *position, over *peer.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.sentOver = over
	l.broadcast()
}

// broadcast wakes those who wait. The caller must hold mu.
func (l *lane) broadcast() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// await waits until every earlier call is answered, or sent over a connection that
// has not ended.
func (l *lane) await(ctx context.Context, p *position) error {
	for {
		changed := l.blocked(p)
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return arrival.ErrCallerLeft(ctx)
		}
	}
}

// blocked returns nil if the call may be sent, and otherwise what to wait for.
func (l *lane) blocked(p *position) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, earlier := range l.line {
		if earlier == p {
			return nil
		}
		if earlier.sentOver == nil || earlier.sentOver.Ended() {
			break
		}
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}
