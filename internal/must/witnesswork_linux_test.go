package must

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
)

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

// copyDirectly is copyFeed in a session that runs a single command.
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

// checkFeed waits for the end of the command and compares its output with its
// input.
func (w *witness) checkFeed() error {
	w.busy.Wait()
	if err := errors.Join(w.failure(), w.feed.differs(w.got.Bytes())); err != nil {
		return err
	}
	return w.checkExit(w.exec, w.code)
}

// checkExit compares the exit status of an ended command.
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

// readInput runs a command that prints the numbers it reads, and reports when one
// does not follow the last.
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

// endInput closes the input. An interrupted call is repeated.
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

// checkInput compares what the command read with what was typed: each number
// whose call was answered exactly once, each other at most once.
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
			return fmt.Errorf("it read %d twice, or the number was never sent", n)
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

// queue runs a command and queues others behind it that read input: the first its
// own, the others what arrives later.
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

// copyAfterExit leaves a background process that copies the feed to the output of
// a command that has ended.
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

// checkAfterExit is checkFeed, and the session must still be usable.
func (w *witness) checkAfterExit() error {
	if err := w.checkFeed(); err != nil {
		return err
	}
	return w.checkOutput("echo "+w.id+" lives", w.id+" lives")
}

// checkOutput compares the output of a short command.
func (w *witness) checkOutput(command, want string) error {
	res, err := w.run(command)
	if err != nil || strings.TrimSpace(res.Stdout) != want {
		return fmt.Errorf("%s wrote %q, want %q (%w)", command, res.Stdout, want, err)
	}
	return nil
}

// takeLease takes the keyboard lease of a session; every other session has a
// terminal.
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

// checkLease runs commands with and without the lease.
func (w *witness) checkLease() error {
	_, err := w.client.Run(w.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: w.session, Command: "true"}})
	if !api.IsCode(err, api.CodeSessionHeld) {
		return fmt.Errorf("a command without the lease returned %w, want %s", err, api.CodeSessionHeld)
	}
	info, err := w.client.SessionInfo(w.ctx, api.SessionParams{SessionID: w.session})
	if err != nil || info.Held == nil || info.Held.Holder != w.id {
		return fmt.Errorf("it is held by %+v (%w)", info.Held, err)
	}
	return w.checkOutput("echo $n", w.id)
}

// runHistory sets shell state, leaves the result of a command, and in every
// fourth session a background process.
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

// checkHistory reads all of it again.
func (w *witness) checkHistory() error {
	text, err := (&worker{rig: w.rig, client: w.client}).wholeOutput(w.exec)
	if err != nil || text != w.id+" was here\n" {
		return fmt.Errorf("its first command has the output %q (%w)", text, err)
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

// numberedFeed is a pipe that is fed numbered lines until the test is over.
type numberedFeed struct {
	path string
	text bytes.Buffer  // what was written; read it after done is closed
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
	r.t.Cleanup(func() { to.Close() }) // it ends a write without a reader
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

// waitTick waits for the next tick; false means that over is closed.
func waitTick(tick *time.Ticker, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	case <-tick.C:
		return true
	}
}

// differs compares output with input, once all input has been written.
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
	return fmt.Errorf("got %d bytes, want %d; they differ from byte %d on: %q, want %q", len(got), len(want), at, around(got), around(want))
}
