package daemon

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks tasks
		release := make(chan struct{})
		for range 2 {
			if !tasks.start("stubborn", func() { <-release }) {
				t.Error("refused before it was closed")
			}
		}
		tasks.start("quick", func() {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tasks.wait(ctx); err == nil || !strings.Contains(err.Error(), "stubborn") || strings.Contains(err.Error(), "quick") {
			t.Errorf("%v, want the names of those that run", err)
		}
		if tasks.start("late", func() { t.Error("it ran") }) {
			t.Error("let in after it was closed")
		}
		close(release)
		if err := tasks.wait(t.Context()); err != nil {
			t.Error(err)
		}
		if left := tasks.running(); len(left) > 0 {
			t.Errorf("%v are still counted", left)
		}
	})
}
