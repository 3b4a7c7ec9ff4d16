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
				t.Error("start refused before wait")
			}
		}
		tasks.start("quick", func() {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tasks.wait(ctx); err == nil || !strings.Contains(err.Error(), "stubborn") || strings.Contains(err.Error(), "quick") {
			t.Errorf("%v, want the names of the running tasks", err)
		}
		if tasks.start("late", func() { t.Error("it ran") }) {
			t.Error("start accepted after wait")
		}
		close(release)
		if err := tasks.wait(t.Context()); err != nil {
			t.Error(err)
		}
		if left := tasks.running(); len(left) > 0 {
			t.Errorf("%v still count as running", left)
		}
	})
}
