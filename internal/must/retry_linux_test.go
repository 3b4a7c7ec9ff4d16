package must

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// TestMustRunOnce sends commands with keys, each one to four times at once, over
// connections that are cut every few answers. It was seen to fail with clients
// that sent another key with each try.
func TestMustRunOnce(t *testing.T) {
	const commands, sessions, clients = 3000, 12, 8
	rnd := seeded(t)
	r := start(t, "--max-execs", "1000") // a late retry must still get the result
	proxy, err := trltest.NewProxy("unix", r.Socket+".proxy", r.Socket, 4<<10, rnd.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	log := filepath.Join(t.TempDir(), "log")
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = r.create(api.SessionCreateParams{Shell: "dash"}).SessionID
	}
	callers := make([]*client.Client, clients)
	for i := range callers {
		if callers[i], err = client.DialWith(r.ctx, proxy.Addr(), client.Options{Patience: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	sent := 0
	for i := range commands {
		params := api.ExecRunParams{
			ExecCommand: api.ExecCommand{SessionID: ids[i%sessions], Wait: true, Key: fmt.Sprint("k", i), Command: fmt.Sprintf("echo %d >>%s", i, log)},
		}
		for range 1 + rnd.IntN(4) {
			sent++
			c := callers[rnd.IntN(clients)]
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if res, err := c.Run(r.ctx, params); err != nil || *res.ExitCode != 0 {
					t.Errorf("command %d: %+v, %v", i, res, err)
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(began)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.FieldsSeq(string(text)) {
		times[line]++
	}
	for i := range commands {
		if n := times[fmt.Sprint(i)]; n != 1 {
			t.Errorf("command %d ran %d times", i, n)
		}
	}
	if proxy.Cuts() < 100 {
		t.Errorf("only %d connections were cut", proxy.Cuts())
	}
	gauge.Figures(t, "%d commands with keys, sent %d times, %d connections cut: %d executions; %v",
		commands, sent, proxy.Cuts(), strings.Count(string(text), "\n"), took.Round(time.Millisecond))
	for _, c := range callers {
		c.Close()
	}
	proxy.Close()
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}
