package must

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	liveReaders  = 50
	liveBytes    = 8 << 20 // for each of them
	readerMemory = 64 << 20
)

// TestMustServeSlowReaders checks that a stalled reader affects neither the
// command nor other readers.
func TestMustServeSlowReaders(t *testing.T) {
	t.Run("rate", func(t *testing.T) { gauge.Tries(t, slowReaderRate) })
	t.Run("gap", slowReaderGap)
}

// slowReaderRate compares readers alone with readers next to a stalled one,
// alternately, and uses the best of each.
func slowReaderRate(t *testing.T) error {
	r := startWith(t, trltest.Config{Args: plenty})
	s := r.create(api.SessionCreateParams{})
	before := r.stats().Memory
	var took, ran [2]time.Duration // without and with a stalled one
	for range 3 {
		for i := range 2 {
			t, c := r.readers(s, i == 1)
			took[i], ran[i] = shorter(took[i], t), shorter(ran[i], c)
		}
	}
	grown := r.stats().Memory - before
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	live, own := gauge.Ratio(took[0], took[1]), gauge.Ratio(ran[0], ran[1])
	gauge.Figures(t, "%d readers of %d MiB: %v alone, %v next to a stalled one, %.2f × the rate; the command %v and %v, %.2f ×; the daemon grew by %.1f MiB",
		liveReaders, liveBytes>>20, took[0], took[1], live, ran[0], ran[1], own, float64(grown)/(1<<20))
	if live < streamLive || own < streamLive || grown > readerMemory {
		return fmt.Errorf("live readers reach %.2f × their rate and the command %.2f × its own, want %.1f; the daemon grew by %d bytes, want at most %d",
			live, own, streamLive, grown, readerMemory)
	}
	return nil
}

// shorter returns the smaller of two durations, of which the first may be unset
// (0).
func shorter(d, v time.Duration) time.Duration {
	if d == 0 {
		return v
	}
	return min(d, v)
}

// readers lets many clients follow one command, and returns how long they took
// and how long it ran.
func (r *rig) readers(s *api.Session, stalled bool) (took, ran time.Duration) {
	r.t.Helper()
	started, err := r.client.Run(r.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read go; " + textCommand(liveBytes), StdinOpen: true},
		YieldMS:     1,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	attach := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"exec.attach","params":{"exec_id":%q}}`+"\n", started.ExecID)
	if stalled {
		l := r.dialLines()
		if _, err := l.Ask(attach); err != nil { // and reads no more
			r.t.Fatal(err)
		}
		defer l.Conn.Close()
	}
	conns := make([]*gauge.Lines, liveReaders)
	for i := range conns {
		conns[i] = r.dialLines()
		if _, err := conns[i].Ask(attach); err != nil {
			r.t.Fatal(err)
		}
	}
	began := time.Now()
	if _, err := r.client.Input(r.ctx, api.ExecInputParams{ExecID: started.ExecID, Data: "go\n"}); err != nil {
		r.t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, l := range conns {
		wg.Go(func() {
			if err := readToExit(l); err != nil {
				r.t.Error(err)
			}
			l.Conn.Close()
		})
	}
	wg.Wait()
	took = time.Since(began)
	info, err := r.client.ExecInfo(r.ctx, api.ExecParams{ExecID: started.ExecID})
	if err != nil || info.StdoutBytes != liveBytes {
		r.t.Fatal(info, err)
	}
	return took, time.Duration(info.DurationMS) * time.Millisecond
}

// readToExit reads chunks up to the exit. There must be no gap before it.
func readToExit(l *gauge.Lines) error {
	var head [200]byte // contains the type; the data is ignored
	for {
		line, err := l.In.ReadSlice('\n')
		n := copy(head[:], line)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.In.ReadSlice('\n')
		}
		switch {
		case err != nil:
			return err
		case bytes.Contains(head[:n], []byte(`"type":"gap"`)):
			return fmt.Errorf("a live reader has a gap: %s", head[:n])
		case bytes.Contains(head[:n], []byte(`"type":"exit"`)):
			return nil
		}
	}
}

// slowReaderGap lets a reader sleep until the quota discards what it has not
// read. What it then gets must be right at every offset, and what it does not get
// must be reported as a gap.
func slowReaderGap(t *testing.T) {
	const quota, size = 4 << 20, 64 << 20
	rnd := seeded(t)
	r := start(t, "--exec-quota-bytes", fmt.Sprint(quota))
	file, _ := randomFile(t, rnd, size)
	s := r.create(api.SessionCreateParams{})
	c := r.dial()
	st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat " + file}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Receive(); err != nil { // the beginning of the output
		t.Fatal(err)
	}
	// It stalls until long after the end of the command.
	if res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Wait: true}}); err != nil || *res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	want, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	got, missed, gaps, next := int64(0), int64(0), 0, st.Next()
	for chunk, err := range st.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		data, err := chunk.Content()
		if err != nil || chunk.Offset != next {
			t.Fatalf("a chunk at %d, want %d, %v", chunk.Offset, next, err)
		}
		next = chunk.Next
		if chunk.Type == api.ChunkGap {
			gaps++
			missed += chunk.Bytes
			continue
		}
		there := make([]byte, len(data))
		if _, err := want.ReadAt(there, chunk.Offset); err != nil && err != io.EOF || !bytes.Equal(data, there) {
			t.Fatalf("wrong bytes at %d after %d gaps, %v", chunk.Offset, gaps, err)
		}
		got += int64(len(data))
	}
	if next != size || gaps == 0 || st.Result() == nil {
		t.Errorf("the stream ended at %d after %d gaps, want %d after one or more", next, gaps, size)
	}
	gauge.Figures(t, "a reader that slept through %d MiB with a quota of %d MiB: %d gaps of %.1f MiB in all, every other byte right",
		size>>20, quota>>20, gaps, float64(missed)/(1<<20))
	c.Close()
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}
