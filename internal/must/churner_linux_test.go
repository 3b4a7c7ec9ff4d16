package must

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// churner is one client.
type churner struct {
	*churn
	client *client.Client
	rnd    *rand.Rand
	n      int // number of the client
	round  int // number of the session
	count  int // number of the command

	session, shell string
	tty            bool
	past           []pastExec // output of earlier commands
}

// pastExec is an ended command with its whole output.
type pastExec struct{ exec, text string }

// pastExecs is how many of those a client reads again.
const pastExecs = 50

// churnWork are the kinds of commands; each gets its own id.
var churnWork = []func(*churner, string) error{
	(*churner).echo, (*churner).flood, (*churner).timeOut, (*churner).exit, (*churner).leaveBehind, (*churner).stream,
	(*churner).killShell, (*churner).pipe, (*churner).fail, (*churner).crash, (*churner).leaveStray, (*churner).rereadPast,
}

// runSession creates a session, uses it, and destroys it.
func (a *churner) runSession(over <-chan struct{}) error {
	a.shell, a.tty = outliveShells[a.rnd.IntN(len(outliveShells))], a.rnd.IntN(5) == 0
	if err := a.create(); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	a.sessions.Add(1)
	err := a.restoreState(a.setState())
	for range 3 + a.rnd.IntN(10) {
		if err != nil {
			break
		}
		select {
		case <-over:
			return a.destroy()
		default:
		}
		a.count++
		a.commands.Add(1)
		kind := a.rnd.IntN(len(churnWork))
		if err = a.restoreState(churnWork[kind](a, fmt.Sprintf("c%d-%d-%d", a.n, a.round, a.count))); err != nil {
			err = fmt.Errorf("work %d: %w", kind, err)
		}
	}
	return errors.Join(err, a.destroy())
}

// restoreState sets the state of the shell again if it was rolled back.
func (a *churner) restoreState(err error) error {
	for errors.Is(err, errRolledBack) && !a.tooManyFailures() {
		a.rolledBack.Add(1)
		err = a.setState()
	}
	return err
}

// create creates a session. If the answer was lost, the session may exist: its
// name is kept so that it is destroyed at the end.
func (a *churner) create() error {
	for try := 0; ; try++ {
		params := api.SessionCreateParams{Shell: a.shell, Name: fmt.Sprintf("churn-%d-%d-%d", a.n, a.round, try)}
		if a.tty {
			params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
		}
		s, err := a.client.CreateSession(a.ctx, params)
		if err == nil {
			a.session = s.SessionID
			return nil
		}
		if !outcomeUnknown(err) || a.ctx.Err() != nil {
			return err
		}
		a.mu.Lock()
		a.unknown = append(a.unknown, params.Name)
		a.mu.Unlock()
	}
}

// destroy destroys the session. An interrupted call is repeated.
func (a *churner) destroy() error {
	for cut := false; ; {
		res, err := a.client.DestroySession(a.ctx, api.SessionDestroyParams{SessionID: a.session, Force: true})
		switch {
		case outcomeUnknown(err) && a.ctx.Err() == nil:
			cut = true
		case cut && api.IsCode(err, api.CodeSessionTerminated):
			return nil // by the interrupted call
		case err != nil:
			return fmt.Errorf("destroy: %w", err)
		case len(res.Survivors) > 0:
			return fmt.Errorf("destroy: survivors %v", res.Survivors)
		default:
			return nil
		}
	}
}

// setState sets shell state that echo reads back.
func (a *churner) setState() error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("v=v%d; cd /usr", a.n)}}, api.OutcomeExited, 0, "", "")
	return err
}

// errRolledBack means that a shell lost state, as the result reports. It is
// counted, and the state is set again.
var errRolledBack = errors.New("the shell was rolled back")

// run runs a command and compares its outcome and output.
func (a *churner) run(p api.ExecRunParams, outcome api.Outcome, code int, stdout, stderr string) (*api.ExecResult, error) {
	res, err := a.start(p, outcome, code)
	if err == nil && (a.plain(res.Stdout) != stdout || a.plain(res.Stderr) != stderr) {
		err = fmt.Errorf("%s: it ended with %s, want %q and %q", p.Command, describe(res), stdout, stderr)
	}
	if errors.Is(err, errRolledBack) && (!strings.HasPrefix(stdout, a.plain(res.Stdout)) || !strings.HasPrefix(stderr, a.plain(res.Stderr))) {
		err = fmt.Errorf("%s: it ended with %s, want a part of %q and %q", p.Command, describe(res), stdout, stderr)
	}
	return res, err
}

// start runs a command and compares its outcome.
func (a *churner) start(p api.ExecRunParams, outcome api.Outcome, code int) (*api.ExecResult, error) {
	p.SessionID = a.session
	res, err := a.client.Run(a.ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Command, err)
	}
	return res, endedWith(res, p.Command, outcome, code)
}

func endedWith(res *api.ExecResult, command string, outcome api.Outcome, code int) error {
	right := res.Outcome == outcome && res.ExitCode != nil && *res.ExitCode == code
	switch {
	case res.RolledBack && outcome != api.OutcomeShellDied && (right || res.Outcome == api.OutcomeShellDied):
		return errRolledBack
	case !right:
		return fmt.Errorf("%s: it ended with %s, want %s %d", command, describe(res), outcome, code)
	default:
		return nil
	}
}

// plain removes the carriage returns that a terminal adds.
func (a *churner) plain(text string) string {
	if a.tty {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	return text
}

// shellKillMessage is what shells write to a terminal when a program was killed.
var shellKillMessage = regexp.MustCompile(`^((/proc/\d+/fd/\d+: line \d+: +\d+ )?(Killed|Terminated)[^\n]*\n)?$`)

// outputIs reports whether output is the text. On a terminal the shell may add a
// message about a killed program.
func (a *churner) outputIs(output, text string) bool {
	rest, ok := strings.CutPrefix(a.plain(output), text)
	return ok && (rest == "" || a.tty && shellKillMessage.MatchString(rest))
}

// checkWholeOutput compares the whole output of a command, once it is complete,
// and keeps it to be read again later.
func (a *churner) checkWholeOutput(exec, want string) error {
	text, err := a.output(exec)
	if err != nil {
		return err
	}
	if got := a.plain(text); got != want {
		return fmt.Errorf("exec %s: %w", exec, differs(got, want))
	}
	if a.tty {
		return nil
	}
	a.past = append(a.past, pastExec{exec, text})
	if len(a.past) > pastExecs {
		a.past = a.past[1:]
	}
	return nil
}

// output reads the output of an ended command until it is complete; on a
// terminal, which stays open, until no more arrives.
func (a *churner) output(exec string) (string, error) {
	var text strings.Builder
	for next := int64(0); ; {
		res, err := a.client.Output(a.ctx, api.ExecOutputParams{ExecID: exec, From: next, WaitMS: 1000})
		if err != nil {
			return "", err
		}
		for _, chunk := range res.Chunks {
			data, err := chunk.Content()
			if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
				return "", fmt.Errorf("exec %s: a %s chunk at %d, want one at %d (%w)", exec, chunk.Type, chunk.Offset, next, err)
			}
			text.Write(data)
			next = chunk.Next
		}
		if res.Closed || a.tty && len(res.Chunks) == 0 && res.State == api.ExecExited {
			return text.String(), nil
		}
	}
}

// differs returns an error that says where two texts differ.
func differs(got, want string) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	around := func(s string) string { return s[min(len(s), max(0, at-40)):min(len(s), at+80)] }
	return fmt.Errorf("got %d bytes, want %d; they differ from byte %d on: %q, want %q", len(got), len(want), at, around(got), around(want))
}

// echo reads the state of the shell.
func (a *churner) echo(id string) error {
	want := fmt.Sprintf("%s v%d /usr\n", id, a.n)
	res, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + " $v $PWD"}}, api.OutcomeExited, 0, want, "")
	if err != nil {
		return err
	}
	return a.checkWholeOutput(res.ExecID, want)
}

// flood writes more than a result carries, and more than is held in memory.
func (a *churner) flood(id string) error {
	n := 1<<20 + a.rnd.IntN(1<<20)
	res, err := a.start(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("yes %s | head -c %d", id, n)}}, api.OutcomeExited, 0)
	if err != nil {
		return err
	}
	if err := a.checkWholeOutput(res.ExecID, strings.Repeat(id+"\n", n/(len(id)+1)+1)[:n]); err != nil {
		return err
	}
	if !a.tty {
		a.past = a.past[:len(a.past)-1] // too long to keep
	}
	return nil
}

// timeOut runs a command for longer than its timeout. On a busy machine it may
// not have written anything yet.
func (a *churner) timeOut(id string) error {
	res, err := a.client.Run(a.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: a.session, Command: "echo " + id + "; sleep 100", TimeoutMS: ms(200)}})
	if err != nil {
		return err
	}
	if !res.TimedOut || res.Outcome != api.OutcomeTimedOut || !a.outputIs(res.Stdout, id+"\n") && !a.outputIs(res.Stdout, "") {
		return fmt.Errorf("it ended with %s, want a timeout", describe(res))
	}
	if res.RolledBack { // the shell was stopped itself before it started the program
		return a.setState()
	}
	return nil
}

// exit exits the shell; its state survives.
func (a *churner) exit(id string) error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; exit 7"}}, api.OutcomeShellExited, 7, id+"\n", "")
	return err
}

// leaveBehind leaves a process that writes after the command has ended.
func (a *churner) leaveBehind(id string) error {
	if a.tty { // on a terminal its output may mix with that of the next command
		return a.echo(id)
	}
	res, err := a.start(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("(sleep 0.3; echo %s late) & echo %s early", id, id)}}, api.OutcomeExited, 0)
	if err != nil {
		return err
	}
	return a.checkWholeOutput(res.ExecID, id+" early\n"+id+" late\n")
}

// stream streams a command that writes for a while.
func (a *churner) stream(id string) error {
	command := fmt.Sprintf("i=0; while [ $i -lt 40 ]; do echo %s line $i; i=$((i+1)); sleep 0.01; done; (exit 9)", id)
	st, err := a.client.Stream(a.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: a.session, Command: command}})
	if err != nil {
		return err
	}
	defer st.Close()
	var got, want strings.Builder
	next := int64(0)
	for chunk, err := range st.Chunks() {
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", next, err)
		}
		data, err := chunk.Content()
		if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
			return fmt.Errorf("a %s chunk at %d, want one at %d (%w)", chunk.Type, chunk.Offset, next, err)
		}
		got.Write(data)
		next = chunk.Next
	}
	for i := range 40 {
		fmt.Fprintf(&want, "%s line %d\n", id, i)
	}
	if st.Result() == nil {
		return fmt.Errorf("the stream of %s ended without a result", st.ExecID())
	}
	err = endedWith(st.Result(), command, api.OutcomeExited, 9)
	if text := a.plain(got.String()); text != want.String() && (!errors.Is(err, errRolledBack) || !strings.HasPrefix(want.String(), text)) {
		return fmt.Errorf("stream of %s: %w", st.ExecID(), differs(text, want.String()))
	}
	return err
}

// killShell kills the shell, which after an exit is no longer the process that $$
// names. State that was lost is set again.
func (a *churner) killShell(id string) error {
	if _, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; sh -c 'kill -9 $PPID'; sleep 100"}}, api.OutcomeShellDied, 137, id+"\n", ""); err != nil {
		return err
	}
	return a.setState()
}

// pipe passes the input together with the command.
func (a *churner) pipe(id string) error {
	if a.tty { // on a terminal it would be echoed
		return a.echo(id)
	}
	text := strings.Repeat(id+" of stdin\n", 1+a.rnd.IntN(500))
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "cat; (exit 3)", Stdin: &text}}, api.OutcomeExited, 3, text, "")
	return err
}

// fail writes to both streams and fails.
func (a *churner) fail(id string) error {
	stdout, stderr := id+" out\n", id+" err\n"
	if a.tty { // a terminal has one stream
		stdout, stderr = stdout+stderr, ""
	}
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("echo %s out; echo %s err >&2; (exit 5)", id, id)}}, api.OutcomeExited, 5, stdout, stderr)
	return err
}

// crash runs a program that is killed.
func (a *churner) crash(id string) error {
	res, err := a.start(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; sh -c 'kill -9 $$'"}}, api.OutcomeSignaled, 137)
	if err == nil && !a.outputIs(res.Stdout, id+"\n") {
		err = fmt.Errorf("it ended with %s", describe(res))
	}
	return err
}

// leaveStray leaves a process that only destroying the session ends.
func (a *churner) leaveStray(id string) error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "sleep 1000 >/dev/null 2>&1 & echo " + id}}, api.OutcomeExited, 0, id+"\n", "")
	return err
}

// rereadPast reads the output of an earlier command again. Its session may have
// ended or been forgotten by now.
func (a *churner) rereadPast(string) error {
	if len(a.past) == 0 {
		return nil
	}
	p := a.past[a.rnd.IntN(len(a.past))]
	tty := a.tty
	a.tty = false // the past command had no terminal
	text, err := a.output(p.exec)
	a.tty = tty
	if api.IsCode(err, api.CodeExecNotFound) {
		return nil
	}
	if err == nil && text != p.text {
		err = differs(text, p.text)
	}
	if err != nil {
		return fmt.Errorf("rereading %s: %w", p.exec, err)
	}
	return nil
}
