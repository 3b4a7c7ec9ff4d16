package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/peer"
)

// echoWire answers every request with the same result, without a system call.
type echoWire struct {
	requests chan struct{}
	result   string
	id       int
	answer   []byte
}

func (w *echoWire) Send(message []byte) error { return w.Finish(message) }

func (w *echoWire) Begin(message []byte) ([]byte, error) { return nil, w.Finish(message) }

func (w *echoWire) Finish([]byte) error {
	w.requests <- struct{}{}
	return nil
}

func (w *echoWire) Receive() ([]byte, error) {
	if _, ok := <-w.requests; !ok {
		return nil, errors.New("closed")
	}
	w.id++
	w.answer = fmt.Appendf(w.answer[:0], `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", w.id, w.result)
	return w.answer, nil
}

func (w *echoWire) Close() error {
	close(w.requests)
	return nil
}

func (w *echoWire) SetReceiveTimeout(time.Duration) bool { return false }

// BenchmarkForward measures what a router and its connection add to a short command.
func BenchmarkForward(b *testing.B) {
	const result = `{"exec_id":"e-k7-2pfxeoyxlt65u","session_id":"s-k7-ki2vbzhmw4wqy","state":"exited","exit_code":0,"stdout":"","stderr":"","duration_ms":0,"started_at":"2026-01-01T00:00:00.000Z"}`
	s := &scripted{conn: peer.NewConn(&echoWire{requests: make(chan struct{}, 1), result: result})}
	defer s.conn.Close()
	r := New(Config{System: system{}, Places: s})
	ctx := arrival.With(as(b, access.ScopeRun), func() {})
	params := json.RawMessage(`{"session_id":"s-k7-ki2vbzhmw4wqy","command":"true"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Call(ctx, api.MethodExecRun, params); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChunk measures what a router adds to a chunk of output.
func BenchmarkChunk(b *testing.B) {
	c := api.Chunk{StreamID: "st-0123456789", ExecID: "e-k7-0123456789", Type: api.ChunkStdout, Data: strings.Repeat("a line of output\n", 8<<10), Next: 17 * 8 << 10}
	raw, err := c.AppendJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	t := translation{place: "k7", runtime: "cmd:k7"}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		n, err := t.notification(api.NotifyExecChunk, raw, "st-9876543210", buffers.get())
		if err != nil {
			b.Fatal(err)
		}
		buffers.put(n.JSON)
	}
}

// BenchmarkAnswer measures what a router adds to an answer with output.
func BenchmarkAnswer(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":1,"result":{"exec_id":"e-k7-1","session_id":"s-k7-1","state":"exited","stdout":"` + strings.Repeat("a line of output", 1<<10) + `"}}`)
	t := translation{place: "k7", runtime: "cmd:k7"}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := t.answer(line); err != nil {
			b.Fatal(err)
		}
	}
}
