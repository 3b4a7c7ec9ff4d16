package must

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// witness is one session with work under way in it. Everything it writes begins
// with its own id, so bytes of another command are seen at once. begin starts the
// work, finish ends it and compares every byte and every exit status.
type witness struct {
	*rig
	ctx    context.Context // ends with the test
	client *client.Client  // its own; it waits for a daemon that restarts
	n      int             // which witness it is
	id     string          // of the witness, in every line
	code   int             // what its command exits with
	kind   *witnessKind

	session string
	exec    string   // the command that is followed; "" if there is none
	queued  []string // the commands that wait behind it
	lease   string   // of a session that is held
	child   string   // pid of a background process

	over  <-chan struct{}
	feed  *numberedFeed  // what the command copies; nil if it copies nothing
	acked map[int]bool   // of each number that was typed: its call was answered
	got   bytes.Buffer   // its output so far; owned by the goroutine that follows until that has ended
	moved atomic.Int64   // bytes of output that have come so far
	busy  sync.WaitGroup // of the goroutines that follow and type

	mu  sync.Mutex
	err error // the first thing that went wrong in those
}

// witnessKind is one sort of work.
type witnessKind struct {
	name   string
	n      int       // how many of a hundred do it
	state  api.State // of the session all the while
	begin  func(*witness) error
	finish func(*witness) error
}

// witnessKinds are a hundred sessions; something runs in the first fifty.
func witnessKinds() []*witnessKind {
	return []*witnessKind{
		{"piped", 12, api.StateRunning, (*witness).copyFeed, (*witness).checkFeed},
		{"typed", 10, api.StateRunning, (*witness).readInput, (*witness).checkInput},
		{"terminal", 8, api.StateRunning, (*witness).copyFeed, (*witness).checkFeed},
		{"direct", 5, api.StateRunning, (*witness).copyDirectly, (*witness).checkFeed},
		{"queued", 8, api.StateRunning, (*witness).queue, (*witness).checkQueue},
		{"background", 7, api.StateIdle, (*witness).copyAfterExit, (*witness).checkAfterExit},
		{"held", 10, api.StateIdle, (*witness).takeLease, (*witness).checkLease},
		{"idle", 40, api.StateIdle, (*witness).runHistory, (*witness).checkHistory},
	}
}

// witnessLine is how often a command is given a line to copy.
const witnessLine = 20 * time.Millisecond

// beginWitnesses makes the sessions of some kinds and starts their work, which
// goes on until end is called.
func (r *rig) beginWitnesses(kinds []*witnessKind) (all []*witness, end func()) {
	r.t.Helper()
	over := make(chan struct{})
	end = sync.OnceFunc(func() { close(over) })
	ctx, cancel := context.WithCancel(r.ctx)
	r.t.Cleanup(func() {
		cancel() // what waits for an answer ends
		end()
		for _, w := range all {
			w.busy.Wait()
			if w.client != nil {
				w.client.Close()
			}
		}
	})
	for _, kind := range kinds {
		for range kind.n {
			n := len(all)
			all = append(all, &witness{rig: r, n: n, id: fmt.Sprintf("w%03d", n), code: 1 + n%100, kind: kind, ctx: ctx, over: over})
		}
	}
	for _, w := range all {
		c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: time.Minute})
		if err != nil {
			r.t.Fatal(err)
		}
		w.client = c
	}
	if err := inParallel(len(all), 8, func(i int) error {
		if err := all[i].kind.begin(all[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i], err)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return all, end
}

// String names the witness in a failure.
func (w *witness) String() string {
	return fmt.Sprintf("%s (%s, session %s, command %s)", w.id, w.kind.name, w.session, w.exec)
}

// create makes the session.
func (w *witness) create(params api.SessionCreateParams) error {
	if len(params.Argv) == 0 {
		params.Shell = shells[w.n%len(shells)]
	}
	params.Name = w.id
	s, err := w.client.CreateSession(w.ctx, params)
	if err == nil {
		w.session, w.exec = s.SessionID, s.ExecID
	}
	return err
}

// run runs a command in the session.
func (w *witness) run(command string) (*api.ExecResult, error) {
	return w.client.Run(w.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: command, Lease: w.lease}})
}

// fail keeps the first error of the goroutines.
func (w *witness) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *witness) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// follow collects the output of the command until nothing can come any more.
func (w *witness) follow() {
	w.busy.Go(func() {
		for next := int64(0); ; {
			res, err := w.client.Output(w.ctx, api.ExecOutputParams{ExecID: w.exec, From: next, WaitMS: 5000})
			if err != nil {
				w.fail(fmt.Errorf("its output after %d bytes: %w", next, err))
				return
			}
			for _, chunk := range res.Chunks {
				if err := w.take(&chunk, next); err != nil {
					w.fail(err)
					return
				}
				next = chunk.Next
			}
			if res.Closed {
				return
			}
		}
	})
}

// take appends a chunk that must begin at next.
func (w *witness) take(chunk *api.Chunk, next int64) error {
	data, err := chunk.Content()
	if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
		return fmt.Errorf("a %s chunk at %d, want one at %d (%w)", chunk.Type, chunk.Offset, next, err)
	}
	w.got.Write(data)
	w.moved.Add(int64(len(data)))
	return nil
}

// copyFeed streams a command that copies the feed, through pipes or through a
// terminal.
func (w *witness) copyFeed() (err error) {
	if w.feed, err = newNumberedFeed(w.rig, w.id, w.over); err != nil {
		return err
	}
	params, command := api.SessionCreateParams{}, "cat "+w.feed.path
	if w.kind.name == "terminal" {
		params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
		command = "stty raw -echo; " + command
	}
	if err := w.create(params); err != nil {
		return err
	}
	st, err := w.client.Stream(w.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: fmt.Sprintf("%s; (exit %d)", command, w.code)}})
	if err != nil {
		return err
	}
	w.exec = st.ExecID()
	w.busy.Go(func() {
		defer st.Close()
		next := int64(0)
		for chunk, err := range st.Chunks() {
			if err == nil {
				err = w.take(chunk, next)
			}
			if err != nil {
				w.fail(fmt.Errorf("its stream after %d bytes: %w", next, err))
				return
			}
			next = chunk.Next
		}
	})
	return nil
}

// copyDirectly is copyFeed in a session that is one command.
func (w *witness) copyDirectly() (err error) {
	if w.feed, err = newNumberedFeed(w.rig, w.id, w.over); err != nil {
		return err
	}
	if err := w.create(api.SessionCreateParams{Argv: []string{"sh", "-c", fmt.Sprintf("cat %s; exit %d", w.feed.path, w.code)}}); err != nil {
		return err
	}
	w.follow()
	return nil
}

// checkFeed waits for the end of the command and compares its output with what it
// was given.
func (w *witness) checkFeed() error {
	w.busy.Wait()
	if err := errors.Join(w.failure(), w.feed.differs(w.got.Bytes())); err != nil {
		return err
	}
	return w.checkExit(w.exec, w.code)
}

// checkExit compares the exit status of a command that has ended.
func (w *witness) checkExit(exec string, code int) error {
	res, err := w.client.ExecInfo(w.ctx, api.ExecParams{ExecID: exec})
	if err != nil {
		return err
	}
	if res.State != api.ExecExited || res.Outcome != api.OutcomeExited || res.ExitCode == nil || *res.ExitCode != code || res.RolledBack {
		return fmt.Errorf("it ended with %s, want exit code %d", describe(res), code)
	}
	return nil
}

// readInput runs a command that says which numbers it is given, and when one does
// not follow the last.
func (w *witness) readInput() error {
	if err := w.create(api.SessionCreateParams{}); err != nil {
		return err
	}
	res, err := w.client.Run(w.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: w.session, StdinOpen: true, Command: fmt.Sprintf(`k=0; while read -r id n; do if [ "$id" = %[1]s ] && [ "$n" -gt "$k" ]; then k=$n; echo "%[1]s $n"; else echo "%[1]s was given $id $n after $k"; fi; done; (exit %[2]d)`, w.id, w.code)},
		YieldMS:     1,
	})
	if err != nil {
		return err
	}
	w.exec, w.acked = res.ExecID, map[int]bool{}
	w.follow()
	w.busy.Go(func() {
		tick := time.NewTicker(witnessLine)
		defer tick.Stop()
		for n := 1; waitTick(tick, w.over); n++ {
			_, err := w.client.Input(w.ctx, api.ExecInputParams{ExecID: w.exec, Data: fmt.Sprintf("%s %d\n", w.id, n)})
			if err != nil && !outcomeUnknown(err) {
				w.fail(fmt.Errorf("input: %w", err))
				return
			}
			w.acked[n] = err == nil
		}
		w.endInput()
	})
	return nil
}

// endInput closes the input. A call that was cut off is repeated.
func (w *witness) endInput() {
	for {
		_, err := w.client.Input(w.ctx, api.ExecInputParams{ExecID: w.exec, EOF: true})
		if !outcomeUnknown(err) || w.ctx.Err() != nil {
			if err != nil && !complains(err, "closed") {
				w.fail(fmt.Errorf("end of input: %w", err))
			}
			return
		}
	}
}

// checkInput compares what the command read with what was typed: each number whose
// call was answered once, each other once or not at all.
func (w *witness) checkInput() error {
	w.busy.Wait()
	if err := w.failure(); err != nil {
		return err
	}
	for line := range strings.Lines(w.got.String()) {
		var id string
		var n int
		if _, err := fmt.Sscanln(line, &id, &n); err != nil || id != w.id {
			return fmt.Errorf("it wrote %q", line)
		}
		if _, sent := w.acked[n]; !sent {
			return fmt.Errorf("it read %d twice, or never was given it", n)
		}
		delete(w.acked, n)
	}
	for n, answered := range w.acked {
		if answered {
			return fmt.Errorf("it never read %d, which was accepted", n)
		}
	}
	return w.checkExit(w.exec, w.code)
}

// queuedBehind is how many commands wait behind a running one.
const queuedBehind = 2

// queue runs a command and queues others behind it, which read: the first what it is
// given, the others more that comes later.
func (w *witness) queue() error {
	if err := w.copyFeed(); err != nil {
		return err
	}
	for i := range queuedBehind {
		given := fmt.Sprintf("%s queued %d\n", w.id, i)
		res, err := w.client.Run(w.ctx, api.ExecRunParams{
			ExecCommand: api.ExecCommand{SessionID: w.session, Wait: true, Label: fmt.Sprint(w.id, " label ", i), Command: fmt.Sprintf("cat; (exit %d)", 10+i), Stdin: &given, StdinOpen: i > 0},
			YieldMS:     1,
		})
		if err != nil {
			return err
		}
		if res.State != api.ExecQueued {
			return fmt.Errorf("a command is %s behind another, want it queued", res.State)
		}
		w.queued = append(w.queued, res.ExecID)
	}
	return nil
}

// checkQueue is checkFeed, and then the queued commands must have run.
func (w *witness) checkQueue() error {
	if err := w.checkFeed(); err != nil {
		return err
	}
	for i, exec := range w.queued {
		want := fmt.Sprintf("%s queued %d\n", w.id, i)
		if i > 0 {
			want += w.id + " more\n"
			if _, err := w.client.Input(w.ctx, api.ExecInputParams{ExecID: exec, Data: w.id + " more\n", EOF: true}); err != nil {
				return fmt.Errorf("input of queued command %d: %w", i, err)
			}
		}
		text, err := (&worker{rig: w.rig, client: w.client}).wholeOutput(exec)
		if err != nil {
			return err
		}
		if text != want {
			return fmt.Errorf("queued command %d wrote %q, want %q", i, text, want)
		}
		if err := w.checkExit(exec, 10+i); err != nil {
			return err
		}
		res, err := w.client.ExecInfo(w.ctx, api.ExecParams{ExecID: exec})
		if want := fmt.Sprint(w.id, " label ", i); err != nil || res.Label != want {
			return fmt.Errorf("queued command %d has label %q (%w), want %q", i, res.Label, err, want)
		}
	}
	return nil
}

// copyBehind leaves a process behind that copies the feed to the output of a
// command that has ended.
func (w *witness) copyAfterExit() (err error) {
	if w.feed, err = newNumberedFeed(w.rig, w.id, w.over); err != nil {
		return err
	}
	if err := w.create(api.SessionCreateParams{}); err != nil {
		return err
	}
	res, err := w.run(fmt.Sprintf("cat %s & (exit %d)", w.feed.path, w.code))
	if err != nil {
		return err
	}
	w.exec = res.ExecID
	w.follow()
	return nil
}

// checkBehind is checkFeed, and the session must still be of use.
func (w *witness) checkAfterExit() error {
	if err := w.checkFeed(); err != nil {
		return err
	}
	return w.checkOutput("echo "+w.id+" lives", w.id+" lives")
}

// says compares the output of a short command.
func (w *witness) checkOutput(command, want string) error {
	res, err := w.run(command)
	if err != nil || strings.TrimSpace(res.Stdout) != want {
		return fmt.Errorf("%s wrote %q, want %q (%w)", command, res.Stdout, want, err)
	}
	return nil
}

// hold takes the keyboard of a session, of which every other has a terminal.
func (w *witness) takeLease() error {
	params := api.SessionCreateParams{}
	if w.n%2 == 0 {
		params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
	}
	if err := w.create(params); err != nil {
		return err
	}
	if _, err := w.run("n=" + w.id); err != nil {
		return err
	}
	res, err := w.client.Hold(w.ctx, api.SessionHoldParams{SessionID: w.session, Holder: w.id, TTLMS: (10 * time.Minute).Milliseconds()})
	if err == nil {
		w.lease = res.Lease
	}
	return err
}

// checkHold runs commands with and without the lease.
func (w *witness) checkLease() error {
	_, err := w.client.Run(w.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: "true"}})
	if !api.IsCode(err, api.CodeSessionHeld) {
		return fmt.Errorf("without its lease a command is answered with %w, want %s", err, api.CodeSessionHeld)
	}
	info, err := w.client.SessionInfo(w.ctx, api.SessionParams{SessionID: w.session})
	if err != nil || info.Held == nil || info.Held.Holder != w.id {
		return fmt.Errorf("it is held by %+v (%w)", info.Held, err)
	}
	return w.checkOutput("echo $n", w.id)
}

// remember gives the shell a state, leaves the result of a command, and in every
// fourth session a process in the background.
func (w *witness) runHistory() error {
	if err := w.create(api.SessionCreateParams{}); err != nil {
		return err
	}
	command := "cd /usr; n=" + w.id
	if w.n%4 == 0 {
		command += "; sleep 100000 & child=$!; echo $child"
	}
	res, err := w.run(command)
	if err != nil {
		return err
	}
	w.child = strings.TrimSpace(res.Stdout)
	res, err = w.run(fmt.Sprintf("echo %s was here; (exit %d)", w.id, w.code))
	if err != nil {
		return err
	}
	w.exec = res.ExecID
	return nil
}

// checkMemory asks for all of it again.
func (w *witness) checkHistory() error {
	text, err := (&worker{rig: w.rig, client: w.client}).wholeOutput(w.exec)
	if err != nil || text != w.id+" was here\n" {
		return fmt.Errorf("its first command is said to have written %q (%w)", text, err)
	}
	if err := w.checkExit(w.exec, w.code); err != nil {
		return err
	}
	if w.child != "" {
		if err := w.checkOutput(`kill -0 $child && echo $child`, w.child); err != nil {
			return err
		}
	}
	return w.checkOutput(`echo "$PWD $n"`, "/usr "+w.id)
}

// checkWitnesses reports what is wrong with sessions while their work goes on:
// every one is there, in its state, with its command, and has written since was.
func (r *rig) checkWitnesses(all []*witness, was []int64) error {
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	c, err := client.DialWith(ctx, r.Socket, client.Options{Patience: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.ListSessions(ctx, api.SessionListParams{})
	if err != nil {
		return err
	}
	there := map[string]api.Session{}
	for _, s := range list.Sessions {
		there[s.SessionID] = s
	}
	var errs []error
	for _, w := range all {
		s, ok := there[w.session]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s is not there", w))
		case s.State != w.kind.state || s.State == api.StateRunning && s.ExecID != w.exec || s.Name != w.id:
			errs = append(errs, fmt.Errorf("%s is %s, runs %q and is named %q", w, s.State, s.ExecID, s.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return eventually(30*time.Second, func() error {
		for i, w := range all {
			if err := w.failure(); err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
			if w.moves() && w.moved.Load() <= was[i] {
				return fmt.Errorf("%s has written nothing more after %d bytes", w, was[i])
			}
		}
		return nil
	})
}

// moves reports whether the work is one that writes all the time.
func (w *witness) moves() bool { return w.kind.name != "held" && w.kind.name != "idle" }

// positions are how far all have come.
func positions(all []*witness) []int64 {
	at := make([]int64, len(all))
	for i, w := range all {
		at[i] = w.moved.Load()
	}
	return at
}

// finishPatience is how long the work of all may take to end.
const finishPatience = 2 * time.Minute

// finishWitnesses waits for the end of the work, which must have been called for, and
// returns how many bytes it wrote.
func (r *rig) finishWitnesses(all []*witness) (int64, error) {
	late := time.AfterFunc(finishPatience, func() {
		for _, w := range all {
			w.client.Close() // what still waits for an answer fails
		}
	})
	defer late.Stop()
	var total atomic.Int64
	err := inParallel(len(all), 8, func(i int) error {
		if err := all[i].kind.finish(all[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i], err)
		}
		total.Add(all[i].moved.Load())
		return nil
	})
	return total.Load(), err
}

// numbered is a pipe that is fed numbered lines until the test is over.
type numberedFeed struct {
	path string
	text bytes.Buffer  // what was written; read it after done
	done chan struct{} // closed when nothing more is written
}

func newNumberedFeed(r *rig, id string, over <-chan struct{}) (*numberedFeed, error) {
	n := &numberedFeed{path: filepath.Join(r.t.TempDir(), id), done: make(chan struct{})}
	if err := unix.Mkfifo(n.path, 0o600); err != nil {
		return nil, err
	}
	// Open for both, so that it does not wait for a reader that never comes.
	to, err := os.OpenFile(n.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { to.Close() }) // it ends a write that nobody reads
	go func() {
		defer close(n.done)
		defer to.Close()
		tick := time.NewTicker(witnessLine)
		defer tick.Stop()
		for i := 0; waitTick(tick, over); i++ {
			line := fmt.Sprintf("%s %d %s\n", id, i, strings.Repeat(id, i*7%50))
			if _, err := to.WriteString(line); err != nil {
				return
			}
			n.text.WriteString(line)
		}
	}()
	return n, nil
}

// due waits for the next tick; false: it is over.
func waitTick(tick *time.Ticker, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	case <-tick.C:
		return true
	}
}

// differs compares what came out with what went in, once all has been written.
func (n *numberedFeed) differs(got []byte) error {
	<-n.done
	want := n.text.Bytes()
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	around := func(b []byte) []byte { return b[min(len(b), max(0, at-40)):min(len(b), at+80)] }
	return fmt.Errorf("%d bytes came, want %d; from byte %d on they differ: %q, want %q", len(got), len(want), at, around(got), around(want))
}
