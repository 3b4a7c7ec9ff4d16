package must

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// worker has one session and does one kind of work while daemons die.
type worker struct {
	*rig
	client  *client.Client
	session string
	n       int // commands so far
}

// workKinds are the kinds of work. Each is done once per round; rounds are
// numbered.
var workKinds = []func(*worker, int) error{(*worker).count, (*worker).echo, (*worker).leaveBehind, (*worker).timeOut}

// workThrough creates a session and does one kind of work in it repeatedly, until
// enough is closed. It returns how many commands it ran.
func (r *rig) workThrough(i int, enough <-chan struct{}) (int, error) {
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: outlivePatience})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	s, err := r.createThrough(c, api.SessionCreateParams{Shell: outliveShells[i/len(workKinds)%len(outliveShells)]})
	if err != nil {
		return 0, err
	}
	w := &worker{rig: r, client: c, session: s.SessionID}
	for round := 0; ; round++ {
		if err := workKinds[i%len(workKinds)](w, round); err != nil {
			return w.n, fmt.Errorf("work %d, round %d: %w", i%len(workKinds), round, err)
		}
		select {
		case <-enough:
			for { // an interrupted create is not repeated automatically
				_, err := c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: w.session})
				if !outcomeUnknown(err) {
					return w.n, err
				}
			}
		default:
		}
	}
}

// run runs a command that must have that outcome and exit code and must not lose
// the state of its shell.
func (w *worker) run(p api.ExecRunParams, outcome api.Outcome, code int) (*api.ExecResult, error) {
	p.SessionID = w.session
	w.n++
	res, err := w.client.Run(w.ctx, p)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.Command, err)
	case res.Outcome != outcome || res.ExitCode == nil || *res.ExitCode != code || res.RolledBack || res.Truncated:
		return nil, fmt.Errorf("%s: it ended with %s", p.Command, describe(res))
	}
	return res, nil
}

// describe returns a full description of a result.
func describe(res *api.ExecResult) string {
	text, err := json.Marshal(res)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// count counts in a shell variable, with commands that end in every way.
func (w *worker) count(round int) error {
	code := 1 + round%100
	for _, c := range []struct {
		end     string
		outcome api.Outcome
		code    int
	}{
		{"true", api.OutcomeExited, 0},
		{fmt.Sprintf("(exit %d)", code), api.OutcomeExited, code},
		{"sh -c 'kill -9 $$'", api.OutcomeSignaled, 137},
		{fmt.Sprintf("sleep 0.01; exit %d", code), api.OutcomeShellExited, code},
	} {
		want := fmt.Sprintln(w.n + 1)
		res, err := w.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "n=$((n+1)); echo $n; " + c.end}}, c.outcome, c.code)
		if err == nil && res.Stdout != want {
			err = fmt.Errorf("the count is %q, want %q", res.Stdout, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// echoPieces is how many pieces of input a command gets.
const echoPieces = 20

// echo runs a command that echoes its input, sent in pieces. A piece whose call
// was interrupted arrives at most once; every other one exactly once.
func (w *worker) echo(int) error {
	w.n++
	res, err := w.client.Run(w.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: "cat", StdinOpen: true}, YieldMS: 1})
	if err != nil {
		return err
	}
	taken := map[int]bool{}
	for i := range echoPieces {
		_, err := w.client.Input(w.ctx, api.ExecInputParams{ExecID: res.ExecID, Data: fmt.Sprintln(i)})
		if err != nil && !outcomeUnknown(err) {
			return fmt.Errorf("input: %w", err)
		}
		taken[i] = err == nil
	}
	for cut := true; cut; {
		_, err := w.client.Input(w.ctx, api.ExecInputParams{ExecID: res.ExecID, EOF: true})
		if cut = outcomeUnknown(err); err != nil && !cut && !complains(err, "closed") {
			return fmt.Errorf("end of input: %w", err)
		}
	}
	text, err := w.wholeOutput(res.ExecID)
	if err != nil {
		return err
	}
	last := -1
	for line := range strings.Lines(text) {
		var i int
		if n, err := fmt.Sscanln(line, &i); n != 1 || err != nil || i <= last {
			return fmt.Errorf("%q after %d: %w; all is %q", line, last, err, text)
		}
		delete(taken, i)
		last = i
	}
	for i, whole := range taken {
		if whole {
			return fmt.Errorf("piece %d was accepted and is not in %q", i, text)
		}
	}
	return nil
}

// leaveBehind runs a command that leaves a process which writes after the command
// has ended.
func (w *worker) leaveBehind(round int) error {
	res, err := w.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("(sleep 0.03; echo late %d) & echo now %d", round, round)}}, api.OutcomeExited, 0)
	if err != nil {
		return err
	}
	text, err := w.wholeOutput(res.ExecID)
	if want := fmt.Sprintf("now %d\nlate %d\n", round, round); err == nil && text != want {
		err = fmt.Errorf("it wrote %q, want %q", text, want)
	}
	return err
}

// timeOut runs a command that must be stopped in time, if a daemon is running:
// some live for less.
func (w *worker) timeOut(int) error {
	const timeout, most = 150, 20_000
	w.n++
	res, err := w.client.Run(w.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: "sleep 60", TimeoutMS: ms(timeout)}})
	if err == nil && (!res.TimedOut || res.Outcome != api.OutcomeTimedOut || res.DurationMS < timeout || res.DurationMS > most) {
		err = fmt.Errorf("a command with a timeout of %d ms ended with %s", timeout, describe(res))
	}
	return err
}

// wholeOutput returns all output of an exec, once it is complete.
func (w *worker) wholeOutput(exec string) (string, error) {
	var text strings.Builder
	for next := int64(0); ; {
		res, err := w.client.Output(w.ctx, api.ExecOutputParams{ExecID: exec, From: next, WaitMS: 1000})
		if err != nil {
			return "", err
		}
		for _, chunk := range res.Chunks {
			if chunk.Offset != next || chunk.Type == api.ChunkGap {
				return "", fmt.Errorf("chunk %s at %d, want it at %d", chunk.Type, chunk.Offset, next)
			}
			data, err := chunk.Content()
			if err != nil {
				return "", err
			}
			text.Write(data)
			next = chunk.Next
		}
		if res.Closed {
			return text.String(), nil
		}
	}
}
