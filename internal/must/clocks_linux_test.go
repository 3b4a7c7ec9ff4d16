package must

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// The time limits of the lifecycle, with the default grace: whatever a command
// does, it is over at most half a second after the grace; one that ignores
// SIGTERM gets the whole grace.
const (
	clockTimeout = time.Second
	grace        = 5 * time.Second
	over         = grace + 500*time.Millisecond
	// nextAtOnce is how soon the session must answer after a command was stopped,
	// on a machine where nineteen others run: the same half second.
	nextAtOnce = 500 * time.Millisecond
)

// clockCases are commands that do not end by themselves. Each prints PID followed
// by a number for every process it starts, and the word partial.
var clockCases = []struct {
	name, command string
	children      int
	least         time.Duration
}{
	{
		name: "ignores TERM", children: 1, least: grace,
		command: `sh -c 'trap "" TERM; echo "PID $$ partial"; while :; do sleep 1; done'`,
	},
	{name: "builtin loop", command: `echo partial; while :; do :; done`},
	{name: "sleep", children: 1, command: `sh -c 'echo "PID $$ partial"; exec sleep 300'`},
	{
		name: "pipeline", children: 2,
		command: `sh -c 'echo "PID $$ partial" >&2; exec sleep 300' | sh -c 'echo "PID $$ partial"; exec cat'`,
	},
	{name: "stopped", children: 1, command: `sh -c 'echo "PID $$ partial"; kill -STOP $$; echo never'`},
}

// TestMustKeepTheClocks was seen to fail: with --grace-ms 4000 the child that
// ignores SIGTERM dies after 4.0 s, with 6000 after 6.0 s.
func TestMustKeepTheClocks(t *testing.T) {
	r := start(t)
	var mu sync.Mutex
	lasted := map[string][]time.Duration{} // beyond the timeout, by case
	var next []time.Duration
	var wg sync.WaitGroup
	for _, shell := range shells {
		for _, c := range clockCases {
			wg.Go(func() {
				after, then, err := r.clock(shell, c.command, c.children, c.least)
				if err != nil {
					t.Errorf("%s: %s: %v", shell, c.name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				lasted[c.name] = append(lasted[c.name], after)
				next = append(next, then)
			})
		}
	}
	wg.Wait()
	var line []string
	for _, c := range clockCases {
		slices.Sort(lasted[c.name])
		line = append(line, fmt.Sprintf("%s %.3f…%.3f s", c.name, lasted[c.name][0].Seconds(), lasted[c.name][len(shells)-1].Seconds()))
	}
	slices.Sort(next)
	gauge.Figures(t, "ended after the timeout by: %s; the next command took %v to %v", strings.Join(line, ", "),
		next[0].Round(time.Microsecond), next[len(next)-1].Round(time.Microsecond))
	r.stop()
}

// clock runs one command into its timeout. It returns how long after that it was
// answered, and how long the next command took.
func (r *rig) clock(shell, command string, children int, least time.Duration) (after, next time.Duration, err error) {
	ctx := r.ctx
	s, err := r.client.CreateSession(ctx, api.SessionCreateParams{Shell: shell})
	if err != nil {
		return 0, 0, err
	}
	run := func(command string, timeout *int64) (*api.ExecResult, error) {
		return r.client.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command, TimeoutMS: timeout}})
	}
	if _, err := run("kept=yes; cd /usr", nil); err != nil {
		return 0, 0, err
	}
	deaths := make(chan error, 1)
	timedOut := time.Now().Add(clockTimeout) // or a moment later
	go func() { deaths <- r.watchDeaths(s.SessionID, children, timedOut.Add(least), timedOut.Add(over)) }()
	res, err := run(command, ms(clockTimeout.Milliseconds()))
	answered := time.Now()
	after = answered.Sub(timedOut)
	if err != nil {
		return after, 0, err
	}
	last, err := run(`echo "$kept $PWD"`, nil)
	next = time.Since(answered)
	if err != nil {
		return after, next, err
	}
	var wrong []error
	complain := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	complain(after < least || after > over, "answered %v after its timeout, want %v to %v", after, least, over)
	complain(res.Outcome != api.OutcomeTimedOut || !res.TimedOut, "outcome %s, want timed_out", res.Outcome)
	complain(!strings.Contains(res.Stdout, "partial"), "stdout %q, want the output from before the timeout", res.Stdout)
	if res.RolledBack { // allowed if no state is lost: see below
		r.t.Logf("%s was replaced by its copy", shell)
	}
	pids := pidsOf(res.Stdout + res.Stderr)
	complain(len(pids) != children, "%d children in %q, want %d", len(pids), res.Stdout+res.Stderr, children)
	for _, pid := range pids {
		complain(!errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), "child %d still exists", pid)
	}
	complain(last.Stdout != "yes /usr\n", "the next command wrote %q, want the earlier state", last.Stdout)
	complain(next > nextAtOnce, "the next command took %v", next)
	return after, next, errors.Join(append(wrong, <-deaths)...)
}

// watchDeaths checks that no child of the running command dies before its time or
// after: an answer in time does not prove it.
func (r *rig) watchDeaths(session string, children int, earliest, latest time.Time) error {
	if children == 0 {
		return nil
	}
	var pids []int
	if err := eventually(clockTimeout, func() error {
		list, err := r.client.ExecList(r.ctx, api.SessionParams{SessionID: session})
		if err != nil {
			return err
		}
		running := list.Execs[len(list.Execs)-1]
		out, err := r.client.Output(r.ctx, api.ExecOutputParams{ExecID: running.ExecID})
		if err != nil {
			return err
		}
		var text strings.Builder
		for _, chunk := range out.Chunks {
			text.WriteString(chunk.Data)
		}
		if pids = pidsOf(text.String()); len(pids) < children {
			return fmt.Errorf("%d of %d children are running: %q", len(pids), children, text.String())
		}
		return nil
	}); err != nil {
		return err
	}
	// Open all pidfds before waiting for any: the children die together.
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("child %d: %w", pid, err)
		}
		fds = append(fds, fd)
	}
	var wrong []error
	for i, fd := range fds {
		died, ok := awaitDeath(fd, latest)
		if !ok {
			wrong = append(wrong, fmt.Errorf("child %d is still alive after the limit", pids[i]))
		} else if died.Before(earliest) {
			wrong = append(wrong, fmt.Errorf("child %d died %v too early", pids[i], earliest.Sub(died)))
		}
	}
	return errors.Join(wrong...)
}

func awaitDeath(fd int, latest time.Time) (time.Time, bool) {
	for {
		left := time.Until(latest)
		if left <= 0 {
			return time.Time{}, false
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(left.Milliseconds())+1); err == nil && n == 1 {
			return time.Now(), true
		}
	}
}

// pidsOf returns the numbers that follow the word PID.
func pidsOf(text string) []int {
	var pids []int
	words := strings.Fields(text)
	for i, word := range words[:max(0, len(words)-1)] {
		if pid, err := strconv.Atoi(words[i+1]); word == "PID" && err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
