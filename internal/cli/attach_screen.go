package cli

import (
	"bytes"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

const (
	// frameTime is how often a person's terminal is painted at most: no screen
	// shows more, and a flood of output costs no more than this.
	frameInterval = time.Second / 60
	// noticeTime is how long a notice hides a part of the screen: long enough
	// to be read twice.
	noticeDuration = 4 * time.Second
	// syncTime is how long a program may be in the middle of a redraw before
	// what there is of it is shown: it may have died there.
	syncTimeout = 150 * time.Millisecond
)

// display shows a session's screen on a person's terminal. Any goroutine may
// call it; what it shows is painted by the one in run alone, so that a terminal
// that takes nothing holds up nobody else.
type display struct {
	terminal *localTerminal

	mu          sync.Mutex // guards what follows
	screen      *vt.Screen
	view        *vt.View
	overlay     vt.Painting
	noticeUntil time.Time // when the notice goes away; zero: there is none
	syncSince   time.Time // since when the program has been redrawing; zero: it is not
	finished    bool      // the terminal was given back

	wake chan struct{} // something is to be painted
}

// newDisplay makes a display for a session's terminal of that size.
func newDisplay(to *localTerminal, of api.TTYSize) *display {
	size := to.size()
	return &display{
		terminal: to, wake: make(chan struct{}, 1),
		screen: vt.New(vt.Config{Rows: of.Rows, Cols: of.Cols}), view: vt.NewView(size.Rows, size.Cols),
	}
}

// change does something to what is shown.
func (d *display) update(fn func()) {
	d.mu.Lock()
	fn()
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// feed takes what was written to the session's terminal.
func (d *display) feed(b []byte) {
	d.update(func() {
		_, _ = d.screen.Write(b) // it takes everything
		d.screen.Answers()       // whom a program asks, the daemon decides
		d.trackSync()
	})
}

// replace takes the session's screen as it is now.
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

// resize makes room for a person's terminal of another size.
func (d *display) resize(size api.TTYSize) {
	d.update(func() { d.view.Resize(size.Rows, size.Cols) })
}

// cropped reports whether the person's terminal shows a part of the screen only.
func (d *display) cropped() (shown, of api.TTYSize, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _, rows, cols := d.view.Shows()
	of.Rows, of.Cols = d.screen.Size()
	return api.TTYSize{Rows: rows, Cols: cols}, of, rows < of.Rows || cols < of.Cols
}

// notice shows a line for a while.
func (d *display) notice(text string) {
	d.update(func() { d.overlay.Notice, d.noticeUntil = text, time.Now().Add(noticeDuration) })
}

// status says what is shown where there is room, and whether the person types.
func (d *display) status(text string, typing bool) {
	d.update(func() { d.overlay.Status, d.overlay.Typing = text, typing })
}

// run paints until the terminal takes no more.
func (d *display) run() {
	d.mu.Lock()
	begin := d.view.Begin()
	d.mu.Unlock()
	d.terminal.onClose(d.end)
	err := d.terminal.write(begin)
	for err == nil {
		out, again := d.paint()
		if err = d.terminal.write(out); err != nil {
			return // who is to know hears that the terminal is gone
		}
		time.Sleep(frameInterval) // the next frame; nothing waits for this
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

// paint returns what to write now, and when to paint even if nothing happens; 0
// is never.
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
	// Of its own, for it is written while end may use the view.
	return bytes.Clone(d.view.Paint(d.screen, d.overlay)), again
}

// end returns what gives the terminal back; nothing is painted after it.
func (d *display) end() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finished = true
	return d.view.End()
}
