package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChunkJSON(t *testing.T) {
	code := 3
	every := make([]byte, 0, 0x80)
	for c := range byte(0x80) {
		every = append(every, c)
	}
	for name, c := range map[string]Chunk{
		"empty":    {},
		"text":     {StreamID: "st-1", ExecID: "e-1", Type: ChunkStdout, Offset: 7, Data: "one\ntwo \"three\" \\ é😀\u2028\n", Next: 40},
		"controls": {Type: ChunkStderr, Data: string(every)},
		"one":      {Type: ChunkStdout, Data: "\n"},
		"dense":    {Type: ChunkStdout, Data: strings.Repeat("y\n", 5000)},
		"long":     {Type: ChunkStdout, Data: strings.Repeat("0123456789 abcdef", 5000) + "\x00"},
		"base64":   {Type: ChunkTTY, Offset: 1 << 60, Data: "/w==", Encoding: Base64, Next: 1<<60 + 1},
		"gap":      {Type: ChunkGap, Bytes: 9, Next: 9},
		"exit":     {Type: ChunkExit, Offset: 5, Next: 5, Result: &ExecResult{ExecID: "e-1", ExitCode: &code, Cwd: `/"<a>`}},
		"error":    {Type: ChunkError, Offset: 5, Next: 5, Error: Errorf(CodeExecNotFound, `no "exec" <here>`).With("runtime", "docker:web").WithHint("run it again")},
		"timed":    {Type: ChunkStdout, Data: "a", Next: 1, AtMS: new(int64)},
		"resize":   {Type: ChunkResize, AtMS: new(int64), TTY: &TTYSize{Rows: 24, Cols: 80}},
		"hostile":  {StreamID: `a"b\c`, Type: "x\ny"},
	} {
		t.Run(name, func(t *testing.T) {
			fast, err := c.AppendJSON([]byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			fast, ok := bytes.CutPrefix(fast, []byte("before"))
			if !ok {
				t.Fatal("AppendJSON overwrote the existing bytes")
			}
			var slow, quick Chunk
			if err := json.Unmarshal(fast, &slow); err != nil {
				t.Fatalf("%v: %s", err, fast)
			}
			if diff := cmp.Diff(c, slow); diff != "" {
				t.Error(diff)
			}
			if err := quick.ParseJSON(fast); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, quick); diff != "" {
				t.Error(diff)
			}
			plain, err := json.Marshal(&c)
			if err != nil {
				t.Fatal(err)
			}
			if err := quick.ParseJSON(plain); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, quick); diff != "" {
				t.Errorf("differs from encoding/json: %s", diff)
			}
		})
	}
}

func TestChunkJSONRefused(t *testing.T) {
	for _, text := range []string{
		``, `{`, `[]`, `{"data":"`, `{"data":"\`, `{"data":"\u00`, `{"data":"a\n`, `{"offset":1`, `{"offset":-}`, `{"offset":99999999999999999999}`,
		`{"type":"stdout"}}`, `{"type":"stdout",}`, `{"data":5}`,
	} {
		var c Chunk
		if err := c.ParseJSON([]byte(text)); err == nil {
			t.Errorf("%s was decoded as %+v", text, c)
		}
	}
}

// FuzzChunkJSON checks that a chunk round-trips any captured bytes.
func FuzzChunkJSON(f *testing.F) {
	for _, s := range []string{"", "a\nb", "\x00", "\xff\xfe", "é\"\\", strings.Repeat("x", 100) + "\n" + strings.Repeat("z", 100)} {
		f.Add([]byte(s), int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, data []byte, offset int64) {
		c := Chunk{StreamID: "st-1", ExecID: "e-1", Type: ChunkStdout, Offset: max(offset, 0)}
		b, err := c.AppendJSONWith(nil, data)
		if err != nil {
			t.Fatal(err)
		}
		c.Data, c.Encoding = EncodeBytes(data)
		if !json.Valid(b) {
			t.Fatalf("not JSON: %q", b)
		}
		got, ok := quickChunk(b)
		if !ok {
			t.Fatalf("not read in one pass: %q", b)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Fatal(diff)
		}
		back, err := got.Content()
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q, %v, want %q", back, err, data)
		}
	})
}

// FuzzChunkParse parses what a daemon, or something that is not one, may send.
func FuzzChunkParse(f *testing.F) {
	f.Add([]byte(`{"stream_id":"st-1","type":"stdout","offset":1,"data":"a\n\u0001","next":5}`))
	f.Add([]byte(`{"data":"\ud83d\ude00","type":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		quick, ok := quickChunk(b)
		var slow Chunk
		if err := json.Unmarshal(b, &slow); err != nil || !ok {
			return // encoding/json decides; it also rejects raw control characters, which the fast path does not check
		}
		if diff := cmp.Diff(slow, quick); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	for _, bench := range []struct{ name, data string }{
		{"lines", strings.Repeat("The quick brown fox jumps over the lazy dog, and then again; 42.\n", 2000)},
		{"yes", strings.Repeat("y\n", 65000)},
	} {
		c := &Chunk{StreamID: "st-1", ExecID: "e-1", Type: ChunkStdout, Data: bench.data, Next: int64(len(bench.data))}
		text, _ := c.AppendJSON(nil)
		b.Run(bench.name+"/append", func(b *testing.B) {
			b.SetBytes(int64(len(bench.data)))
			var buf []byte
			for b.Loop() {
				buf, _ = c.AppendJSON(buf[:0])
			}
		})
		b.Run(bench.name+"/parse", func(b *testing.B) {
			b.SetBytes(int64(len(bench.data)))
			var got Chunk
			for b.Loop() {
				if got.ParseJSON(text) != nil {
					b.Fatal("not read")
				}
			}
		})
	}
}
