package holder

import "testing"

// A burst must not leave behind what it needed.
func TestSparesShrink(t *testing.T) {
	const more, burst = 2, 300
	made, ended := 0, 0
	s := Spares[int]{Make: func() (int, error) { made++; return made, nil }, End: func(int) { ended++ }, More: more}
	var taken []int
	for range burst {
		n, err := s.Take()
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, n)
	}
	top := 0
	for i, n := range taken {
		if i%10 == 0 {
			s.Drop(n)
		} else {
			s.Put(n)
		}
		top = max(top, len(s.spare))
		if len(s.spare) > s.inUse+more {
			t.Errorf("%d spare ones, %d in use", len(s.spare), s.inUse)
		}
	}
	if top <= more || top > mostSpare || len(s.spare) != more || s.inUse != 0 || made-ended != more {
		t.Errorf("at most %d spare; at the end %d, %d in use, %d made and %d ended", top, len(s.spare), s.inUse, made, ended)
	}
	if n, err := s.Take(); err != nil || made != burst {
		t.Errorf("took %d, %v: a spare one is not used", n, err)
	}
	s.Drop(0)
	s.Close()
	if made != ended {
		t.Errorf("%d made, %d ended", made, ended)
	}
}
