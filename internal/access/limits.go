package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds the requests of each token, so that one misbehaving client leaves
// capacity for the others. The zero value means no limits.
type Limits struct {
	Rate       int // requests per second, and the size of a burst; 0: unlimited
	Concurrent int // requests in progress, including streams; 0: unlimited
}

// Limiter enforces the limits for each token, by its id. It is safe for concurrent
// use.
type Limiter struct {
	limits Limits

	mu    sync.Mutex
	users map[string]*usage
}

type usage struct {
	limiter *rate.Limiter
	busy    int
}

// NewLimiter returns a Limiter that enforces l.
func NewLimiter(l Limits) *Limiter { return &Limiter{limits: l, users: map[string]*usage{}} }

// busyRetryAfter is the wait for a token with too many requests in progress: when one
// will end is unknown, and a retry every second is cheap.
const busyRetryAfter = time.Second

// Enter starts one request of a token. The caller must call leave when the request
// has ended. If the token is over its limits, leave is nil and wait is the time to
// wait before a retry.
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

// maxUsers is the number of tokens above which idle ones are removed. Tokens come
// and go, and an idle one has no state worth keeping.
const maxUsers = 256

// add starts tracking a token. The caller must hold l.mu.
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
