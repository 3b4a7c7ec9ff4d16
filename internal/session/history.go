package session

import (
	"sync"
)

// history makes callers wait that may ask about a session which ended before this
// process took over, or that must come after all of them. Its zero value is for a
// process that took over nothing.
type history struct {
	mu     sync.Mutex
	wanted chan struct{} // closed when a caller waits; nil if nothing was taken over
	asked  bool          // wanted is closed
	done   chan struct{} // closed when all ended sessions are rebuilt
}

// expect makes all callers wait until done is closed.
func (h *history) expect() (wanted <-chan struct{}, done chan<- struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted, h.done = make(chan struct{}), make(chan struct{})
	return h.wanted, h.done
}

// await asks for the ended sessions and waits for them.
func (h *history) await() {
	h.mu.Lock()
	if h.wanted != nil && !h.asked {
		h.asked = true
		close(h.wanted)
	}
	h.mu.Unlock()
	h.awaitUnhurried()
}

// awaitUnhurried waits without asking.
func (h *history) awaitUnhurried() {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	if done != nil {
		<-done
	}
}
