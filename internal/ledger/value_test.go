//go:build linux

package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type fields struct {
	N     int64
	Yes   bool
	S     string
	List  []string
	When  time.Time
	Never time.Time
}

func write(f fields) []byte {
	var w Writer
	w.Int(f.N)
	w.Bool(f.Yes)
	w.Text(f.S)
	w.Texts(f.List)
	w.Time(f.When)
	w.Time(f.Never)
	return w.Bytes()
}

func read(b []byte) (fields, error) {
	r := NewReader(b)
	f := fields{N: r.Int(), Yes: r.Bool(), S: r.Text(), List: r.Texts(), When: r.Time(), Never: r.Time()}
	return f, r.Err()
}

func TestValue(t *testing.T) {
	want := fields{-5, true, "é\x00", []string{"a", "", "c"}, time.Unix(12, 34), time.Time{}}
	b := write(want)
	got, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for n := range b {
		if _, err := read(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are enough", n, len(b))
		}
	}
	if _, err := read(append(b, 0)); err == nil {
		t.Error("more than was written is no error")
	}
}

func FuzzValue(f *testing.F) {
	f.Add(write(fields{1, true, "s", []string{"x"}, time.Unix(1, 0), time.Time{}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := read(b); err == nil {
			if again, err := read(write(v)); err != nil || !cmp.Equal(v, again) {
				t.Errorf("%+v became %+v, %v", v, again, err)
			}
		}
	})
}
