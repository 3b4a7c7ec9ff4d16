package shell

import "time"

// wedge detects a shell that waits for its next line without having reported: the
// user has redefined what reports.
type wedge struct {
	every     time.Duration // until the next look
	since     time.Time     // of the first look
	seen      int           // how often in a row it looked wedged
	emergency bool          // the emergency line was sent
}

const (
	wedgeFirst = 25 * time.Millisecond
	wedgeSlow  = 500 * time.Millisecond // until the command has run wedgePart times as long
	wedgeMost  = 30 * time.Second
	// wedgePart: a command that ended in a wedged shell is noticed within this part
	// of its running time. A look costs two system calls and a wake-up, and hundreds
	// of commands may run: this many looks are taken while a command becomes e times
	// as old, up to wedgeMost.
	wedgePart = 10
)

// pause is how long to wait for the next look.
func (w *wedge) pause() time.Duration {
	slow := max(wedgeSlow, min(time.Since(w.since)/wedgePart, wedgeMost))
	return min(w.every*2, slow)
}
