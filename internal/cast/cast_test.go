package cast

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

func chunk(kind api.ChunkType, at int64, data string) api.Chunk {
	c := api.Chunk{Type: kind, AtMS: &at}
	c.Data, c.Encoding = api.EncodeBytes([]byte(data))
	return c
}

func recording(t testing.TB, tty *api.TTYSize, end *api.ExecResult, chunks ...api.Chunk) string {
	t.Helper()
	var b strings.Builder
	w, err := NewWriter(&b, &api.ExecResult{TTY: tty, StartedAt: api.Time{Time: time.Unix(1700000000, 999)}})
	for i := 0; err == nil && i < len(chunks); i++ {
		err = w.Chunk(chunks[i])
	}
	if err == nil && end != nil {
		err = w.End(end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRecording(t *testing.T) {
	code := 130
	ended := &api.ExecResult{ExitCode: &code, DurationMS: 75_250}
	const onTTY = `{"version":3,"term":{"cols":132,"rows":43,"type":"xterm-256color"},"timestamp":1700000000}` + "\n"
	const onPipes = `{"version":3,"term":{"cols":80,"rows":24},"timestamp":1700000000}` + "\n"
	tty := &api.TTYSize{Rows: 43, Cols: 132}
	at := func(n int64) *int64 { return &n }
	for _, test := range []struct {
		name   string
		tty    *api.TTYSize
		end    *api.ExecResult
		chunks []api.Chunk
		want   string
	}{
		{"a command that runs and says nothing", nil, nil, nil, onPipes},
		{"a terminal", tty, ended, []api.Chunk{
			chunk(api.ChunkTTY, 5, "\x1b[1mone\n\r\n"),
			{Type: api.ChunkResize, AtMS: at(1200), TTY: &api.TTYSize{Rows: 24, Cols: 80}},
			chunk(api.ChunkTTY, 1200, "<two>"),
			{Type: api.ChunkGap, Bytes: 7},
			chunk(api.ChunkTTY, 61_200, "end"),
		}, onTTY + `[0.005,"o","\u001b[1mone\n\r\n"]
[1.195,"r","80x24"]
[0.000,"o","<two>"]
[0.000,"m","7 bytes of output are missing here: dropped because of a quota or a full disk"]
[60.000,"o","end"]
[14.050,"x","130"]
`},
		{"pipes", nil, ended, []api.Chunk{
			chunk(api.ChunkStdout, 0, "a\nb\r\nc\r"), chunk(api.ChunkStderr, 0, "\n"), chunk(api.ChunkStdout, 0, "\n\n"),
		}, onPipes + `[0.000,"o","a\r\nb\r\nc\r"]
[0.000,"o","\r\n"]
[0.000,"o","\n\r\n"]
[75.250,"x","130"]
`},
		{"characters in pieces", nil, nil, []api.Chunk{
			chunk(api.ChunkStdout, 0, "a\xe2"), chunk(api.ChunkStderr, 10, "\xc3"), chunk(api.ChunkStdout, 20, "\x82"),
			chunk(api.ChunkStdout, 30, "\xac!"), chunk(api.ChunkStderr, 40, "\xa9"),
		}, onPipes + `[0.000,"o","a"]
[0.030,"o","€!"]
[0.010,"o","é"]
`},
		{"what is not text", nil, ended, []api.Chunk{
			chunk(api.ChunkStdout, 0, "\xff\xe2\x82x\xed\xa0\x80\x00"), chunk(api.ChunkStdout, 10, "\xf0\x9f"),
			{Type: api.ChunkGap, Bytes: 1},
			chunk(api.ChunkStdout, 20, "\x98\x80y\xc3"),
		}, onPipes + `[0.000,"o","��x���\u0000"]
[0.000,"o","�"]
[0.000,"m","1 bytes of output are missing here: dropped because of a quota or a full disk"]
[0.020,"o","��y"]
[0.000,"o","�"]
[75.230,"x","130"]
`},
		{"a clock that disagrees", nil, ended, []api.Chunk{chunk(api.ChunkStdout, 80_000, "a"), chunk(api.ChunkStdout, 5, "b")}, onPipes + `[80.000,"o","a"]
[0.000,"o","b"]
[0.000,"x","130"]
`},
		{"no status", nil, &api.ExecResult{}, []api.Chunk{{Type: "later"}, {Type: api.ChunkResize}}, onPipes},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, recording(t, test.tty, test.end, test.chunks...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// played returns the text of all output events.
func played(t testing.TB, recording string) string {
	t.Helper()
	var text strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(recording, "\n"), "\n") {
		if i == 0 {
			continue
		}
		var event [3]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if event[1] == "o" {
			text.WriteString(event[2].(string))
		}
	}
	return text.String()
}

// Whatever a command writes to its terminal, and however it is split into chunks, the
// recording shows the same screen.
func FuzzRecording(f *testing.F) {
	f.Add([]byte("one\r\n\x1b[31mtwo\xe2\x82\xac\xff\xe2\x82"), uint8(2))
	f.Add([]byte("\xf0\x9f\x98\x80\xed\xa0\x80\xc3("), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var chunks []api.Chunk
		for i, rest := 0, data; len(rest) > 0; i++ {
			n := min(len(rest), 1+int(step))
			chunks = append(chunks, chunk(api.ChunkTTY, int64(i), string(rest[:n])))
			rest = rest[n:]
		}
		got := played(t, recording(t, &api.TTYSize{Rows: 5, Cols: 20}, nil, chunks...))
		if !utf8.ValidString(got) {
			t.Errorf("%q is not valid UTF-8", got)
		}
		size := vt.Config{Rows: 5, Cols: 20}
		want, shown := vt.New(size), vt.New(size)
		_, _ = want.Write(data)
		_, _ = shown.Write([]byte(got))
		if a, b := want.ANSI(0), shown.ANSI(0); !bytes.Equal(a, b) {
			t.Errorf("%q shows\n%q, want\n%q", got, b, a)
		}
	})
}
