package must

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	garbageLines = 10_000
	garbageConns = 8     // concurrent connections
	garbageMost  = 64000 // limit of a request in bytes
)

// malformed returns a line that is wrong in one of many ways, without a newline
// in it. A mutation may also be valid, or even run something harmless.
func malformed(rng *rand.Rand, session string) []byte {
	valid := []string{
		`{"jsonrpc":"2.0","id":1,"method":"system.ping"}`,
		`{"jsonrpc":"2.0","id":"a","method":"session.list","params":{"state":"idle"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"session.info","params":{"session_id":"s-none"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"exec.run","params":{"session_id":"` + session + `","command":": \u00e9","timeout_ms":1000,"env":{"A":"b"}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"session.create","params":{"shell":"no-such-shell","tags":["a","b"]}}`,
		`{"jsonrpc":"2.0","id":5,"method":"exec.output","params":{"exec_id":"e-none","from":0,"wait_ms":10}}`,
	}
	b := []byte(valid[rng.IntN(len(valid))])
	switch rng.IntN(8) {
	case 0: // some bytes changed
		for range 1 + rng.IntN(8) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
	case 1: // cut
		b = b[:rng.IntN(len(b))]
	case 2: // noise
		b = make([]byte, rng.IntN(300))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	case 3: // deeply nested
		n := 1 + rng.IntN(20_000)
		b = []byte(strings.Repeat("[", n) + strings.Repeat("]", rng.IntN(n+1)))
	case 4: // a part repeated
		at := rng.IntN(len(b))
		b = append(b[:at:at], append(bytes.Clone(b), b[at:]...)...)
	case 5: // invalid UTF-8 in a string
		b = bytes.Replace(b, []byte("none"), []byte{0xff, 0xfe, 0xc3}, 1)
	case 6: // too long
		b = append(b, bytes.Repeat([]byte("x"), garbageMost+rng.IntN(2*garbageMost))...)
	case 7: // wrong types
		b = bytes.Replace(b, []byte(`"params":{`), []byte(`"params":[{`), 1)
		b[rng.IntN(len(b))] = '0'
	}
	return append(bytes.ReplaceAll(b, []byte("\n"), []byte(" ")), '\n')
}

// TestMustSurviveGarbage was seen to fail with a daemon that closed the
// connection after a line that was too long, and with one that leaked a goroutine
// for each connection that was cut.
func TestMustSurviveGarbage(t *testing.T) {
	r := start(t, "--max-request-bytes", fmt.Sprint(garbageMost))
	rng := seeded(t)
	s := r.create(api.SessionCreateParams{Shell: "dash"})
	r.run(s, "kept=yes")
	r.client.Close()
	g := &garbage{rig: r, session: s.SessionID}
	g.throw(rng, garbageLines/50) // allocate now what is allocated once
	before := r.footprint()

	g.throw(rng, garbageLines)
	after := before
	err := eventually(trltest.Patience, func() error {
		if after = r.footprint(); after.goroutines != before.goroutines || after.fds.held != before.fds.held {
			return fmt.Errorf("goroutines %d → %d, descriptors %d → %d", before.goroutines, after.goroutines, before.fds.held, after.fds.held)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	r.client = r.dial()
	if res := r.run(s, `echo "$kept"`); res.Stdout != "yes\n" {
		t.Errorf("the session has %q, want its earlier state", res.Stdout)
	}
	gauge.Figures(t, "%d lines on %d connections, %d cut in a line, %d in an answer; every other answered; fds %d → %d, goroutines %d → %d",
		g.lines, g.conns, g.cutLine, g.cutAnswer, before.fds.held, after.fds.held, before.goroutines, after.goroutines)
	r.destroy(s.SessionID)
	r.stop()
}

// garbage is one run of the test.
type garbage struct {
	*rig
	session string

	mu                               sync.Mutex
	lines, conns, cutLine, cutAnswer int
}

// throw sends count lines over several connections at once. Each connection sends
// some of them; then it must still answer, or is cut. When throw returns there is
// no connection left, no session but the original one (a mutated session.create
// may be valid), and that one is idle: queued commands run when their connection
// is gone.
func (g *garbage) throw(rng *rand.Rand, count int) {
	g.t.Helper()
	defer func() {
		g.client = g.dial()
		defer g.client.Close()
		list, err := g.client.ListSessions(g.ctx, api.SessionListParams{})
		if err != nil {
			g.t.Fatal(err)
		}
		for _, s := range list.Sessions {
			if s.SessionID != g.session && s.State != api.StateTerminated {
				g.destroy(s.SessionID)
			}
		}
		if err := eventually(trltest.Patience, g.atRest); err != nil {
			g.t.Error(err)
		}
	}()
	for count > 0 {
		n := min(count, garbageConns*200)
		count -= n
		seeds := make([]uint64, garbageConns)
		for i := range seeds {
			seeds[i] = rng.Uint64()
		}
		if err := inParallel(garbageConns, garbageConns, func(i int) error {
			for left := n / garbageConns; left > 0; {
				some := min(left, 40)
				left -= some
				if err := g.connection(rand.New(rand.NewPCG(seeds[i], uint64(left))), some); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			g.t.Error(err)
			return
		}
	}
}

// atRest returns an error unless the session is idle and its shell has the
// standby that every idle shell has.
func (g *garbage) atRest() error {
	info, err := g.client.SessionInfo(g.ctx, api.SessionParams{SessionID: g.session})
	if err != nil {
		return err
	}
	standby := slices.ContainsFunc(info.Processes, func(p api.Process) bool { return p.Role == api.RoleStandby })
	if info.State != api.StateIdle || !standby {
		return fmt.Errorf("the session is %s, has a standby: %t", info.State, standby)
	}
	return nil
}

// connection opens one connection, sends lines over it and ends it.
func (g *garbage) connection(rng *rand.Rand, count int) error {
	l, err := gauge.DialLines(g.Socket)
	if err != nil {
		return err
	}
	defer l.Conn.Close()
	if err := l.Conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	end := rng.IntN(4)
	var batch bytes.Buffer
	for range count {
		batch.Write(malformed(rng, g.session))
	}
	g.count(&g.lines, count)
	g.count(&g.conns, 1)
	switch end {
	case 0: // cut in the middle of a line
		batch.Truncate(batch.Len() - 1 - rng.IntN(10))
		_, err := l.Conn.Write(batch.Bytes())
		g.count(&g.cutLine, 1)
		return err
	case 1: // cut in the middle of an answer that is longer than the socket buffer
		for range 20 {
			batch.WriteString(g.bigAnswer())
		}
		if err := g.sendAndRead(l, batch.Bytes(), func(line []byte) bool { return bytes.Contains(line, []byte(`"id":"big"`)) }); err != nil {
			return err
		}
		g.count(&g.cutAnswer, 1)
		return nil
	default: // read answers to the end
		batch.WriteString(`{"jsonrpc":"2.0","id":"last","method":"system.ping"}` + "\n")
		return g.sendAndRead(l, batch.Bytes(), func(line []byte) bool {
			return bytes.Contains(line, []byte(`"id":"last"`)) && bytes.Contains(line, []byte(`"protocol":1`))
		})
	}
}

func (g *garbage) count(what *int, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*what += n
}

// bigAnswer is a request with an answer of some eighty kilobytes. The output fits
// into memory, because larger output is kept in an open file.
func (g *garbage) bigAnswer() string {
	return `{"jsonrpc":"2.0","id":"big","method":"exec.run","params":{"session_id":"` + g.session +
		`","command":"head -c 60000 /dev/zero","wait":true}}` + "\n"
}

// sendAndRead writes while it reads, until enough returns true for a line. Every
// line must be JSON.
func (g *garbage) sendAndRead(l *gauge.Lines, text []byte, enough func(line []byte) bool) error {
	sent := make(chan error, 1)
	go func() {
		_, err := l.Conn.Write(text)
		sent <- err
	}()
	for {
		line, err := l.In.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the last request was not answered: %w", errors.Join(err, <-sent))
		}
		if !json.Valid(line) {
			return fmt.Errorf("an answer is not JSON: %q", line)
		}
		if enough(line) {
			return <-sent
		}
	}
}
