package terminal

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestInputPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := time.Now()
		for _, tc := range []struct{ quiet, want time.Duration }{
			{0, InputPollInterval}, {200 * time.Millisecond, InputPollInterval}, {2 * time.Second, 200 * time.Millisecond}, {time.Hour, maxInputPoll},
		} {
			time.Sleep(tc.quiet) // pace: synctest's clock
			if got := InputPollDelay(last, false); got < tc.want || got > tc.want+tc.want/5 {
				t.Errorf("%s later the delay is %s, want %s", tc.quiet, got, tc.want)
			}
			if got := InputPollDelay(last, true); got != InputPollInterval {
				t.Errorf("a waiting command is checked again after %s", got)
			}
		}
	})
}
