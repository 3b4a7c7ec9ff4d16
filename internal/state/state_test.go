package state

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	name string
	n    int32
}

func (v *inner) fields(c *Coder) {
	Text(c, 1, &v.name)
	Int(c, 2, &v.n)
}

type outer struct {
	number  int64
	small   uint16
	text    string
	data    []byte
	yes     bool
	at      time.Time
	words   []string
	one     *inner
	many    []inner
	ignored string // written by a newer version
}

func (v *outer) fields(c *Coder) {
	Int(c, 1, &v.number)
	Int(c, 2, &v.small)
	Text(c, 3, &v.text)
	Bytes(c, 4, &v.data)
	Bool(c, 5, &v.yes)
	Time(c, 6, &v.at)
	Texts(c, 8, &v.words)
	Optional(c, 9, &v.one, func(c *Coder, v *inner) { v.fields(c) })
	List(c, 11, &v.many, func(c *Coder, v *inner) { v.fields(c) })
}

// newer describes outer as a later version has it: with more fields, in between
// and at the end.
func (v *outer) newer(c *Coder) {
	Int(c, 1, &v.number)
	Int(c, 2, &v.small)
	Text(c, 3, &v.text)
	Bytes(c, 4, &v.data)
	Bool(c, 5, &v.yes)
	Time(c, 6, &v.at)
	Text(c, 7, &v.ignored)
	Texts(c, 8, &v.words)
	Optional(c, 9, &v.one, func(c *Coder, w *inner) {
		w.fields(c)
		Text(c, 3, &v.ignored)
	})
	List(c, 11, &v.many, func(c *Coder, w *inner) {
		w.fields(c)
		Text(c, 5, &v.ignored)
	})
	Text(c, 12, &v.ignored)
}

var values = map[string]outer{
	"zero": {},
	"full": {
		number: -1 << 63, small: 65535, text: "é\x00", data: []byte{0, 255}, yes: true, at: time.Unix(0, 1_700_000_000_123_456_789),
		words: []string{"", "a", ""}, one: &inner{"x", -1}, many: []inner{{}, {"y", 2}},
	},
	"empty inside": {one: &inner{}, many: []inner{{}}, words: []string{""}},
}

var compare = cmp.AllowUnexported(outer{}, inner{})

func TestRoundTrip(t *testing.T) {
	for name, v := range values {
		t.Run(name, func(t *testing.T) {
			var got outer
			if err := Decode(Encode(v.fields), got.fields); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, got, compare); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOldAndNewMeet: an old reader skips fields that a newer writer adds, and a
// new reader works without fields that an older writer did not write.
func TestOldAndNewMeet(t *testing.T) {
	for name, v := range values {
		t.Run(name, func(t *testing.T) {
			later := v
			later.ignored = "later"
			var old, again outer
			if err := Decode(Encode(later.newer), old.fields); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, old, compare); diff != "" {
				t.Error("read by the older version:", diff)
			}
			if err := Decode(Encode(v.fields), again.newer); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v, again, compare); diff != "" {
				t.Error("read by the newer version:", diff)
			}
		})
	}
}

func TestDecodeDamaged(t *testing.T) {
	full := values["full"]
	whole := Encode(full.fields)
	for name, b := range map[string][]byte{
		"another kind":       {1<<1 | 1, 0},
		"descending tags":    {3<<1 | 1, 0, 1 << 1, 2},
		"the same tag twice": {1 << 1, 2, 1 << 1, 2},
		"too large":          {2 << 1, 0x80, 0x80, 0x08},
		"cut":                whole[:len(whole)-1],
		"cut unknown":        {60<<1 | 1, 5, 0},
		"list cut":           {11<<1 | 1, 1, 9},
		"unknown descending": {60<<1 | 1, 0, 59<<1 | 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var v outer
			if err := Decode(b, v.fields); !errors.Is(err, ErrDamaged) {
				t.Errorf("Decode(%x) = %v, want %v", b, err, ErrDamaged)
			}
		})
	}
}

func TestTagsMustAscend(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Encode with descending tags did not panic")
		}
	}()
	Encode(func(c *Coder) {
		n := 1
		Int(c, 2, &n)
		Int(c, 1, &n)
	})
}

func FuzzDecode(f *testing.F) {
	for _, v := range values {
		f.Add(Encode(v.fields))
		f.Add(Encode(v.newer))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v outer
		if Decode(b, v.fields) != nil {
			return
		}
		var again outer
		written := Encode(v.fields)
		if err := Decode(written, again.fields); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(written, Encode(again.fields)) {
			t.Error("encoding the decoded value gives different bytes")
		}
	})
}
