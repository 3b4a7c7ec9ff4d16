package route

import (
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

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
