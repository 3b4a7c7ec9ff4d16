package shell

import (
	"testing"
	"testing/synctest"
	"time"
)

// await returns how long a watch takes to be due.
func await(t *testing.T, w *watch) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-w.due:
	case <-time.After(24 * time.Hour):
		t.Fatal("the watch is never due")
	}
	return time.Since(begin)
}

func (c *clock) wakeupCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wakeups
}

func TestClockIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.close()
		w := &watch{}
		c.start(w, clockTick)
		if d := await(t, w); d < clockTick || d > 2*clockTick {
			t.Errorf("the first watch was due after %s", d)
		}
		for _, d := range []time.Duration{wedgeFirst, wedgeSlow, wedgeMost} {
			c.set(w, d)
			if got := await(t, w); got < d/2 || got > d+clockTick {
				t.Errorf("a watch for %s was due after %s", d, got)
			}
		}
		// The clock sleeps now, until later than this.
		c.set(w, time.Hour)
		synctest.Wait()
		short := &watch{}
		c.start(short, clockTick)
		if d := await(t, short); d > 2*clockTick {
			t.Errorf("a watch that began while the clock slept was due after %s", d)
		}
		c.stop(short)
		c.set(w, wedgeFirst) // sooner than it was
		if d := await(t, w); d > wedgeFirst+clockTick {
			t.Errorf("a watch that was set again was due after %s", d)
		}
		c.stop(w)
	})
}

// Hundreds of commands that only run must not keep a processor awake.
func TestClockSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.close()
		const commands = 500
		looked := 0
		done := make(chan int)
		stop := make(chan struct{})
		for i := range commands {
			go func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond) // pace: they begin one after another
				w := &watch{}
				c.start(w, clockTick)
				defer c.stop(w)
				g := wedge{since: time.Now(), every: wedgeFirst}
				for n := 0; ; n++ {
					select {
					case <-w.due:
						g.every = g.pause()
						c.set(w, g.every)
					case <-stop:
						done <- n
						return
					}
				}
			}()
		}
		count := func(d time.Duration) int {
			before := c.wakeupCount()
			time.Sleep(d) // pace: synctest's clock
			return c.wakeupCount() - before
		}
		time.Sleep(time.Minute) // pace: synctest's clock
		if n := count(time.Minute); n > 30 {
			t.Errorf("the clock woke %d times in the second minute", n)
		}
		time.Sleep(time.Hour) // pace: synctest's clock
		if n := count(time.Hour); n > 3600/15 {
			t.Errorf("the clock woke %d times in the second hour", n)
		}
		close(stop)
		for range commands {
			looked += <-done
		}
		// 2 h of looks every 15 s or more, and those before.
		if most := commands * (7200/15 + 100); looked > most {
			t.Errorf("%d looks at %d commands, want at most %d", looked, commands, most)
		}
		time.Sleep(2 * time.Hour) // pace: synctest's clock
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != nil {
			t.Error("the clock still runs without watches")
		}
	})
}

// A shell that is wedged after a long command is noticed within a tenth of the
// command's time, and within half a minute.
func TestWedgePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wedge{since: time.Now(), every: wedgeFirst}
		for range 400 {
			w.every = w.pause()
			if ran := time.Since(w.since); w.every > max(wedgeSlow, min(ran/wedgePart, wedgeMost)) {
				t.Fatalf("after %s the next look is in %s", ran, w.every)
			}
			time.Sleep(w.every) // pace: synctest's clock
		}
		if w.every != wedgeMost {
			t.Errorf("after %s the next look is in %s", time.Since(w.since), w.every)
		}
	})
}
