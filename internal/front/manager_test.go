package front

import (
	"testing"
	"testing/synctest"
	"time"
)

// A daemon that does not answer is aborted before the watchdog interval ends; one
// that answers is not.
func TestHungDaemonIsAborted(t *testing.T) {
	const watchdog = 40 * time.Second
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{watchdog: watchdog}
		hang, stop := make(chan struct{}), make(chan struct{})
		defer close(hang)
		answers, aborted := 3, time.Time{}
		began := time.Now()
		m.watch(stop, func() string {
			if answers--; answers < 0 {
				<-hang
			}
			return ""
		}, func() { aborted = time.Now() })
		// The last answer came after three halves of the interval.
		if got := aborted.Sub(began) - 3*watchdog/2; got != 3*watchdog/4 {
			t.Errorf("aborted %s after the last answer, with a watchdog of %s", got, watchdog)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m, stop := &Manager{}, make(chan struct{})
		hang := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(stop) })
		m.watch(stop, func() string { <-hang; return "" }, func() { t.Error("aborted without a watchdog") })
		close(hang)
	})
}
