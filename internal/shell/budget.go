package shell

import "time"

// budget decides when a standby is worth its fork. The fork delays no command while
// the shell is idle; in a burst of commands it would delay each of them. So the
// first commands after a pause get a standby each, at once, and a burst gets one now
// and then: taking them costs at most a few percent of the burst, and a roll-back
// loses at most what ran since.
//
// The cost of a standby is measured. It is higher where many shells are busy at
// once, or where a shell is large, and there both the time between two standbys and
// what counts as a pause are longer too: otherwise the standbys of many shells would
// take the processors from all their commands.
type budget struct {
	tokens float64
	at     time.Time
	cost   time.Duration // of a standby, from when the shell was asked for it
}

const (
	budgetMax   = 4.0
	budgetShare = 40 // a token is worth this many times the cost
	// minStandbyCost is what one costs on a machine with nothing else to do. It is
	// assumed at first and is the least that is reckoned with.
	minStandbyCost = time.Millisecond
	// maxStandbyCost is the most that is reckoned with: it bounds what a burst may
	// lose.
	maxStandbyCost = 50 * time.Millisecond
	// idleShare is the pause, in costs, after which a shell without a current
	// standby takes one.
	idleShare = 5
)

// recordCost updates the estimate. A single measurement may have met a bad moment,
// so it counts for a quarter.
func (b *budget) recordCost(d time.Duration) {
	b.cost = b.estimate() + (min(d, maxStandbyCost)-b.estimate())/4
}

func (b *budget) estimate() time.Duration { return min(max(b.cost, minStandbyCost), maxStandbyCost) }

// pause is how long a shell must be idle to take a standby without a token.
func (b *budget) pause() time.Duration { return idleShare * b.estimate() }

// take reports whether there was a token for a standby now, and uses it.
func (b *budget) take(now time.Time) bool {
	if b.at.IsZero() {
		b.tokens = budgetMax
	} else {
		b.tokens = min(budgetMax, b.tokens+float64(now.Sub(b.at))/float64(budgetShare*b.estimate()))
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
