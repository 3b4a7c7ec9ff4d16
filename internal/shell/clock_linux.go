package shell

import (
	"sync"
	"time"
)

const (
	// clockTick is how exact the clock is for commands that have just begun.
	clockTick = 2 * time.Millisecond
	// clockLinger is how many ticks the clock continues after the last command
	// has begun. Commands often come one right after another.
	clockLinger = 100
	// clockLong is the least time that is long: a watch may then be due after half
	// of it, so that one wake-up serves all watches. With less slack the watches of
	// commands that began at different times would never be due together.
	clockLong = 500 * time.Millisecond
	// clockShare is what each watch adds to the shortest long time, so that
	// looking at hundreds of commands costs no more than looking at a few.
	clockShare = 20 * time.Millisecond
)

// clock signals when it is time to look at running commands. A timer for
// each would cost a short command more than its shell does: every new timer
// wakes the thread that sleeps until the next one is due. So the clock ticks
// while commands begin. When none has begun for a while it sleeps until the
// next watch is due. Without watches its goroutine ends.
type clock struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
	timer   *time.Timer // of the clock's goroutine; nil means that there is none
	started int         // how many watches have been started
	wakeups int         // how often the goroutine woke, for tests
	next    time.Time   // when it wakes from its sleep; zero means that it ticks
	closed  chan struct{}
	done    sync.WaitGroup
}

// watch belongs to one command at a time. due has a value when its time has come.
type watch struct {
	from, at time.Time // it is due between these; zero means not set; guarded by clock.mu
	due      chan struct{}
}

func newClock() *clock {
	return &clock{watches: map[*watch]struct{}{}, closed: make(chan struct{})}
}

// start makes a watch due after d.
func (c *clock) start(w *watch, d time.Duration) {
	if w.due == nil {
		w.due = make(chan struct{}, 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w] = struct{}{}
	c.started++
	c.arm(w, d)
	if c.timer == nil {
		c.timer = time.NewTimer(clockTick)
		c.done.Go(c.run)
	}
}

// set makes the watch due again, after d.
func (c *clock) set(w *watch, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm(w, d)
}

// arm sets a watch, and the timer if the clock would sleep for too long. The
// caller must hold mu.
func (c *clock) arm(w *watch, d time.Duration) {
	slack := time.Duration(0)
	if d >= clockLong {
		d = max(d, time.Duration(len(c.watches))*clockShare)
		slack = d / 2
	}
	w.at = time.Now().Add(d)
	w.from = w.at.Add(-slack)
	if w.at.Before(c.next) {
		c.next = w.at
		c.timer.Reset(d)
	}
}

func (c *clock) stop(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, w)
	select {
	case <-w.due:
	default:
	}
}

// close stops the clock. The caller must have stopped all watches.
func (c *clock) close() {
	close(c.closed)
	c.done.Wait()
}

// run ticks while commands begin, else sleeps until a watch is due, and returns when
// no watch is left.
func (c *clock) run() {
	started, quiet := 0, 0
	for {
		select {
		case <-c.closed:
			return
		case <-c.timer.C:
		}
		c.mu.Lock()
		c.wakeups++
		now := time.Now()
		c.fire(now)
		if quiet++; c.started != started {
			started, quiet = c.started, 0
		}
		pause := clockTick
		c.next = time.Time{}
		if quiet > clockLinger {
			if len(c.watches) == 0 {
				c.timer = nil
				c.mu.Unlock()
				return
			}
			c.next = c.earliest(now)
			pause = c.next.Sub(now)
		}
		c.timer.Reset(pause)
		c.mu.Unlock()
	}
}

// fire signals the watches that are due. The caller must hold mu.
func (c *clock) fire(now time.Time) {
	for w := range c.watches {
		if !w.at.IsZero() && !now.Before(w.from) {
			w.at = time.Time{}
			w.due <- struct{}{} // never blocks: it is set once for each value taken
		}
	}
}

// earliest returns when the next watch must be signalled. The caller must hold mu.
func (c *clock) earliest(now time.Time) time.Time {
	next := now.Add(time.Hour) // those that were signalled are about to be set again
	for w := range c.watches {
		if !w.at.IsZero() && w.at.Before(next) {
			next = w.at
		}
	}
	return next
}
