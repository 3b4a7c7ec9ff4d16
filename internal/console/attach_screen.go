package console

import (
	"bytes"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

const (
	// frameInterval is the shortest time between two paints of the local
	// terminal: no screen shows more, and a flood of output costs no more than
	// this.
	frameInterval = time.Second / 60
	// noticeDuration is how long a notice covers a part of the screen: long
	// enough to be read twice.
	noticeDuration = 4 * time.Second
	// syncTimeout is how long a program may be in the middle of a synchronized
	// redraw before the partial screen is shown: the program may have died
	// there.
	syncTimeout = 150 * time.Millisecond
)

// display shows a session's screen on the local terminal. It is safe for
// concurrent use. Only the goroutine in run paints, so that a terminal that
// accepts no output blocks no one else.
type display struct {
	terminal *localTerminal

	mu          sync.Mutex // guards the fields below, except wake
	screen      *vt.Screen
	view        *vt.View
	overlay     vt.Painting
	noticeUntil time.Time // when the notice disappears; zero if there is none
	syncSince   time.Time // start of a synchronized redraw; zero if there is none
	finished    bool      // the terminal has been restored

	wake chan struct{} // there is something to paint
}

// newDisplay returns a display for a session's terminal of the given size.
func newDisplay(to *localTerminal, of api.TTYSize) *display {
	size := to.size()
	return &display{
		terminal: to, wake: make(chan struct{}, 1),
		screen: vt.New(vt.Config{Rows: of.Rows, Cols: of.Cols}), view: vt.NewView(size.Rows, size.Cols),
	}
}

// update calls fn with mu held and wakes the painter.
func (d *display) update(fn func()) {
	d.mu.Lock()
	fn()
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// feed applies bytes that were written to the session's terminal.
func (d *display) feed(b []byte) {
	d.update(func() {
		_, _ = d.screen.Write(b) // it never fails
		d.screen.Answers()       // discard them: the daemon answers the program's queries
		d.trackSync()
	})
}

// setScreen replaces the screen with a fetched one.
func (d *display) setScreen(r *api.SessionScreenResult) {
	screen := vt.New(vt.Config{Rows: r.Rows, Cols: r.Cols})
	_, _ = screen.Write([]byte(r.Text))
	d.update(func() {
		d.screen = screen
		d.trackSync()
	})
}

func (d *display) trackSync() {
	switch {
	case !d.screen.Modes().Synchronized:
		d.syncSince = time.Time{}
	case d.syncSince.IsZero():
		d.syncSince = time.Now()
	}
}

// resize adapts the view to a new size of the local terminal.
func (d *display) resize(size api.TTYSize) {
	d.update(func() { d.view.Resize(size.Rows, size.Cols) })
}

// cropped reports whether the local terminal shows only a part of the screen.
func (d *display) cropped() (shown, of api.TTYSize, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _, rows, cols := d.view.Shows()
	of.Rows, of.Cols = d.screen.Size()
	return api.TTYSize{Rows: rows, Cols: cols}, of, rows < of.Rows || cols < of.Cols
}

// notice shows a line for noticeDuration.
func (d *display) notice(text string) {
	d.update(func() { d.overlay.Notice, d.noticeUntil = text, time.Now().Add(noticeDuration) })
}

// status sets the status line, shown where there is room, and whether the user
// types.
func (d *display) status(text string, typing bool) {
	d.update(func() { d.overlay.Status, d.overlay.Typing = text, typing })
}

// run paints until writing to the terminal fails.
func (d *display) run() {
	d.mu.Lock()
	begin := d.view.Begin()
	d.mu.Unlock()
	d.terminal.onClose(d.end)
	err := d.terminal.write(begin)
	for err == nil {
		out, again := d.paint()
		if err = d.terminal.write(out); err != nil {
			return // the reader notices as well that the terminal is gone
		}
		time.Sleep(frameInterval) // pace frames; no one waits for this
		if again == 0 {
			<-d.wake
			continue
		}
		select {
		case <-d.wake:
		case <-time.After(again):
		}
	}
}

// paint returns what to write now, and when to paint again even if nothing
// happens; 0 means never.
func (d *display) paint() (out []byte, again time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.finished {
		return nil, 0
	}
	now := time.Now()
	if !d.noticeUntil.IsZero() {
		if again = d.noticeUntil.Sub(now); again <= 0 {
			d.noticeUntil, d.overlay.Notice, again = time.Time{}, "", 0
		}
	}
	if !d.syncSince.IsZero() {
		if left := syncTimeout - now.Sub(d.syncSince); left > 0 {
			if again == 0 || left < again {
				again = left
			}
			return nil, again
		}
	}
	// A copy, because it is written while end may use the view.
	return bytes.Clone(d.view.Paint(d.screen, d.overlay)), again
}

// end returns the bytes that restore the terminal; nothing is painted after it.
func (d *display) end() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished = true
	return d.view.End()
}
