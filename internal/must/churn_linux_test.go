package must

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

const (
	churnClients = 12
	churnEnded   = 1000 // ended sessions that are kept all the while
	// churnWrong is after how many wrong results no more are waited for.
	churnWrong = 10
	// churnFDs bounds what holder and daemon may have open at the end more than at
	// the first quiet point: connections that are just being closed. A descriptor
	// lost by one command in a hundred would be many more.
	churnFDs = 8
	// churnMemory bounds by how much the memory of the holder and of the daemon may
	// have grown then: each is a heap that has just been collected, or not yet.
	churnMemory = 12 << 20
	// churnRolledBack is in how many kills one shell may lose state, which the answer
	// must say. It happens where a shell ends while the daemon is taken over from.
	churnRolledBack = 4
)

// churned is how often the daemon is killed and upgraded under the churn. In
// between it lives for some seconds, or dies while it adopts.
func churned() (kills, upgrades int) {
	if os.Getenv("TRL_LONG") == "1" {
		return 2000, 200
	}
	return 60, 12
}

// TestMustSurviveChurn has clients create, use and destroy sessions while the
// daemon is killed and upgraded and a thousand ended sessions are kept. Every
// command prints its own id. Clients compare every byte and exit status, and the log
// must not report a loss.
func TestMustSurviveChurn(t *testing.T) {
	rnd := seeded(t)
	kills, upgrades := churned()
	config := filepath.Join(t.TempDir(), "config.toml")
	keepEnded(t, config, churnEnded)
	r, binary := startInstalled(t, "--config", config, "--log-level", "warn", "--max-sessions", "300", "--grace-ms", "1000")
	ch := &churn{rig: r, binary: binary, config: config}

	ch.warmUp(rnd)
	first := ch.measureIdle(1)
	ch.makeEnded()
	began := time.Now()
	end := ch.begin(rnd)
	ch.disturb(rnd, kills, upgrades)
	end()
	took := time.Since(began)
	kept := ch.measureIdle(churnEnded)
	last := ch.measureIdle(1)

	for _, wrong := range ch.wrong {
		t.Error(wrong)
	}
	losses := unexpectedWarnings(r.Log())
	for _, line := range losses[:min(len(losses), 20)] {
		t.Errorf("the log has: %s", line)
	}
	figures(t, "%d clients ran %d commands in %d sessions in %s, under %d kill -9 and %d upgrades, with %d ended sessions kept: %d wrong results, %d losses in the log, %d commands rolled back, and reported so; holder and daemon: %s at first, %s at the end, %s with the ended sessions",
		churnClients, ch.commands.Load(), ch.sessions.Load(), took.Round(time.Second), ch.kills.Load(), ch.upgrades.Load(), churnEnded, len(ch.wrong), len(losses), ch.rolledBack.Load(), first, last, kept)
	if n := ch.rolledBack.Load(); n > ch.kills.Load()/churnRolledBack {
		t.Errorf("%d commands were rolled back, want one in %d kills at most", n, churnRolledBack)
	}
	if last.fds > first.fds+churnFDs || last.holder.anonymous > first.holder.anonymous+churnMemory || last.daemon.anonymous > first.daemon.anonymous+churnMemory {
		t.Errorf("holder and daemon have %s, want no more than %s", last, first)
	}
	r.reconnect()
	r.stop()
}

// churn is what the clients share.
type churn struct {
	*rig
	binary, config string

	commands, sessions atomic.Int64
	kills, upgrades    atomic.Int64
	rolledBack         atomic.Int64 // commands whose answer says that the shell lost state; see errRolledBack

	mu      sync.Mutex
	wrong   []error
	unknown []string // names of sessions that may have been made: the answer was lost
	stopped bool     // there were too many
}

func (ch *churn) report(err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.wrong = append(ch.wrong, err)
	ch.stopped = len(ch.wrong) >= churnWrong
}

func (ch *churn) tooManyFailures() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.stopped || ch.ctx.Err() != nil
}

// begin starts the clients, and returns how to end them: each finishes what it is
// about to do.
func (ch *churn) begin(rnd *rand.Rand) (end func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for n := range churnClients {
		c, err := client.DialWith(ch.ctx, ch.Socket, client.Options{Patience: outlivePatience})
		if err != nil {
			ch.t.Fatal(err)
		}
		a := &churner{churn: ch, client: c, n: n, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(n)))}
		wg.Go(func() {
			defer c.Close()
			for a.round = 0; !ch.tooManyFailures(); a.round++ {
				if err := a.runSession(over); err != nil {
					ch.report(fmt.Errorf("client %d, session %s (%s), command %d: %w", n, a.session, a.shell, a.count, err))
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
	}
}

// warmUp lets every kind of work be done, and the daemon be killed and upgraded, so
// that the first quiet point is like the last.
func (ch *churn) warmUp(rnd *rand.Rand) {
	end := ch.begin(rnd)
	ch.disturb(rnd, 2, 1)
	end()
	ch.commands.Store(0)
	ch.sessions.Store(0)
	ch.rolledBack.Store(0)
	ch.kills.Store(0)
	ch.upgrades.Store(0)
}

// keepEnded writes a configuration by which so many ended sessions are kept.
func keepEnded(t *testing.T, config string, n int) {
	t.Helper()
	if err := os.WriteFile(config, fmt.Appendf(nil, "max_terminated = %d\n", n), 0o600); err != nil {
		t.Fatal(err)
	}
}

// makeEnded makes as many ended sessions as are kept.
func (ch *churn) makeEnded() {
	ch.t.Helper()
	ch.reconfigure(churnEnded)
	if err := ch.makeHistory(churnEnded); err != nil {
		ch.t.Fatal(err)
	}
}

// makeHistory makes sessions that have ended: most are one command, and every fifth
// is a shell that ran several, one of them with much output.
func (r *rig) makeHistory(n int) error {
	c, err := client.Dial(r.ctx, r.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := inParallel(n, 8, func(i int) error {
		if i%5 > 0 {
			_, err := c.CreateSession(r.ctx, api.SessionCreateParams{Argv: []string{"echo", fmt.Sprint("ended ", i)}})
			return err
		}
		s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
		if err != nil {
			return err
		}
		for _, command := range []string{"cd /usr", fmt.Sprint("echo ended ", i), "head -c 200000 /dev/zero"} {
			if _, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}}); err != nil {
				return err
			}
		}
		_, err = c.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: s.SessionID, Force: true})
		return err
	}); err != nil {
		return err
	}
	return eventually(30*time.Second, func() error { return ended(r, c, n) })
}

// ended reports whether so many ended sessions are known.
func ended(r *rig, c *client.Client, n int) error {
	st, err := c.Stats(r.ctx)
	if err == nil && st.Sessions[api.StateTerminated] != n {
		err = fmt.Errorf("%d ended sessions are known, want %d", st.Sessions[api.StateTerminated], n)
	}
	return err
}

// reconfigure makes the daemon keep another number of ended sessions.
func (ch *churn) reconfigure(n int) {
	ch.t.Helper()
	keepEnded(ch.t, ch.config, n)
	if out, err := ch.command(ch.binary, "upgrade").CombinedOutput(); err != nil {
		ch.t.Fatalf("upgrade: %s, %v", out, err)
	}
}

// disturb kills the daemon at random moments, and upgrades it now and then.
func (ch *churn) disturb(rnd *rand.Rand, kills, upgrades int) {
	every := kills / upgrades
	for n := 1; n <= kills && !ch.tooManyFailures(); n++ {
		// Some daemons die while they adopt, and some after they have worked for long
		// enough to have rewritten what they leave to the next.
		life := time.Duration(rnd.IntN(300)) * time.Millisecond
		if rnd.IntN(4) > 0 {
			life = time.Second + time.Duration(rnd.IntN(4000))*time.Millisecond
		}
		time.Sleep(life) // pace: a random moment is what is wanted
		ch.kill()
		if n%every == 0 && int(ch.upgrades.Load()) < upgrades {
			ch.upgrade(rnd, n/every%4 == 3)
		}
	}
}

// kill kills the daemon, or the next one if there is none now.
func (ch *churn) kill() {
	for ch.ctx.Err() == nil {
		if pid := daemonOf(ch.PID); pid != 0 && killed(pid) {
			ch.kills.Add(1) // before anything that it did not finish can be answered
			return
		}
		time.Sleep(time.Millisecond) // poll: the holder is about to start it
	}
}

// upgrade puts the other of two binaries in place and upgrades. If disturbed, the
// daemon is killed meanwhile, and then `trl upgrade` may say what it likes.
func (ch *churn) upgrade(rnd *rand.Rand, disturbed bool) {
	find := trltest.Binary
	if ch.upgrades.Load()%2 == 0 {
		find = trltest.OtherBinary
	}
	binary, err := find()
	if err == nil {
		err = trltest.Install(binary, ch.binary)
	}
	if err != nil {
		ch.report(err)
		return
	}
	cmd := ch.command(ch.binary, "upgrade")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		ch.report(err)
		return
	}
	if disturbed {
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond) // pace: a random moment is what is wanted
		ch.kill()
	}
	if err := cmd.Wait(); err != nil && !disturbed {
		ch.report(fmt.Errorf("upgrade: %s, %w", said.String(), err))
	}
	ch.upgrades.Add(1)
}

// held is what holder and daemon have open and in memory at a quiet moment.
type resourceUse struct {
	fds            int
	holder, daemon resident
}

func (h resourceUse) String() string {
	return fmt.Sprintf("%d descriptors and %.1f + %.1f MiB", h.fds, mib(h.holder.anonymous), mib(h.daemon.anonymous))
}

// quiet destroys the sessions of which the answer was lost, lets the daemon forget
// ended sessions but so many, and looks at what the next daemon and the holder have.
func (ch *churn) measureIdle(ended int) resourceUse {
	ch.t.Helper()
	ch.reconfigure(ended)
	ch.reconnect()
	list, err := ch.client.ListSessions(ch.ctx, api.SessionListParams{})
	if err != nil {
		ch.t.Fatal(err)
	}
	for _, s := range list.Sessions {
		switch {
		case s.State == api.StateTerminated:
		case slices.Contains(ch.unknown, s.Name):
			ch.destroy(s.SessionID)
		default:
			ch.report(fmt.Errorf("session %s (%s) is %s after its client destroyed it", s.SessionID, s.Name, s.State))
		}
	}
	if err := eventually(30*time.Second, func() error {
		st, err := ch.client.Stats(ch.ctx)
		if err == nil && st.Sessions[api.StateTerminated] > ended {
			err = fmt.Errorf("%d ended sessions are kept, want %d at most", st.Sessions[api.StateTerminated], ended)
		}
		return err
	}); err != nil {
		ch.t.Fatal(err)
	}
	ch.killDaemon() // the next one has never had more than this
	h := resourceUse{fds: ch.footprint().fds.held}
	var errs [2]error
	h.holder, errs[0] = residentOf(ch.PID)
	h.daemon, errs[1] = residentOf(daemonOf(ch.PID))
	if err := errors.Join(errs[:]...); err != nil {
		ch.t.Fatal(err)
	}
	return h
}

// churner is one client.
type churner struct {
	*churn
	client *client.Client
	rnd    *rand.Rand
	n      int // which client it is
	round  int // which session
	count  int // which command

	session, shell string
	tty            bool
	past           []pastExec // what earlier commands wrote
}

// pastExec is a command that has ended, with all it wrote.
type pastExec struct{ exec, text string }

// pastExecs is how many of those a client looks at again.
const pastExecs = 50

// churnWork are the kinds of commands; each gets its own id.
var churnWork = []func(*churner, string) error{
	(*churner).echo, (*churner).flood, (*churner).timeOut, (*churner).exit, (*churner).leaveBehind, (*churner).stream,
	(*churner).killShell, (*churner).pipe, (*churner).fail, (*churner).crash, (*churner).leaveStray, (*churner).rereadPast,
}

// live makes a session, uses it, and destroys it.
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

// again sets the state of the shell again if it was rolled back.
func (a *churner) restoreState(err error) error {
	for errors.Is(err, errRolledBack) && !a.tooManyFailures() {
		a.rolledBack.Add(1)
		err = a.setState()
	}
	return err
}

// create makes a session. One whose answer was lost may be there or not: its name
// is kept, to destroy it in the end.
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

// destroy ends the session. A call that was cut off is repeated.
func (a *churner) destroy() error {
	for cut := false; ; {
		res, err := a.client.DestroySession(a.ctx, api.SessionDestroyParams{SessionID: a.session, Force: true})
		switch {
		case outcomeUnknown(err) && a.ctx.Err() == nil:
			cut = true
		case cut && api.IsCode(err, api.CodeSessionTerminated):
			return nil // by the call that was cut off
		case err != nil:
			return fmt.Errorf("destroy: %w", err)
		case len(res.Survivors) > 0:
			return fmt.Errorf("destroy: survivors %v", res.Survivors)
		default:
			return nil
		}
	}
}

// setState gives the shell a state that echo asks for.
func (a *churner) setState() error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("v=v%d; cd /usr", a.n)}}, api.OutcomeExited, 0, "", "")
	return err
}

// errRolledBack says that a shell lost state, as the answer reports. That is counted,
// and the state is set again.
var errRolledBack = errors.New("the shell was rolled back")

// run runs a command and compares how it ended and what it wrote.
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

// start runs a command and compares how it ended.
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

// plain is output without what a terminal adds at the ends of lines.
func (a *churner) plain(text string) string {
	if a.tty {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	return text
}

// shellSays is what shells say on a terminal of a program that was killed.
var shellKillMessage = regexp.MustCompile(`^((/proc/\d+/fd/\d+: line \d+: +\d+ )?(Killed|Terminated)[^\n]*\n)?$`)

// wrote reports whether output is the text. On a terminal the shell may add how a
// program was ended.
func (a *churner) outputIs(output, text string) bool {
	rest, ok := strings.CutPrefix(a.plain(output), text)
	return ok && (rest == "" || a.tty && shellKillMessage.MatchString(rest))
}

// whole compares all output of a command, once nothing can come any more, and keeps
// it to look at it again.
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

// output reads the output of a command that has ended, until nothing can come any
// more; on a terminal, which stays open, until nothing comes.
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

// differs says where two texts do.
func differs(got, want string) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	around := func(s string) string { return s[min(len(s), max(0, at-40)):min(len(s), at+80)] }
	return fmt.Errorf("%d bytes came, want %d; from byte %d on they differ: %q, want %q", len(got), len(want), at, around(got), around(want))
}

// echo asks for the state of the shell.
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
		a.past = a.past[:len(a.past)-1] // it is too long to keep
	}
	return nil
}

// timeOut runs a command for longer than it may. On a machine that is busy it may
// not have come to write anything.
func (a *churner) timeOut(id string) error {
	res, err := a.client.Run(a.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: a.session, Command: "echo " + id + "; sleep 100", TimeoutMS: ms(200)}})
	if err != nil {
		return err
	}
	if !res.TimedOut || res.Outcome != api.OutcomeTimedOut || !a.outputIs(res.Stdout, id+"\n") && !a.outputIs(res.Stdout, "") {
		return fmt.Errorf("it ended with %s, want a timeout", describe(res))
	}
	if res.RolledBack { // the shell had not come to start the program, and was stopped itself
		return a.setState()
	}
	return nil
}

// exit ends the shell, whose state lives on.
func (a *churner) exit(id string) error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; exit 7"}}, api.OutcomeShellExited, 7, id+"\n", "")
	return err
}

// leaveBehind leaves a process that writes when the command has ended.
func (a *churner) leaveBehind(id string) error {
	if a.tty { // there it may write beside the next command
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
// names. What state is left of it is set again.
func (a *churner) killShell(id string) error {
	if _, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; sh -c 'kill -9 $PPID'; sleep 100"}}, api.OutcomeShellDied, 137, id+"\n", ""); err != nil {
		return err
	}
	return a.setState()
}

// pipe gives a command its input at once.
func (a *churner) pipe(id string) error {
	if a.tty { // there it would be echoed
		return a.echo(id)
	}
	text := strings.Repeat(id+" of stdin\n", 1+a.rnd.IntN(500))
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "cat; (exit 3)", Stdin: &text}}, api.OutcomeExited, 3, text, "")
	return err
}

// fail writes to both streams and fails.
func (a *churner) fail(id string) error {
	stdout, stderr := id+" out\n", id+" err\n"
	if a.tty { // which has one stream
		stdout, stderr = stdout+stderr, ""
	}
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: fmt.Sprintf("echo %s out; echo %s err >&2; (exit 5)", id, id)}}, api.OutcomeExited, 5, stdout, stderr)
	return err
}

// crash has a program be killed.
func (a *churner) crash(id string) error {
	res, err := a.start(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "echo " + id + "; sh -c 'kill -9 $$'"}}, api.OutcomeSignaled, 137)
	if err == nil && !a.outputIs(res.Stdout, id+"\n") {
		err = fmt.Errorf("it ended with %s", describe(res))
	}
	return err
}

// strew leaves a process that only the end of the session ends.
func (a *churner) leaveStray(id string) error {
	_, err := a.run(api.ExecRunParams{ExecCommand: api.ExecCommand{Command: "sleep 1000 >/dev/null 2>&1 & echo " + id}}, api.OutcomeExited, 0, id+"\n", "")
	return err
}

// lookBack reads again what an earlier command wrote, in a session that may have
// ended, or may be forgotten by now.
func (a *churner) rereadPast(string) error {
	if len(a.past) == 0 {
		return nil
	}
	p := a.past[a.rnd.IntN(len(a.past))]
	tty := a.tty
	a.tty = false // it was none
	text, err := a.output(p.exec)
	a.tty = tty
	if api.IsCode(err, api.CodeExecNotFound) {
		return nil
	}
	if err == nil && text != p.text {
		err = differs(text, p.text)
	}
	if err != nil {
		return fmt.Errorf("looking back at %s: %w", p.exec, err)
	}
	return nil
}

// harmless are the events and messages of the log, from warnings on, that belong to
// a daemon that is killed. Every other one fails the test.
var expectedWarnings = []string{
	`"event":"daemon_died"`,
	"its timeout passed while no daemon was there",
	"killing an orphan of a session that is gone", // which was just being made
}

// lossesIn returns the lines of a log that must not be there.
func unexpectedWarnings(log string) (losses []string) {
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		var record struct{ Level string }
		if err := json.Unmarshal([]byte(line), &record); err == nil && record.Level != "WARN" && record.Level != "ERROR" {
			continue
		}
		if line != "" && !slices.ContainsFunc(expectedWarnings, func(s string) bool { return strings.Contains(line, s) }) {
			losses = append(losses, line)
		}
	}
	return losses
}
