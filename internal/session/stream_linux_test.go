package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// received is what came of a stream, with consecutive chunks of one stream joined.
type received struct {
	chunks []string // "stdout 0 text"
	exit   *api.ExecResult
	next   int64
}

var errEnough = errors.New("enough")

// take runs a feed until it ends, or until enough returns true after a chunk.
func take(t *testing.T, feed notify.Feed, enough func(*received) bool) *received {
	t.Helper()
	got := &received{next: -1}
	last := ""
	err := feed(t.Context(), func(n notify.Notification) error {
		raw := n.(*notify.RawChunk)
		c := raw.Chunk
		if got.exit != nil {
			t.Errorf("%s after exit", c.Type)
		}
		if got.next >= 0 && c.Offset != got.next {
			t.Errorf("chunk at %d, want %d", c.Offset, got.next)
		}
		got.next = c.Next
		switch {
		case c.Type == api.ChunkExit:
			got.exit = c.Result
			return nil
		case c.Type == api.ChunkGap:
			got.chunks = append(got.chunks, fmt.Sprintf("gap %d %d", c.Offset, c.Bytes))
		case last == string(c.Type):
			got.chunks[len(got.chunks)-1] += string(raw.Raw)
		default:
			got.chunks = append(got.chunks, fmt.Sprintf("%s %d %s", c.Type, c.Offset, raw.Raw))
		}
		last = string(c.Type)
		if enough != nil && enough(got) {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return got
}

func streamed(t *testing.T, p *Pool, s *api.Session, command string) (*api.ExecStreamResult, notify.Feed) {
	t.Helper()
	r, feed, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	return r, feed
}

func attach(t *testing.T, p *Pool, exec string, from int64) notify.Feed {
	t.Helper()
	_, feed, err := p.Attach(t.Context(), api.ExecAttachParams{ExecID: exec, From: from})
	if err != nil {
		t.Fatal(err)
	}
	return feed
}

func TestStreamThenAttach(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	// Two pipes have an order only if one is read before the other is written to.
	r, feed, err := p.Stream(t.Context(), api.ExecStreamParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo one; read x; echo two >&2; read x; echo three; exit 3", StdinOpen: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stdout 0 one\n", "stderr 4 two\n", "stdout 8 three\n"}
	got := take(t, feed, func(so *received) bool {
		if n := len(so.chunks); n < len(want) && so.chunks[n-1] == want[n-1] {
			if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "x\n"}); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	if diff := cmp.Diff(want, got.chunks); diff != "" {
		t.Error(diff)
	}
	if got.exit == nil || *got.exit.ExitCode != 3 || got.exit.StdoutBytes != 10 || got.next != 14 {
		t.Errorf("exit %+v at %d", got.exit, got.next)
	}
	// Again, from the middle and from the end, long after it has ended.
	if got := take(t, attach(t, p, r.ExecID, 9), nil); got.chunks[0] != "stdout 9 hree\n" || got.exit == nil {
		t.Errorf("from 9: %+v", got)
	}
	if got := take(t, attach(t, p, r.ExecID, 14), nil); got.chunks != nil || got.exit == nil {
		t.Errorf("from the end: %+v", got)
	}
	for _, from := range []int64{15, 1 << 40} {
		if _, _, err := p.Attach(t.Context(), api.ExecAttachParams{ExecID: r.ExecID, From: from}); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("from %d: %v", from, err)
		}
	}
	if _, _, err := p.Attach(t.Context(), api.ExecAttachParams{ExecID: "e-none"}); !api.IsCode(err, api.CodeExecNotFound) {
		t.Error(err)
	}
}

// TestStreamIsLive: a byte is sent while the command still runs, and a reader that
// goes away and comes back misses none.
func TestStreamIsLive(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	r, feed, err := p.Stream(t.Context(), api.ExecStreamParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo first; read x; echo got $x", StdinOpen: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := take(t, feed, func(*received) bool { return true })
	if diff := cmp.Diff([]string{"stdout 0 first\n"}, first.chunks); diff != "" {
		t.Error(diff)
	}
	if in, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID}); err != nil || in.State != api.ExecRunning {
		t.Error(in, err)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "x\n"}); err != nil {
		t.Fatal(err)
	}
	second := take(t, attach(t, p, r.ExecID, first.next), nil)
	if diff := cmp.Diff([]string{"stdout 6 got x\n"}, second.chunks); diff != "" || second.exit == nil {
		t.Error(diff, second.exit)
	}
}

// TestStreamKeepsCharactersWhole: a character that a pipe split is sent whole; an
// invalid byte is sent after a moment.
func TestStreamKeepsCharactersWhole(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	for command, want := range map[string][]string{
		`printf '\303'; printf '\251\n'`:                   {"é\n"},
		`printf 'a\303'; sleep 0.004; printf '\251'`:       {"a", "é"},
		`printf '\303'; sleep 0.2; printf 'x'`:             {"\xc3", "x"},
		`printf 'a\360\237\230'; sleep 0.2; printf '\200'`: {"a", "\xf0\x9f\x98", "\x80"},
		`printf '\303'`: {"\xc3"},
	} {
		trltest.Undisturbed(t, func() error {
			_, feed := streamed(t, p, s, command)
			var got []string
			err := feed(t.Context(), func(n notify.Notification) error {
				if raw := n.(*notify.RawChunk); raw.Type == api.ChunkStdout {
					got = append(got, string(raw.Raw))
				}
				return nil
			})
			// How the writes of the command are split into chunks depends on its
			// speed; but no character may be split.
			if err != nil || strings.Join(got, "") != strings.Join(want, "") {
				t.Errorf("%s: %q, want %q, %v", command, got, want, err)
			}
			for _, piece := range got {
				if strings.Contains(strings.Join(want, ""), "é") && (piece == "\xc3" || strings.HasPrefix(piece, "\xa9")) {
					// If the command paused for longer than a stream waits for a
					// character, that was correct.
					return fmt.Errorf("%s: a character was cut: %q", command, got)
				}
			}
			return nil
		})
	}
}

// TestStreamEndsBeforeSurvivors: the stream of a command ends with it, whatever it
// left running.
func TestStreamEndsBeforeSurvivors(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	_, feed := streamed(t, p, s, "yes & echo done >&2")
	got := take(t, feed, nil)
	if got.exit == nil || len(got.exit.Survivors) != 1 {
		t.Errorf("exit %+v", got.exit)
	}
	// The stream of a command that closes its output and runs on does not end
	// before it.
	_, feed = streamed(t, p, s, "kill $!; echo out; exec >&- 2>&-; sleep 0.1; exit 5")
	got = take(t, feed, nil)
	if diff := cmp.Diff([]string{"stdout 0 out\n"}, got.chunks); diff != "" || got.exit == nil || *got.exit.ExitCode != 5 {
		t.Error(diff, got.exit)
	}
}

// TestStreamGap: a reader that is overtaken gets a gap for what it missed, and the command
// does not wait for it.
func TestStreamGap(t *testing.T) {
	host, err := process.NewHost(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := shell.OpenDriver(shell.DriverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const quota = 1 << 20
	p := NewPool(Config{}, host, driver, journal.NewStore(journal.Config{Dir: t.TempDir(), ExecMemory: 4 << 10, ExecQuota: quota}))
	defer func() {
		if err := errors.Join(p.Shutdown(context.Background()), driver.Close(), host.Close()); err != nil {
			t.Error(err)
		}
		p.Close()
	}()
	s := create(t, p, api.SessionCreateParams{})
	const size = 8 << 20
	r, feed := streamed(t, p, s, fmt.Sprintf("head -c %d /dev/zero", size))
	_, e, err := p.exec(r.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	const step = 128 << 10 // how far a stream reads ahead
	var data, gaps int64
	stalled := false
	err = feed(t.Context(), func(n notify.Notification) error {
		raw := n.(*notify.RawChunk)
		data += int64(len(raw.Raw))
		gaps += raw.Bytes
		if !stalled {
			stalled = true
			<-e.Done() // the reader stalls, and the command ends all the same
		}
		return nil
	})
	if err != nil || data+gaps != size || gaps < size-quota-2*step {
		t.Errorf("%d bytes and gaps of %d, want %d in all, %v", data, gaps, size, err)
	}
}

func TestStreamByKey(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	params := api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo once", Key: "k"}}
	first, feed, err := p.Stream(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	take(t, feed, nil)
	again, feed, err := p.Stream(t.Context(), params)
	if err != nil || again.ExecID != first.ExecID || again.StreamID == first.StreamID {
		t.Fatal(again, err)
	}
	if got := take(t, feed, nil); got.chunks[0] != "stdout 0 once\n" {
		t.Error(got.chunks)
	}
}

// watched collects events until a session is destroyed.
func watched(t *testing.T, feed notify.Feed) (events []string) {
	t.Helper()
	err := feed(t.Context(), func(n notify.Notification) error {
		e := n.(*api.SessionEvent)
		events = append(events, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.State, e.Reason)))
		if e.Type == api.EventDestroyed {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return events
}

func TestWatch(t *testing.T) {
	p := newPool(t, Config{})
	_, all, err := p.Watch(t.Context(), api.SessionWatchParams{})
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, p, api.SessionCreateParams{Name: "n", Tags: []string{"t"}})
	_, one, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	create(t, p, api.SessionCreateParams{}) // another one, which the second watcher does not see
	sh(t, p, s, "true")
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	life := []string{"state running", "state idle", "destroyed terminated destroyed"}
	if diff := cmp.Diff(append([]string{"created idle", "created idle"}, life...), watched(t, all)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(life, watched(t, one)); diff != "" {
		t.Error(diff)
	}
	if _, _, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID}); !api.IsCode(err, api.CodeSessionTerminated) {
		t.Error(err)
	}
}

// TestWatchQueue: a session that goes on to the next queued command reports which
// one runs.
func TestWatchQueue(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	_, feed, err := p.Watch(t.Context(), api.SessionWatchParams{SessionID: s.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	first := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read x", StdinOpen: true}, YieldMS: 1})
	queued, _, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: first.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		info, err := p.ExecInfo(t.Context(), api.ExecParams{ExecID: queued.ExecID})
		return err == nil && info.State == api.ExecExited
	})
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	var ran []string
	if err := feed(t.Context(), func(n notify.Notification) error {
		if e := n.(*api.SessionEvent); e.State == api.StateRunning {
			ran = append(ran, e.ExecID)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{first.ExecID, queued.ExecID}, ran); diff != "" {
		t.Error(diff)
	}
}

func TestWatcherThatLags(t *testing.T) {
	var ev events
	const lost = 10
	w := &watcher{events: &ev, stream: "st-1", at: ev.now()}
	for i := range maxEvents + lost {
		ev.add(api.SessionEvent{Type: api.EventState, SessionID: fmt.Sprint(i), At: api.Time{Time: time.Now()}})
	}
	ev.close()
	n := 0
	err := w.feed(t.Context(), func(note notify.Notification) error {
		e := note.(*api.SessionEvent)
		switch {
		case n == 0 && (e.Type != api.EventGap || e.Missed != lost):
			t.Errorf("first %+v, want a gap of %d", e, lost)
		case n > 0 && e.SessionID != fmt.Sprint(n-1+lost):
			t.Errorf("event %d is of %s", n, e.SessionID)
		}
		n++
		return nil
	})
	if err != nil || n != maxEvents+1 {
		t.Errorf("%d events, %v", n, err)
	}
}
