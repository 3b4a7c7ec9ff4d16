package holder

import (
	"testing"
	"testing/synctest"
	"time"
)

// A burst must not leave behind what it needed, and while it lasts nothing is
// made twice.
func TestSparesShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more, burst = 2, 100
		made, ended := 0, 0
		s := Spares[int]{Make: func() (int, error) { made++; return made, nil }, End: func(int) { ended++ }, More: more}
		rest := func(d time.Duration) {
			time.Sleep(d) // pace: the clock is the bubble's
			synctest.Wait()
		}
		take := func(n int) []int {
			taken := make([]int, n)
			for i := range taken {
				var err error
				if taken[i], err = s.Take(); err != nil {
					t.Fatal(err)
				}
			}
			return taken
		}
		for range 5 { // all of them come and go, again and again
			for _, n := range take(burst) {
				s.Put(n)
			}
			rest(shrinkEvery / 2)
		}
		if made != burst || ended != 0 {
			t.Errorf("%d made and %d ended for %d at once", made, ended, burst)
		}
		held := take(10)
		rest(3 * shrinkEvery)
		if len(s.spare) != more || made-ended != len(held)+more {
			t.Errorf("%d spare ones while %d are in use; %d made, %d ended", len(s.spare), len(held), made, ended)
		}
		s.Drop(held[0])
		for _, n := range held[1:] {
			s.Put(n)
		}
		rest(3 * shrinkEvery)
		if len(s.spare) != more || s.inUse != 0 || made-ended != more || s.armed {
			t.Errorf("at the end %d spare, %d in use, %d made and %d ended", len(s.spare), s.inUse, made, ended)
		}
		held = take(more)
		if made != burst {
			t.Errorf("%d made: a spare one is not used", made)
		}
		for _, n := range append(held, take(2*mostSpare)...) {
			s.Put(n)
		}
		if len(s.spare) != mostSpare {
			t.Errorf("%d spare ones, want at most %d", len(s.spare), mostSpare)
		}
		last := take(1)[0]
		s.Close()
		s.Put(last)
		rest(3 * shrinkEvery)
		if made != ended {
			t.Errorf("%d made, %d ended", made, ended)
		}
	})
}
