package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
)

// TestSweepReturnsWhenItIsDue: housekeeping sleeps until something is due, not for a
// second at a time.
func TestSweepReturnsWhenItIsDue(t *testing.T) {
	now := time.Now()
	const retention = 10 * time.Minute
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		session *Session
		ended   []time.Duration // how long ago its execs ended, oldest first
		want    time.Duration
	}{
		"none":            {nil, nil, retention},
		"running":         {&Session{state: api.StateRunning}, nil, retention},
		"idle":            {&Session{state: api.StateIdle, active: ago(time.Hour)}, nil, retention},
		"idle with a TTL": {&Session{state: api.StateIdle, idleTTL: time.Minute, active: ago(20 * time.Second)}, nil, 40 * time.Second},
		"running with a TTL": {
			&Session{state: api.StateRunning, idleTTL: time.Minute, active: ago(20 * time.Second)}, nil, time.Minute,
		},
		"terminated": {
			&Session{state: api.StateTerminated, terminated: &api.Terminated{At: api.Time{Time: ago(7 * time.Minute)}}}, nil, 3 * time.Minute,
		},
		"finished execs":       {&Session{state: api.StateIdle}, []time.Duration{50 * time.Minute, time.Minute}, retention},
		"an old finished exec": {&Session{state: api.StateIdle}, []time.Duration{55 * time.Minute, time.Minute}, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := now
				p := &Pool{shared: &shared{cfg: Config{SessionRetention: retention, ExecRetention: time.Hour, MaxTerminated: 10}}}
				if tc.session != nil {
					tc.session.shared = p.shared
					p.order = append(p.order, tc.session)
				}
				if len(tc.ended) > 0 {
					store := journal.NewStore(journal.Config{})
					defer store.Close()
					env := exec.NewEnv(exec.Config{Keeper: holder.NewLocalKeeper(), Journals: store})
					defer env.Close()
					now = time.Now().Add(tc.ended[0])
					for _, ended := range tc.ended {
						time.Sleep(time.Until(now.Add(-ended))) // pace: synctest's clock
						e := exec.New(env, exec.Spec{})
						e.CancelQueued()
						tc.session.finished = append(tc.session.finished, e)
					}
					tc.session.finished = append(tc.session.finished, exec.New(env, exec.Spec{})) // it has not ended
					defer func() {
						for _, e := range tc.session.finished {
							e.ReleaseOutput()
						}
					}()
				}
				if got := p.sweep(now).Sub(now); got != tc.want {
					t.Errorf("the next sweep is in %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// TestHousekeepingSleeps: a sweep comes when something is due, and sooner if
// something is added that is due sooner.
func TestHousekeepingSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{
			shared: &shared{
				cfg:           Config{Housekeeping: time.Second, SessionRetention: time.Hour, ExecRetention: 2 * time.Hour, MaxTerminated: 1},
				sweepRequests: make(chan struct{}, 1), ledger: &ledgerWriter{},
			},
			stop: make(chan struct{}), sessions: map[string]*Session{},
		}
		end := func(id string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			s := &Session{shared: p.shared, id: id, state: api.StateTerminated, terminated: &api.Terminated{At: api.Time{Time: time.Now()}}}
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
			t.Errorf("%d sessions are kept, want 2: no sweep was requested", n)
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
