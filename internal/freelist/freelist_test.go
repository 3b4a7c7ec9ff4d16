package freelist

import (
	"testing"
	"testing/synctest"
	"time"
)

// A burst must not leave behind the values it needed, and during the burst no
// value is made twice.
func TestShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more, burst = 2, 100
		made, ended := 0, 0
		l := List[int]{Make: func() (int, error) { made++; return made, nil }, End: func(int) { ended++ }, More: more}
		rest := func(d time.Duration) {
			time.Sleep(d) // pace: the clock is the bubble's
			synctest.Wait()
		}
		take := func(n int) []int {
			taken := make([]int, n)
			for i := range taken {
				var err error
				if taken[i], err = l.Take(); err != nil {
					t.Fatal(err)
				}
			}
			return taken
		}
		for range 5 { // take and return all of them, several times
			for _, n := range take(burst) {
				l.Put(n)
			}
			rest(shrinkEvery / 2)
		}
		if made != burst || ended != 0 {
			t.Errorf("%d made and %d ended for %d at once", made, ended, burst)
		}
		held := take(10)
		rest(3 * shrinkEvery)
		if len(l.free) != more || made-ended != len(held)+more {
			t.Errorf("%d free while %d are in use; %d made, %d ended", len(l.free), len(held), made, ended)
		}
		l.Drop(held[0])
		for _, n := range held[1:] {
			l.Put(n)
		}
		rest(3 * shrinkEvery)
		if len(l.free) != more || l.inUse != 0 || made-ended != more || l.armed {
			t.Errorf("at the end %d free, %d in use, %d made and %d ended", len(l.free), l.inUse, made, ended)
		}
		held = take(more)
		if made != burst {
			t.Errorf("%d made: a free value is not used", made)
		}
		for _, n := range append(held, take(2*maxFree)...) {
			l.Put(n)
		}
		if len(l.free) != maxFree {
			t.Errorf("%d free, want at most %d", len(l.free), maxFree)
		}
		last := take(1)[0]
		l.Close()
		l.Put(last)
		rest(3 * shrinkEvery)
		if made != ended {
			t.Errorf("%d made, %d ended", made, ended)
		}
	})
}
