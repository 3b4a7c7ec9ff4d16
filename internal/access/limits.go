package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds what each token may ask of the daemon, so that one client
// that has gone wild leaves room for the others. The zero value bounds nothing.
type Limits struct {
	Rate       int // requests a second, and as many in a burst; 0: any
	Concurrent int // requests being served, streams included; 0: any
}

// Limiter keeps the limits, for each token by its id. It is safe for
// concurrent use.
type Limiter struct {
	limits Limits

	mu    sync.Mutex
	users map[string]*usage
}

type usage struct {
	limiter *rate.Limiter
	busy    int
}

// NewLimiter returns one with nothing used.
func NewLimiter(l Limits) *Limiter { return &Limiter{limits: l, users: map[string]*usage{}} }

// fullWait is what who has too many requests in flight is told to wait: when
// one ends is not known, and asking again after a second costs nobody much.
const busyRetryAfter = time.Second

// Enter takes room for one request of a token. If there is none it returns
// how long to wait before asking again; else leave gives the room back.
func (l *Limiter) Enter(id string) (leave func(), wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[id]
	if u == nil {
		u = l.add(id)
	}
	if l.limits.Concurrent > 0 && u.busy >= l.limits.Concurrent {
		return nil, busyRetryAfter
	}
	if u.limiter != nil {
		now := time.Now()
		if !u.limiter.AllowN(now, 1) {
			missing := 1 - u.limiter.TokensAt(now)
			return nil, time.Duration(missing / float64(l.limits.Rate) * float64(time.Second))
		}
	}
	u.busy++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		u.busy--
	}, 0
}

// maxUsers is how many tokens are kept before those at rest are forgotten.
// Tokens come and go; what is known of one at rest is as good as nothing.
const maxUsers = 256

// add makes the account of a token. Under l.mu.
func (l *Limiter) add(id string) *usage {
	if len(l.users) >= maxUsers {
		for other, u := range l.users {
			if u.busy == 0 && (u.limiter == nil || u.limiter.Tokens() >= float64(l.limits.Rate)) {
				delete(l.users, other)
			}
		}
	}
	u := &usage{}
	if l.limits.Rate > 0 {
		u.limiter = rate.NewLimiter(rate.Limit(l.limits.Rate), l.limits.Rate)
	}
	l.users[id] = u
	return u
}
