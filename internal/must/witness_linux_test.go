package must

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// witness is one session with work in progress. Everything it writes begins with
// its own id, so bytes of another command are seen at once. begin starts the
// work, finish ends it and compares every byte and every exit status.
type witness struct {
	*rig
	ctx    context.Context // ends with the test
	client *client.Client  // its own; it waits for a daemon that restarts
	n      int             // number of the witness
	id     string          // id of the witness, in every line
	code   int             // exit code of its command
	kind   *witnessKind
	shells []string // those that its first daemon drives

	session string
	exec    string   // the command that is followed; "" if there is none
	queued  []string // the commands queued behind it
	lease   string   // keyboard lease of the session, if it is held
	child   string   // pid of a background process

	over  <-chan struct{}
	feed  *numberedFeed  // input that the command copies; nil if it copies nothing
	acked map[int]bool   // for each number that was typed: whether the call was answered
	got   bytes.Buffer   // output so far; owned by the following goroutine until that has ended
	moved atomic.Int64   // bytes of output received so far
	busy  sync.WaitGroup // the goroutines that follow and type

	mu  sync.Mutex
	err error // the first error of those goroutines
}

// witnessKind is one kind of work.
type witnessKind struct {
	name   string
	n      int       // how many of a hundred do it
	state  api.State // state of the session all the time
	begin  func(*witness) error
	finish func(*witness) error
}

// witnessKinds describe a hundred sessions; in the first fifty a command runs.
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

// witnessLine is the interval at which a command gets a line to copy.
const witnessLine = 20 * time.Millisecond

// beginWitnesses creates the sessions of some kinds and starts their work, which
// continues until end is called.
func (r *rig) beginWitnesses(kinds []*witnessKind) (all []*witness, end func()) {
	r.t.Helper()
	over := make(chan struct{})
	end = sync.OnceFunc(func() { close(over) })
	ctx, cancel := context.WithCancel(r.ctx)
	r.t.Cleanup(func() {
		cancel() // aborts calls that wait for an answer
		end()
		for _, w := range all {
			w.busy.Wait()
			if w.client != nil {
				w.client.Close()
			}
		}
	})
	info, err := r.client.SystemInfo(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	// An earlier program may drive fewer shells.
	known := slices.DeleteFunc(slices.Clone(shells), func(name string) bool { return !slices.Contains(info.Shells, name) })
	for _, kind := range kinds {
		for range kind.n {
			n := len(all)
			all = append(all, &witness{rig: r, shells: known, n: n, id: fmt.Sprintf("w%03d", n), code: 1 + n%100, kind: kind, ctx: ctx, over: over})
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

// String identifies the witness in a failure message.
func (w *witness) String() string {
	return fmt.Sprintf("%s (%s, session %s, command %s)", w.id, w.kind.name, w.session, w.exec)
}

// create creates the session.
func (w *witness) create(params api.SessionCreateParams) error {
	if len(params.Argv) == 0 {
		params.Shell = w.shells[w.n%len(w.shells)]
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

// fail records the first error of the goroutines.
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

// follow collects the output of the command until it is complete.
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

// take appends a chunk, which must begin at next.
func (w *witness) take(chunk *api.Chunk, next int64) error {
	data, err := chunk.Content()
	if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
		return fmt.Errorf("a %s chunk at %d, want one at %d (%w)", chunk.Type, chunk.Offset, next, err)
	}
	w.got.Write(data)
	w.moved.Add(int64(len(data)))
	return nil
}

// checkWitnesses reports what is wrong with sessions while their work continues:
// each must exist, in its state, with its command, and must have written more
// than was.
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
			errs = append(errs, fmt.Errorf("%s does not exist", w))
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

// moves reports whether the work writes all the time.
func (w *witness) moves() bool { return w.kind.name != "held" && w.kind.name != "idle" }

// positions returns how many bytes each witness has received.
func positions(all []*witness) []int64 {
	at := make([]int64, len(all))
	for i, w := range all {
		at[i] = w.moved.Load()
	}
	return at
}

// finishPatience is how long the work of all may take to end.
const finishPatience = 2 * time.Minute

// finishWitnesses waits for the end of the work, which the caller must have
// requested, and returns how many bytes it wrote.
func (r *rig) finishWitnesses(all []*witness) (int64, error) {
	late := time.AfterFunc(finishPatience, func() {
		for _, w := range all {
			w.client.Close() // aborts calls that still wait for an answer
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
