package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
)

// Events that follow each other closely come together, and none waits longer than the
// pause.
func TestEventsComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log events
		w := &watcher{events: &log, at: log.now()}
		began := time.Now()
		var sent []time.Duration
		done := make(chan error, 1)
		go func() {
			done <- w.feed(context.Background(), func(notify.Notification) error {
				sent = append(sent, time.Since(began))
				return nil
			})
		}()
		for _, pause := range []time.Duration{0, eventPause / 4, eventPause / 4, 10 * eventPause, eventPause / 4} {
			time.Sleep(pause) // pace: the clock of the bubble
			synctest.Wait()
			log.add(api.SessionEvent{Type: api.EventState})
		}
		log.close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		first, second := eventPause, eventPause/2+10*eventPause+eventPause
		if diff := cmp.Diff([]time.Duration{first, first, first, second, second}, sent); diff != "" {
			t.Errorf("when they were sent (-want +got): %s", diff)
		}
	})
}
