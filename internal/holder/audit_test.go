package holder

import (
	"slices"
	"testing"
)

func TestAudit(t *testing.T) {
	one, two, three, four := newSlot(1001, 1), newSlot(1002, 2), newSlot(1003, 0), newSlot(1004, 9)
	kept := []Slot{Root, one, two, three, four, newSlot(1005, 10)}
	earlier, gone := newSlot(1002, 1), newSlot(1009, 3)
	problems, strays := Audit(kept, []Claim{
		{"ledger", []Slot{Root}},
		{"a", []Slot{one, 0, -1, one}}, // claims its own slot twice
		{"b", []Slot{two, four}},
		{"c", []Slot{earlier, three, gone}},
		{"d", []Slot{four}},
	})
	want := []Problem{{"b", four, ErrShared}, {"c", earlier, ErrStale}, {"c", gone, ErrEmpty}, {"d", four, ErrShared}}
	if !slices.Equal(problems, want) {
		t.Errorf("problems %v, want %v", problems, want)
	}
	if !slices.Equal(strays, []Slot{newSlot(1005, 10)}) {
		t.Errorf("strays %v", strays)
	}
	if problems, strays := Audit(nil, nil); problems != nil || strays != nil {
		t.Errorf("of nothing: %v, %v", problems, strays)
	}
	// The ledger of a version that had no generations, and what it kept.
	if problems, strays := Audit([]Slot{Root, 1001}, []Claim{{"ledger", []Slot{Root}}, {"a", []Slot{1001}}}); problems != nil || strays != nil {
		t.Errorf("without generations: %v, %v", problems, strays)
	}
}
