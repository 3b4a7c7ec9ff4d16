package must

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	listSessions = 1000
	listRunning  = 50 // of them run a command
	listOver     = 3.0
	listRounds   = 15

	listPrecision = 100 * time.Microsecond
)

// TestMustListFast compares `trl ps` and `trl status`, from the start of the
// process to its end, with a session.list of a client that is connected already.
// It was seen to fail with a session.info for each session.
func TestMustListFast(t *testing.T) {
	r := start(t, "--max-sessions", fmt.Sprint(2*listSessions), "--grace-ms", "1000")
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	clients := make(chan *client.Client, scaleAtOnce)
	for range scaleAtOnce {
		clients <- r.dial()
	}
	if err := inParallel(listSessions, scaleAtOnce, func(i int) error {
		c := <-clients
		defer func() { clients <- c }()
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash", Name: fmt.Sprint("session ", i)})
		if err == nil && i < listRunning {
			_, err = c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 1000"}, YieldMS: 1})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	bare := r.dialLines()
	commands := map[string]int{"ps": listSessions + 1, "status": 10} // and how many lines it prints at least
	gauge.Tries(t, func(t *testing.T) error {
		took := map[string][]time.Duration{}
		for range listRounds { // by turns, so that other work slows all of them alike
			begin := time.Now()
			if _, err := r.client.ListSessions(r.ctx, api.SessionListParams{}); err != nil {
				t.Fatal(err)
			}
			took["client"] = append(took["client"], time.Since(begin))
			begin = time.Now()
			if _, err := bare.Ask([]byte(`{"jsonrpc":"2.0","id":1,"method":"session.list"}` + "\n")); err != nil {
				t.Fatal(err)
			}
			took["bare"] = append(took["bare"], time.Since(begin))
			for command, lines := range commands {
				cmd := exec.CommandContext(r.ctx, binary, "--socket", r.Socket, command)
				cmd.Env = append(os.Environ(), trltest.Environ(r.Dir)...)
				begin := time.Now()
				out, err := cmd.Output()
				took[command] = append(took[command], time.Since(begin))
				if err != nil || bytes.Count(out, []byte("\n")) < lines {
					t.Fatalf("trl %s: %v, %s", command, err, out)
				}
			}
		}
		list, ps, status := gauge.Median(took["client"]), gauge.Median(took["ps"]), gauge.Median(took["status"])
		slower := max(ps, status)
		ratio := float64(slower) / float64(list)
		gauge.Figures(t, "%d sessions, %d of them busy: session.list %v, trl ps %v, trl status %v: at most %.1f ×, and %.1f × the answer before it is decoded",
			listSessions, listRunning, list.Round(listPrecision), ps.Round(listPrecision), status.Round(listPrecision),
			ratio, float64(slower)/float64(gauge.Median(took["bare"])))
		if ratio > listOver {
			return fmt.Errorf("it takes %.1f × as long as session.list, want at most %.1f", ratio, listOver)
		}
		return nil
	})
	r.stop()
}
