package holder

import (
	"errors"
	"slices"
)

// ErrShared says that two owners name one slot.
var ErrShared = errors.New("the slot is named by two owners")

// Claim is what one owner says that the holder keeps for it.
type Claim struct {
	Owner string
	Slots []Slot // what is not above 0 is no slot, and ignored
}

// Problem is a slot that its owner must not use.
type Problem struct {
	Owner string
	Slot  Slot
	Err   error // ErrEmpty, ErrOther or ErrShared
}

// Audit compares the slots that the holder keeps with those that owners name. It
// reports a problem to each owner of a slot that is not kept, is kept in another
// generation, or is named by several owners; an owner may name its own slot
// twice. strays are the kept slots that no owner names. Both results are in the
// order of the arguments.
func Audit(kept []Slot, claims []Claim) (problems []Problem, strays []Slot) {
	there := make(map[int]Slot, len(kept))
	for _, slot := range kept {
		there[slot.Number()] = slot
	}
	type use struct {
		owner  int // the first that names it
		shared bool
	}
	uses := make(map[Slot]use, len(kept))
	for owner, claim := range claims {
		for _, slot := range claim.Slots {
			u, ok := uses[slot]
			if !ok {
				u.owner = owner
			}
			u.shared = u.shared || u.owner != owner
			uses[slot] = u
		}
	}
	for _, claim := range claims {
		for i, slot := range claim.Slots {
			if slot <= 0 || slices.Contains(claim.Slots[:i], slot) {
				continue
			}
			is, ok := there[slot.Number()]
			var err error
			switch {
			case !ok:
				err = ErrEmpty
			case is != slot:
				err = ErrStale
			case uses[slot].shared:
				err = ErrShared
			default:
				continue
			}
			problems = append(problems, Problem{claim.Owner, slot, err})
		}
	}
	for _, slot := range kept {
		if _, ok := uses[slot]; !ok {
			strays = append(strays, slot)
		}
	}
	return problems, strays
}
