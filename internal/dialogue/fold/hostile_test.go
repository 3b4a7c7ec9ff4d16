package fold

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

var manyEntities = flag.Int("entities", 0, "how many entities a hostile agent makes in TestHostileAgents; default: enough to fill the memory some times")

// bound is what a fold may take.
const bound = 8 << 20

// long runs hostile agents at their full size, which takes minutes with the race
// detector.
var long = os.Getenv("TRL_LONG") == "1"

func heap() uint64 {
	runtime.GC()
	runtime.GC() // pools lose what they have in two steps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// hostile starts a fold that expects the worst.
func hostile(t *testing.T, memory int) *Fold {
	t.Helper()
	f := New(Config{Agent: api.AgentClaude, MemoryBytes: memory})
	if err := f.Apply(Record{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{NativeID: "n"}}); err != nil {
		t.Fatal(err)
	}
	f.Feed(Chunk{Data: []byte(`{"type":"control_response","response":{"subtype":"success","request_id":"trl-1-init","response":{}}}` + "\n")})
	f.Changes()
	return f
}

// TestALineWithoutEnd: the memory of the fold does not depend on the length of a
// line, and the next line is read.
func TestALineWithoutEnd(t *testing.T) {
	for _, c := range []struct{ name, before, block, after string }{
		{"a message", `{"type":"assistant","uuid":"u","message":{"id":"m","content":[{"type":"text","text":"`, strings.Repeat("0123456789abcdef", 1<<16), `"}]}}`},
		{"no JSON", "", strings.Repeat("0123456789abcdef", 1<<16), ""},
		{"a list", `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"x","content":"ok"}]},"tool_use_result":{"patch":[0`, strings.Repeat(`,"0123456789"`, 1<<16), `]}}`},
		{"nothing closed", ``, strings.Repeat(`[{"a":`, 1<<17), ``},
		{"no newline in garbage", `{"type":`, strings.Repeat(`\"`, 1<<19), ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			size := 64 << 20
			switch {
			case !long:
				size = 8 << 20
			case c.name == "a message" || c.name == "no JSON":
				size = 1 << 30
			}
			f := hostile(t, 0)
			before := heap()
			block := []byte(c.block)
			whole := 0
			feed := func(b []byte) {
				for len(b) > 0 {
					n := min(len(b), 64<<10)
					f.Feed(Chunk{Offset: f.Offset(), Data: b[:n]})
					whole += n
					b = b[n:]
				}
			}
			feed([]byte(c.before))
			most := uint64(0)
			for i := 0; whole < size; i++ {
				feed(block)
				if i%64 == 1 {
					most = max(most, heap()-min(before, heap()))
				}
			}
			if n := len(f.Checkpoint()); n > bound {
				t.Errorf("a checkpoint of %d bytes", n)
			}
			feed([]byte(c.after + "\n"))
			feed([]byte(`{"type":"result","subtype":"success"}` + "\n"))
			f.Changes()
			most = max(most, heap()-min(before, heap()))
			if most > bound {
				t.Errorf("the fold takes %d bytes", most)
			}
			found := false
			for _, p := range f.Entities() {
				e := p.Entity
				found = found || e.Code == api.DialogueGarbage && e.Bytes >= int64(size) || e.Type == api.EntityMessage && e.Cut["text"] >= int64(size) || e.Type == api.EntityToolCall && e.Output == "ok" && e.Raw.Bytes >= int64(size)
			}
			if !found {
				t.Errorf("nothing tells of the line: %s", asJSON(t, f.Entities()))
			}
			if got, _ := f.Entity("t1"); got.Status != "done" && f.turns < 1 {
				t.Error("the next line is not read")
			}
		})
	}
}

// TestHostileAgents: whatever an agent makes without end, the fold stays small, and
// nothing of it is lost to a client that takes up all changes.
func TestHostileAgents(t *testing.T) {
	n, volume, memory := *manyEntities, 1<<62, 0
	if n == 0 {
		if n, volume = 20_000, 32<<20; !long {
			n, volume, memory = 800, 2<<20, 256<<10 // less is full sooner
		}
	}
	huge := strings.Repeat("x", 60<<10)
	for _, c := range []struct {
		name string
		line func(i int) string
	}{
		{"calls", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m%d","content":[{"type":"tool_use","id":"c%d","name":"Bash","input":{"command":"ls"}}]}}`, i, i)
		}},
		{"large calls", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m%d","content":[{"type":"tool_use","id":"c%d","name":"Edit","input":{"file_path":"/x","old_string":%q,"new_string":%q}}]}}`, i, i, huge[:9000], huge[:9000])
		}},
		{"ids that come back", func(i int) string {
			return fmt.Sprintf(`{"type":%q,"message":{"id":"m%d","content":[{"type":%q,"id":"c%d","tool_use_id":"c%d","name":"Bash","input":{}}]},"parent_tool_use_id":"c%d"}`,
				[]string{"assistant", "user"}[i%2], i%7, []string{"tool_use", "tool_result"}[i%2], i%5, i%3, i%4)
		}},
		{"calls in calls", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c%d","name":"Agent","input":{}}]},"parent_tool_use_id":"c%d"}`, i, i-1)
		}},
		{"unknown parents", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m%d","content":[{"type":"text","text":%q}]},"parent_tool_use_id":"p%d"}`, i, huge[:i%5000], i)
		}},
		{"parents in a circle", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m%d","content":[{"type":"tool_use","id":"c%d","name":"Agent","input":{}}]},"parent_tool_use_id":"c%d"}`, i, i, i^1)
		}},
		{"questions", func(i int) string {
			return fmt.Sprintf(`{"type":"control_request","request_id":"r%d","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"c%d","input":{"command":%q},"permission_suggestions":[{"type":%q},{"type":"x"}]}}`, i, i, huge[:i%20000], huge[:i%9000])
		}},
		{"requests that are not known", func(i int) string {
			return fmt.Sprintf(`{"type":"control_request","request_id":"r%d","request":{"subtype":"s%d"}}`, i, i)
		}},
		{"streams", func(i int) string {
			if i%50 == 0 {
				return fmt.Sprintf(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"%s%d"}},"parent_tool_use_id":null}`, huge, i)
			}
			return fmt.Sprintf(`{"type":"stream_event","event":{"type":"content_block_start","index":%d,"content_block":{"type":"text"}}}`, i)
		}},
		{"a text without end", func(i int) string {
			switch i {
			case 0:
				return `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}}}`
			case 1:
				return `{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text"}}}`
			}
			return fmt.Sprintf(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}}`, huge[:1000])
		}},
		{"tasks", func(i int) string {
			return fmt.Sprintf(`{"type":"system","subtype":"task_started","task_id":"%s%d","tool_use_id":"%s%d","is_backgrounded":true,"task_type":"local_agent"}`, huge[:i%9000], i, huge[:i%9000], i)
		}},
		{"turns", func(int) string { return `{"type":"result"}` }},
		{"errors", func(i int) string { return fmt.Sprintf(`{"type":"result","is_error":true,"result":%q}`, huge) }},
		{"unknown lines", func(i int) string { return fmt.Sprintf(`{"type":"t%d"}`, i) }},
		{"garbage", func(i int) string { return []string{"garbage", `{"type":"keep_alive"}`}[i%2] }},
		{"huge names", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","session_id":"%[1]s%[2]d","uuid":"%[1]s%[2]d","message":{"id":"%[1]s%[2]d","content":[{"type":"tool_use","id":"%[1]s%[2]d","name":"%[1]s%[2]d","input":{"%[1]s":"%[1]s"}}]}}`, huge[:9000], i)
		}},
		{"denials", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c%d","name":"B","input":{}}]}}`+"\n"+`{"type":"system","subtype":"permission_denied","tool_use_id":"c%d"}`, i, i)
		}},
		{"plans", func(i int) string {
			return fmt.Sprintf(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c%d","name":"TodoWrite","input":{"todos":[%s{}]}}]}}`, i, strings.Repeat(`{"content":"x"},`, 2000))
		}},
		{"messages of others", func(i int) string {
			return fmt.Sprintf(`{"type":"user","isReplay":true,"uuid":"u%d","message":{"content":%q}}`, i, huge[:i%3000])
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hostile(t, memory)
			before := heap()
			most := uint64(0)
			last := Position{}
			for i := 0; i < n && f.Offset() < int64(volume); i++ {
				f.Feed(Chunk{Offset: f.Offset(), Data: []byte(c.line(i) + "\n")})
				for _, ch := range f.Changes() {
					if ch.At.Compare(last) <= 0 {
						t.Fatalf("%v after %v", ch.At, last)
					}
					last = ch.At
				}
				if i%(n/4) == n/4-1 {
					most = max(most, heap()-min(before, heap()))
					auditFold(t, f)
				}
			}
			most = max(most, heap()-min(before, heap()))
			auditFold(t, f)
			data := f.Checkpoint()
			if g, err := Restore(f.cfg, data); err != nil || !bytes.Equal(g.Checkpoint(), data) {
				t.Errorf("a checkpoint of %d bytes is not the same again: %v", len(data), err)
			}
			if most > bound || len(data) > bound {
				t.Errorf("the fold takes %d bytes, its checkpoint %d", most, len(data))
			}
			if testing.Verbose() {
				t.Logf("%d KiB, checkpoint %d KiB, %d entities", most>>10, len(data)>>10, len(f.entities))
			}
			if err := f.Apply(Record{Kind: RecordExit, Exit: &Exit{}}); err != nil {
				t.Fatal(err)
			}
			auditFold(t, f)
		})
	}
}

// TestWrongTypes replaces values in real lines by values of other types.
func TestWrongTypes(t *testing.T) {
	rnd := random(t)
	values := []any{nil, true, 7.0, -1e300, "", "x", strings.Repeat("y", 300), []any{}, []any{nil, 7.0, map[string]any{"type": "text"}}, map[string]any{}, map[string]any{"id": 7.0}}
	var mutate func(v any) any
	mutate = func(v any) any {
		if rnd.IntN(12) == 0 {
			return values[rnd.IntN(len(values))]
		}
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = mutate(v[k])
			}
		case []any:
			for i := range v {
				v[i] = mutate(v[i])
			}
		}
		return v
	}
	times := 3
	if !long {
		times = 1
	}
	for _, r := range recordings(t, "claude") {
		if len(r.stdout) > 512<<10 {
			continue
		}
		for range times {
			f := hostile(t, 0)
			f.audit = func() { auditFold(t, f) }
			for _, line := range bytes.Split(r.stdout, []byte("\n")) {
				var v any
				if len(line) > 16<<10 || json.Unmarshal(line, &v) != nil {
					continue
				}
				line, err := json.Marshal(mutate(v))
				if err != nil {
					t.Fatal(err)
				}
				if rnd.IntN(50) == 0 && len(line) > 2 {
					line[rnd.IntN(len(line))] ^= byte(1 << rnd.IntN(8))
					line = bytes.ReplaceAll(line, []byte("\n"), nil)
				}
				f.Feed(Chunk{Offset: f.Offset(), Data: append(line, '\n')})
				f.Changes()
				if rnd.IntN(40) == 0 {
					answerAll(f, rnd)
				}
			}
			if _, err := Restore(f.cfg, f.Checkpoint()); err != nil {
				t.Fatal(err)
			}
			if err := f.Apply(Record{Kind: RecordExit, Exit: &Exit{}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answerAll answers what is open; some answers don't fit.
func answerAll(f *Fold, rnd *rand.Rand) {
	for _, id := range append([]string(nil), f.asking...) {
		one := rnd.IntN(3)
		_ = f.Apply(Record{Kind: RecordAnswer, ID: id, Answer: &api.DialogueAnswer{
			Option: []string{"allow", "deny", "allow_always", ""}[rnd.IntN(4)], Suggestion: &one, Values: map[string]json.RawMessage{"q1": json.RawMessage(strconv.Itoa(one))},
		}})
	}
}
