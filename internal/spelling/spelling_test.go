package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"timout", "timeout", 1},
		{"timeuot", "timeout", 2},
		{"json", "json", 0},
		{"shell", "session", 6},
	} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != got {
			t.Errorf("%q and %q: %d, and %d the other way", c.a, c.b, got, distance(c.b, c.a))
		}
	}
}

func TestClosest(t *testing.T) {
	known := []string{"exec.run", "exec.output", "timeout", "session"}
	for name, want := range map[string]string{
		"exec_run": "exec.run", "Exec/Run": "exec.run", "timout": "timeout", "sesion": "session", "x": "", "nothing": "", "ru": "",
	} {
		if got, ok := Closest(name, known); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", name, got, ok)
		}
	}
}
