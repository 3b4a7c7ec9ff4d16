package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// Housekeeping sleeps until something is due, and not a second at a time.
func TestSweepTellsWhatIsNext(t *testing.T) {
	now := time.Now()
	const retention = 10 * time.Minute
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	ended := func(d time.Duration) *Exec { return &Exec{ended: ago(d)} }
	for name, tc := range map[string]struct {
		session *Session
		want    time.Duration
	}{
		"none":            {nil, retention},
		"running":         {&Session{state: api.StateRunning}, retention},
		"idle":            {&Session{state: api.StateIdle, active: ago(time.Hour)}, retention},
		"idle with a TTL": {&Session{state: api.StateIdle, idleTTL: time.Minute, active: ago(20 * time.Second)}, 40 * time.Second},
		"running with a TTL": {
			&Session{state: api.StateRunning, idleTTL: time.Minute, active: ago(20 * time.Second)}, time.Minute,
		},
		"terminated": {
			&Session{state: api.StateTerminated, terminated: &api.Terminated{At: api.Time{Time: ago(7 * time.Minute)}}}, 3 * time.Minute,
		},
		"finished execs": {
			&Session{state: api.StateIdle, finished: []*Exec{ended(time.Minute), {}, ended(50 * time.Minute)}}, retention,
		},
		"an old finished exec": {
			&Session{state: api.StateIdle, finished: []*Exec{ended(time.Minute), {}, ended(55 * time.Minute)}}, 5 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Pool{cfg: Config{SessionRetention: retention, ExecRetention: time.Hour, MaxTerminated: 10}}
			if tc.session != nil {
				tc.session.pool = p
				p.order = append(p.order, tc.session)
			}
			if got := p.sweep(now).Sub(now); got != tc.want {
				t.Errorf("the next sweep is in %s, want %s", got, tc.want)
			}
		})
	}
}

// A sweep comes when it is due, and sooner if something is added that is.
func TestHousekeepingSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{
			cfg:  Config{Housekeeping: time.Second, SessionRetention: time.Hour, ExecRetention: 2 * time.Hour, MaxTerminated: 1},
			stop: make(chan struct{}), sweepRequests: make(chan struct{}, 1), sessions: map[string]*Session{},
		}
		end := func(id string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			s := &Session{pool: p, id: id, state: api.StateTerminated, terminated: &api.Terminated{At: api.Time{Time: time.Now()}}}
			p.order = append(p.order, s)
			p.sessions[id] = s
			p.terminated++
		}
		kept := func() int {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.order)
		}
		p.spawn(p.housekeep)
		end("one")
		time.Sleep(30 * time.Minute) // pace: synctest's clock
		end("two")
		time.Sleep(time.Minute) // pace: synctest's clock
		if n := kept(); n != 2 {
			t.Errorf("%d sessions are kept, want 2: nobody has said that a sweep is due", n)
		}
		p.requestSweep()
		time.Sleep(2 * time.Second) // pace: synctest's clock
		if n := kept(); n != 1 {
			t.Errorf("%d sessions are kept, want 1", n)
		}
		time.Sleep(58*time.Minute + 50*time.Second) // pace: "two" is an hour old in 8 s
		if n := kept(); n != 1 {
			t.Errorf("%d sessions are kept, want 1", n)
		}
		time.Sleep(12 * time.Second) // pace: synctest's clock
		if n := kept(); n != 0 {
			t.Errorf("%d sessions are kept, want none", n)
		}
		close(p.stop)
		p.work.Wait()
	})
}

func TestInputPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Exec{}
		e.lastByte.Store(time.Now().UnixNano())
		for _, tc := range []struct{ quiet, want time.Duration }{
			{0, inputPollInterval}, {200 * time.Millisecond, inputPollInterval}, {2 * time.Second, 200 * time.Millisecond}, {time.Hour, maxInputPoll},
		} {
			time.Sleep(tc.quiet) // pace: synctest's clock
			if got := e.inputPollDelay(false); got < tc.want || got > tc.want+tc.want/5 {
				t.Errorf("%s later the pause is %s, want %s", tc.quiet, got, tc.want)
			}
			if got := e.inputPollDelay(true); got != inputPollInterval {
				t.Errorf("one that waits is looked at again after %s", got)
			}
		}
	})
}
