package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 3*readBufferBytes)
	for name, tc := range map[string]struct {
		in   string
		max  int
		want []string // "!" marks the start of a line that was too long
	}{
		"lines":            {"a\nbc\n\nd\n", 10, []string{"a", "bc", "", "d"}},
		"carriage returns": {"a\r\n\r\nb\rc\r\n", 10, []string{"a", "", "b\rc"}},
		"cut off":          {"a\nrm -rf /tmp/x", 100, []string{"a"}},
		"at the limit":     {"1234567890\n1234567890\r\nx\n", 10, []string{"1234567890", "1234567890", "x"}},
		"over the limit":   {"12345678901\nx\n", 10, []string{"!12345678901\n", "x"}},
		"many buffers":     {long + "\nx\n", len(long), []string{long, "x"}},
		"too many buffers": {long + "\nx\n", len(long) - 1, []string{"!" + long[:idPrefixBytes], "x"}},
		"too long and cut": {long, 10, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, in := range map[string]io.Reader{
				"at once":     strings.NewReader(tc.in),
				"byte a byte": iotest.OneByteReader(strings.NewReader(tc.in)),
			} {
				r := newLineReader(in, tc.max)
				var got []string
				for {
					line, err := r.next(nil)
					if errors.Is(err, errTooLong) {
						got = append(got, "!"+string(line))
						continue
					}
					if err != nil {
						if !errors.Is(err, io.EOF) {
							t.Fatal(err)
						}
						break
					}
					got = append(got, string(line))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: %s", kind, diff)
				}
			}
		})
	}
}

func TestRequestLines(t *testing.T) {
	_, path := start(t, Config{}, func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: p.Command}, nil
	})
	for name, tc := range map[string]struct {
		line string
		id   string
		code api.Code // "": a result
	}{
		"number":              {`{"jsonrpc":"2.0","id":1,"method":"system.ping"}`, `1`, ""},
		"id to the byte":      {`{"jsonrpc":"2.0","id":1.50e+01,"method":"system.ping"}`, `1.50e+01`, ""},
		"string id":           {`{"jsonrpc":"2.0","id":"\u0061<\/","method":"system.ping"}`, `"\u0061<\/"`, ""},
		"null id":             {`{"jsonrpc":"2.0","id":null,"method":"system.ping"}`, `null`, ""},
		"any order, spaces":   {"  {\t\"params\" : {} , \"method\":\"system.ping\", \"id\" : 7 ,\"jsonrpc\":\"2.0\" } ", `7`, ""},
		"carriage return":     {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"system.ping\"}\r", `1`, ""},
		"null params":         {`{"jsonrpc":"2.0","id":1,"method":"system.ping","params":null}`, `1`, ""},
		"escaped method":      {`{"jsonrpc":"2.0","id":1,"method":"system\u002eping"}`, `1`, ""},
		"other members":       {`{"jsonrpc":"2.0","id":1,"method":"system.ping","trace":{"a":[1]}}`, `1`, ""},
		"unknown method":      {`{"jsonrpc":"2.0","id":1,"method":"system.pin"}`, `1`, api.CodeMethodNotFound},
		"unknown param":       {`{"jsonrpc":"2.0","id":1,"method":"system.ping","params":{"a":1}}`, `1`, api.CodeInvalidParams},
		"params by position":  {`{"jsonrpc":"2.0","id":1,"method":"system.ping","params":[]}`, `1`, api.CodeInvalidParams},
		"panic":               {`{"jsonrpc":"2.0","id":1,"method":"exec.info","params":{"exec_id":"e"}}`, `1`, api.CodeInternal},
		"batch":               {`[{"jsonrpc":"2.0","id":1,"method":"system.ping"}]`, `null`, api.CodeInvalidRequest},
		"empty batch":         {`[]`, `null`, api.CodeInvalidRequest},
		"not an object":       {`"system.ping"`, `null`, api.CodeInvalidRequest},
		"no version":          {`{"id":1,"method":"system.ping"}`, `1`, api.CodeInvalidRequest},
		"wrong version":       {`{"jsonrpc":"1.0","id":1,"method":"system.ping"}`, `1`, api.CodeInvalidRequest},
		"numeric version":     {`{"jsonrpc":2.0,"id":1,"method":"system.ping"}`, `1`, api.CodeInvalidRequest},
		"no method":           {`{"jsonrpc":"2.0","id":1}`, `1`, api.CodeInvalidRequest},
		"numeric method":      {`{"jsonrpc":"2.0","id":1,"method":5}`, `1`, api.CodeInvalidRequest},
		"half a character":    {`{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, `1`, api.CodeInvalidRequest},
		"no method, no id":    {`{"jsonrpc":"2.0"}`, `null`, api.CodeInvalidRequest},
		"object id":           {`{"jsonrpc":"2.0","id":{},"method":"system.ping"}`, `null`, api.CodeInvalidRequest},
		"bool id":             {`{"jsonrpc":"2.0","id":true,"method":"system.ping"}`, `null`, api.CodeInvalidRequest},
		"other case":          {`{"JSONRPC":"2.0","id":1,"method":"system.ping"}`, `1`, api.CodeInvalidRequest},
		"cut":                 {`{"jsonrpc":"2.0","id":1,"method":"system.ping"`, `null`, api.CodeParseError},
		"two on a line":       {`{"jsonrpc":"2.0","id":1,"method":"system.ping"}{}`, `null`, api.CodeParseError},
		"not JSON":            {`GET / HTTP/1.1`, `null`, api.CodeParseError},
		"not UTF-8":           {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `null`, api.CodeParseError},
		"zeros":               {"\x00\x00", `null`, api.CodeParseError},
		"byte order mark":     {"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`, `null`, api.CodeParseError},
		"deep":                {strings.Repeat("[", 10_000), `null`, api.CodeParseError},
		"deep in params":      {`{"jsonrpc":"2.0","id":1,"method":"system.ping","params":` + strings.Repeat(`{"a":`, 10_000), `null`, api.CodeParseError},
		"output is not a web": {`{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"session_id":"s","command":"<&>"}}`, `1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, path)
			p.send("\n \r\n" + tc.line + "\n") // blank lines are ignored
			line := p.line()
			got := decodeReply(t, line)
			var code api.Code
			if got.Error != nil {
				code = got.Error.Code
				if got.Error.Hint == "" {
					t.Errorf("%v has no hint", got.Error)
				}
			}
			if string(got.ID) != tc.id || code != tc.code {
				t.Errorf("answer %s: id %s code %q, want %s %q", line, got.ID, code, tc.id, tc.code)
			}
			if strings.Contains(tc.line, "<&>") && !strings.Contains(line, "<&>") {
				t.Errorf("answer %s escapes for HTML", line)
			}
			p.ping()
		})
	}
}

func TestTooLongLineIsAnsweredAndSkipped(t *testing.T) {
	const limit = 32 << 10
	_, path := start(t, Config{MaxRequestBytes: limit}, nil)
	fill := strings.Repeat("x", limit)
	for name, tc := range map[string]struct{ line, id string }{
		"id first":       {`{"jsonrpc":"2.0","id":"a","method":"exec.run","params":{"command":"` + fill + `"}}`, `"a"`},
		"id last":        {`{"jsonrpc":"2.0","method":"exec.run","params":{"command":"` + fill + `"},"id":1}`, `null`},
		"far too long":   {`{"id":2,` + strings.Repeat(fill, 300) + `}`, `2`},
		"not an object":  {`[1,2,` + fill, `null`},
		"object for id":  {`{"id":{},"x":"` + fill, `null`},
		"id is too long": {`{"id":"` + fill + `"}`, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, path)
			p.send(tc.line + "\n")
			got := p.reply()
			if string(got.ID) != tc.id || !api.IsCode(got.Error, api.CodeInvalidRequest) {
				t.Errorf("answer id %s, %v", got.ID, got.Error)
			}
			if diff := cmp.Diff(map[string]any{"max_request_bytes": float64(limit)}, got.Error.Details); diff != "" {
				t.Error(diff)
			}
			p.ping()
		})
	}
}

func TestAnswersThatCannotBeEncoded(t *testing.T) {
	var p answers
	a := p.get()
	for name, line := range map[string][]byte{
		"result": bytes.Clone(a.encode([]byte("1"), map[string]any{"x": math.NaN()}, nil)),
		"detail": bytes.Clone(a.encode([]byte("1"), nil, api.Errorf(api.CodeInternal, "x").WithHint("y").With("n", math.Inf(1)))),
	} {
		got := decodeReply(t, string(line))
		if !api.IsCode(got.Error, api.CodeInternal) || !bytes.HasSuffix(line, []byte("}\n")) || bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// FuzzLine sends arbitrary bytes before a ping: the ping is always answered,
// and every line that comes back is an answer.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", "{}", "[]", `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`, `{"jsonrpc":"2.0","method":"system.ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"session_id":"s","command":"x"}}`, "\xff\xfe\x00", `{"id":"` + strings.Repeat("x", 600),
		"{\r\n}\r\n", `{"jsonrpc":"2.0","id":{"a":1},"method":"x"}`, strings.Repeat("[", 600), `{"id":1,"id":[],"id":null}`,
	} {
		f.Add([]byte(seed))
	}
	table := tableWith(func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		return &api.ExecResult{Stdout: p.Command}, nil
	})
	f.Fuzz(func(t *testing.T, garbage []byte) {
		var out bytes.Buffer
		s := NewServer(Config{Handler: table, MaxRequestBytes: 512})
		in := append(bytes.Clone(garbage), "\n"+`{"jsonrpc":"2.0","id":"the ping at the end","method":"system.ping"}`+"\n"...)
		if err := s.ServeStdio(t.Context(), bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		answered := false
		lines := bytes.SplitAfter(out.Bytes(), []byte("\n"))
		if len(lines)-1 > bytes.Count(in, []byte("\n")) {
			t.Errorf("%d answers to %d lines", len(lines)-1, bytes.Count(in, []byte("\n")))
		}
		for _, line := range lines[:len(lines)-1] {
			r := decodeReply(t, string(line))
			var id string
			if json.Unmarshal(r.ID, &id) == nil && id == "the ping at the end" && r.Error == nil {
				answered = true
			}
		}
		if !answered {
			t.Errorf("the ping was not answered: %q", &out)
		}
	})
}
