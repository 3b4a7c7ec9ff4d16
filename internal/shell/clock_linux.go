package shell

import (
	"sync"
	"time"
)

const (
	// clockTick is how exact the clock is.
	clockTick = 2 * time.Millisecond
	// clockLinger is for how many ticks the clock goes on with nobody to tell
	// the time to. Commands often come one right after another.
	clockLinger = 100
)

// clock tells running commands when it is time to look at them. A timer for
// each would cost a short command more than its shell does: every new timer
// wakes the thread that sleeps until the next one is due. The clock ticks only
// while commands run.
type clock struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
	ticking bool
	closed  chan struct{}
	done    sync.WaitGroup
}

// watch is one command's at a time. due has a value when its time has come.
type watch struct {
	at  time.Time // zero: not set; under clock.mu
	due chan struct{}
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
	w.at = time.Now().Add(d)
	c.watches[w] = struct{}{}
	if !c.ticking {
		c.ticking = true
		c.done.Go(c.tick)
	}
}

// set makes the watch due again, after d.
func (c *clock) set(w *watch, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.at = time.Now().Add(d)
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

// close ends the clock, when no watch is left.
func (c *clock) close() {
	close(c.closed)
	c.done.Wait()
}

func (c *clock) tick() {
	ticker := time.NewTicker(clockTick)
	defer ticker.Stop()
	for idle := 0; ; idle++ {
		select {
		case <-c.closed:
			return
		case now := <-ticker.C:
			c.mu.Lock()
			if len(c.watches) > 0 {
				idle = 0
			} else if idle > clockLinger {
				c.ticking = false
				c.mu.Unlock()
				return
			}
			for w := range c.watches {
				if !w.at.IsZero() && !now.Before(w.at) {
					w.at = time.Time{}
					w.due <- struct{}{} // never blocks: it is set once for each value taken
				}
			}
			c.mu.Unlock()
		}
	}
}
