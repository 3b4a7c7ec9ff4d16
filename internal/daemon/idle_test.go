package daemon

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks tasks
		var live, clients, ever atomic.Int64
		closed := make(chan struct{})
		const ttl = time.Hour
		idle := whenIdle(ttl, func() int { return int(live.Load()) },
			func() (int, uint64) { return int(clients.Load()), uint64(ever.Load()) }, &tasks, closed)
		isIdle := func() bool {
			synctest.Wait()
			select {
			case <-idle:
				return true
			default:
				return false
			}
		}
		pass := func(d time.Duration) {
			time.Sleep(d) // pace: the clock of the bubble, which takes no time
		}
		live.Store(1)
		pass(3 * ttl)
		if isIdle() {
			t.Fatal("it does not count the session")
		}
		live.Store(0)
		clients.Store(1)
		pass(3 * ttl)
		if isIdle() {
			t.Fatal("it does not count the client")
		}
		clients.Store(0)
		pass(ttl * 3 / 4)
		ever.Add(1) // a client that came and left
		pass(ttl * 3 / 4)
		if isIdle() {
			t.Fatal("it does not count the client that has left")
		}
		pass(ttl / 2)
		if !isIdle() {
			t.Fatal("it never ends")
		}
		close(closed)
	})
}

func TestWhenNeverIdle(t *testing.T) {
	if whenIdle(0, nil, nil, nil, nil) != nil {
		t.Error("0 does not mean never")
	}
}
