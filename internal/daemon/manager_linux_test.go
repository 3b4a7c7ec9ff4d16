package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A daemon that does not answer is aborted before the watchdog interval ends; one
// that answers is not.
func TestHungDaemonIsGivenUp(t *testing.T) {
	const watchdog = 40 * time.Second
	synctest.Test(t, func(t *testing.T) {
		m := &manager{watchdog: watchdog}
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
		m, stop := &manager{}, make(chan struct{})
		hang := make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(stop) })
		m.watch(stop, func() string { <-hang; return "" }, func() { t.Error("aborted without a watchdog") })
		close(hang)
	})
}

func TestPassedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want []int
	}{
		"none":        {nil, nil},
		"two":         {[]string{"LISTEN_PID=7", "LISTEN_FDS=2"}, []int{3, 4}},
		"another pid": {[]string{"LISTEN_PID=8", "LISTEN_FDS=2"}, nil},
		"no pid":      {[]string{"LISTEN_FDS=2"}, nil},
		"no number":   {[]string{"LISTEN_PID=7", "LISTEN_FDS=x"}, nil},
		"negative":    {[]string{"LISTEN_PID=7", "LISTEN_FDS=-1"}, nil},
	} {
		if diff := cmp.Diff(c.want, passedFiles(Environment{Variables: c.env}, 7)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	env := daemonEnv([]string{"A=1", "LISTEN_PID=7", "LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "NOTIFY_SOCKET=/n"}, 2)
	if diff := cmp.Diff([]string{"A=1", "NOTIFY_SOCKET=/n", "LISTEN_FDS=2"}, env); diff != "" {
		t.Error(diff)
	}
}
