package must

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	fedKills = 60
	// naiveTries is how often the naive writer is struck that many times: it is torn
	// only if the daemon dies between taking a line and answering.
	naiveTries = 5
	// fedLine is as long as a message to a coding agent with a file in it.
	fedLine = 400_000
	// countLines is a program that prints the length and the number of every
	// line.
	countLines = `perl -ne 'chomp; /^(\d+):x*$/ and print length($_), " ", $1, "\n" or print "broken\n"'`
)

// TestMustFeedThroughKills kills the daemon repeatedly while lines are sent to a
// program that reads them: every line arrives whole, and once. A writer that uses
// no keys and resends unanswered lines breaks some.
func TestMustFeedThroughKills(t *testing.T) {
	rnd := seeded(t)
	r := startWith(t, trltest.Config{Args: plenty})
	s := r.create(api.SessionCreateParams{Shell: "dash"})
	naive := r.create(api.SessionCreateParams{Shell: "dash"})
	var kills atomic.Int64
	feed := func(session string, send func(exec, line string, n int) error) (broken, lines int) {
		t.Helper()
		before := kills.Load()
		c := r.patientClient()
		exec, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: countLines, StdinOpen: true}, YieldMS: 1})
		if err != nil {
			t.Fatal(err)
		}
		onItsWay := 20 * time.Millisecond // at most: how long a line is, when nothing is killed
		for kills.Load()-before < fedKills && r.ctx.Err() == nil {
			struck := make(chan struct{})
			pid, after := 0, time.Duration(rnd.IntN(20))*time.Millisecond
			if lines%2 == 1 { // strike while the line is on its way
				if err := c.Call(r.ctx, api.MethodSystemPing, nil, nil); err != nil {
					t.Fatal(err)
				}
				pid, after = daemonOf(r.PID), time.Duration(rnd.Int64N(int64(onItsWay)))
			}
			began, killedBefore := time.Now(), kills.Load()
			go func() {
				defer close(struck)
				time.Sleep(after) // pace: a random moment
				if pid == 0 {
					pid = daemonOf(r.PID)
				}
				if pid != 0 && killed(pid) {
					kills.Add(1)
				}
			}()
			prefix := strconv.Itoa(lines) + ":"
			if err := send(exec.ExecID, prefix+strings.Repeat("x", fedLine-len(prefix))+"\n", lines); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); kills.Load() == killedBefore {
				onItsWay = min(onItsWay, took)
			}
			lines++
			<-struck
		}
		if _, err := c.Input(r.ctx, api.ExecInputParams{ExecID: exec.ExecID, EOF: true}); err != nil {
			t.Fatal(err)
		}
		return r.brokenLines(c, exec.ExecID, lines), lines
	}
	c := r.patientClient()
	broken, lines := feed(s.SessionID, func(exec, line string, n int) error {
		res, err := c.Input(r.ctx, api.ExecInputParams{ExecID: exec, Data: line, Key: strconv.Itoa(n), Whole: true})
		if err == nil && (res.Bytes != len(line) || res.Next == nil || *res.Next != int64(n+1)*(fedLine+1)) {
			err = fmt.Errorf("line %d is answered with %+v", n, res)
		}
		return err
	})
	if broken > 0 {
		t.Errorf("%d of %d lines are broken, missing or duplicated", broken, lines)
	}
	struck := kills.Load()
	torn, sent := 0, 0
	for try := 0; try < naiveTries && torn == 0; try++ {
		broken, lines := feed(naive.SessionID, func(exec, line string, _ int) error {
			for {
				err := c.Call(r.ctx, api.MethodExecInput, api.ExecInputParams{ExecID: exec, Data: line}, nil)
				if !outcomeUnknown(err) {
					return err
				}
			}
		})
		torn, sent = torn+broken, sent+lines
	}
	if torn == 0 {
		t.Errorf("a naive writer sent %d lines and broke none: the test proves nothing", sent)
	}
	gauge.Figures(t, "%d lines of %d KB to a program, the daemon killed %d times with -9: %d broken; by a writer without keys %d of %d",
		lines, fedLine/1000, struck, broken, torn, sent)
	r.reconnect()
	r.stop()
}

// brokenLines waits for the end of a counting program and returns how many lines
// it did not read exactly once, in order and whole.
func (r *rig) brokenLines(c *client.Client, exec string, lines int) (broken int) {
	r.t.Helper()
	text, err := wholeOutput(r, c, exec)
	if err != nil {
		r.t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for n := range max(lines, len(got)) {
		if n >= lines || n >= len(got) || got[n] != fmt.Sprint(fedLine, n) {
			broken++
		}
	}
	return broken
}

// wholeOutput follows a command to its end and returns its output.
func wholeOutput(r *rig, c *client.Client, exec string) (string, error) {
	st, err := c.Attach(r.ctx, api.ExecAttachParams{ExecID: exec})
	if err != nil {
		return "", err
	}
	defer st.Close()
	var text strings.Builder
	for chunk, err := range st.Chunks() {
		if err != nil {
			return "", err
		}
		data, err := chunk.Content()
		if err != nil {
			return "", err
		}
		text.Write(data)
	}
	return text.String(), nil
}

const (
	onceMade    = 3000
	onceReaders = 24 // 3,000 inputs are 125 for each, and as many keys are remembered
	onceKills   = 40
)

// TestMustMakeOnce sends requests that create sessions and requests that send
// input to commands, each one to four times at once, with a key, over connections
// that are cut every few answers, while the daemon is killed: there must be one
// session for each key, and every input once. It was seen to fail with clients
// that sent another key with each try.
func TestMustMakeOnce(t *testing.T) {
	rnd := seeded(t)
	r := startWith(t, trltest.Config{Args: []string{"--max-sessions", strconv.Itoa(onceMade + 100), "--grace-ms", "1000"}})
	proxy, err := trltest.NewProxy("unix", r.Socket+".proxy", r.Socket, 4<<10, rnd.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	readers, files := r.startReaders(t, onceReaders)
	enough := make(chan struct{})
	go r.killNowAndThen(rand.New(rand.NewPCG(rnd.Uint64(), 1)), onceKills, enough)

	began := time.Now()
	ids := make([]sync.Map, onceMade)
	started := filepath.Join(t.TempDir(), "started")
	sent := r.sendOften(proxy.Addr(), rnd, onceMade, func(c *client.Client, i int) error {
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Argv: []string{"sh", "-c", fmt.Sprintf("echo %d >>%s; exec sleep 86400", i, started)}, Key: fmt.Sprint("s", i)})
		if err != nil {
			return err
		}
		ids[i].Store(s.SessionID, true)
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", i%5000))
		_, err = c.Input(r.ctx, api.ExecInputParams{ExecID: readers[i%onceReaders], Data: line, Key: fmt.Sprint("i", i), Whole: i%2 == 0})
		return err
	})
	took := time.Since(began)
	<-enough
	r.reconnect()
	made := map[string]bool{}
	for i := range ids {
		n := 0
		ids[i].Range(func(id, _ any) bool {
			made[id.(string)] = true
			n++
			return true
		})
		if n != 1 {
			t.Errorf("key %d created %d sessions", i, n)
		}
	}
	list, err := r.client.ListSessions(r.ctx, api.SessionListParams{State: api.StateRunning})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Sessions {
		if len(s.Argv) > 0 && !made[s.SessionID] {
			t.Errorf("a session was created without a key: %s", s.SessionID)
		}
	}
	r.countStarts(started)
	doubled, missing := r.countInputs(readers, files)
	gauge.Figures(t, "%d sessions and %d inputs with keys, sent %d times, %d connections cut, under %d kill -9: %d sessions, whose commands ran once, %d inputs missing, %d duplicated; %s",
		onceMade, onceMade, sent, proxy.Cuts(), onceKills, len(made), missing, doubled, took.Round(time.Millisecond))
	if doubled+missing > 0 {
		t.Errorf("%d inputs are missing, %d are duplicated", missing, doubled)
	}
	proxy.Close()
	r.stop()
}

// countStarts checks that the command of every session has run once.
func (r *rig) countStarts(file string) {
	r.t.Helper()
	times := make([]int, onceMade)
	all := func() bool { return !slices.Contains(times, 0) }
	for !all() && r.ctx.Err() == nil { // a session may exist before its shell has written
		text, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		clear(times)
		for line := range strings.Lines(string(text)) {
			if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				times[n]++
			}
		}
	}
	for i, n := range times {
		if n != 1 {
			r.t.Errorf("the command of session %d ran %d times", i, n)
		}
	}
}

// startReaders starts commands that write what they read to files.
func (r *rig) startReaders(t *testing.T, n int) (execs, files []string) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		file := filepath.Join(dir, strconv.Itoa(i))
		s := r.create(api.SessionCreateParams{Shell: "dash"})
		e, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat >" + file, StdinOpen: true}, YieldMS: 1})
		if err != nil {
			t.Fatal(err)
		}
		execs, files = append(execs, e.ExecID), append(files, file)
	}
	return execs, files
}

// sendOften calls do for each thing, one to four times at once, with clients
// whose connections are cut. It returns the number of calls.
func (r *rig) sendOften(addr string, rnd *rand.Rand, things int, do func(c *client.Client, i int) error) (sent int) {
	r.t.Helper()
	callers := make([]*client.Client, 8)
	for i := range callers {
		c, err := client.DialWith(r.ctx, addr, client.Options{Patience: outlivePatience})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { c.Close() })
		callers[i] = c
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range things {
		for range 1 + rnd.IntN(4) {
			sent++
			c := callers[rnd.IntN(len(callers))]
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := do(c, i); err != nil {
					r.t.Errorf("%d: %v", i, err)
				}
			})
		}
	}
	wg.Wait()
	return sent
}

// killNowAndThen kills the daemon that many times, and lets each serve for a
// while.
func (r *rig) killNowAndThen(rnd *rand.Rand, kills int, enough chan<- struct{}) {
	defer close(enough)
	for n := 0; n < kills && r.ctx.Err() == nil; {
		if trltest.Ping(r.ctx, r.Socket) != nil {
			continue
		}
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond) // pace: a random moment
		if pid := daemonOf(r.PID); pid != 0 && killed(pid) {
			n++
		}
	}
}

// countInputs ends the readers' input and counts the inputs in their output.
func (r *rig) countInputs(execs, files []string) (doubled, missing int) {
	r.t.Helper()
	times := map[string]int{}
	for i, exec := range execs {
		_, err := r.client.Input(r.ctx, api.ExecInputParams{ExecID: exec, EOF: true})
		if err == nil {
			_, err = wholeOutput(r, r.client, exec)
		}
		text, readErr := os.ReadFile(files[i])
		if err := errors.Join(err, readErr); err != nil {
			r.t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
			number, rest, _ := strings.Cut(line, " ")
			if n, err := strconv.Atoi(number); err != nil || len(rest) != n%5000 || n%len(execs) != i {
				r.t.Errorf("a reader has a line that was never sent: %.80q of %d bytes", line, len(line))
			}
			times[number]++
		}
	}
	for i := range onceMade {
		switch n := times[strconv.Itoa(i)]; {
		case n == 0:
			missing++
		case n > 1:
			doubled++
		}
	}
	return doubled, missing
}
