package holder

import (
	"errors"
	"slices"
)

// ErrShared means that two owners claim the same slot.
var ErrShared = errors.New("slot is claimed by two owners")

// Claim lists the slots that one owner believes the holder keeps for it.
type Claim struct {
	Owner string
	Slots []Slot // values of 0 and below are ignored
}

// Problem is a slot that its owner must not use.
type Problem struct {
	Owner string
	Slot  Slot
	Err   error // ErrEmpty, ErrStale or ErrShared
}

// Audit compares the slots that the holder keeps with the slots that owners
// claim. It reports a problem to each owner of a slot that is not kept, is kept
// with another generation, or is claimed by several owners; an owner may claim
// its own slot twice. strays are the kept slots that no owner claims. Both
// results are in the order of the arguments.
func Audit(kept []Slot, claims []Claim) (problems []Problem, strays []Slot) {
	byNumber := make(map[int]Slot, len(kept))
	for _, slot := range kept {
		byNumber[slot.Number()] = slot
	}
	type use struct {
		owner  int // index of the first claim that names it
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
			found, ok := byNumber[slot.Number()]
			var err error
			switch {
			case !ok:
				err = ErrEmpty
			case found != slot:
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
