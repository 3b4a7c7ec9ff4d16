package fold

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// rpcHello are the lines of an agent up to its first turn.
var rpcHello = map[api.Agent][]string{
	api.AgentCodex: {`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"th"},"model":"m"}}`, `{"id":3,"result":{"turn":{"id":"tu"}}}`, `{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`},
	api.AgentACP:   {`{"id":1,"result":{"protocolVersion":1}}`, `{"id":2,"result":{"sessionId":"s"}}`},
}

func hostileRPC(t *testing.T, agent api.Agent) *Fold {
	t.Helper()
	f := New(Config{Agent: agent})
	for _, r := range []Record{{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{Cwd: "/"}}, {Kind: RecordMessage, ID: "u:1", Text: "hello"}} {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range rpcHello[agent] {
		f.Feed(Chunk{Offset: f.Offset(), Data: []byte(line + "\n")})
	}
	f.Changes()
	return f
}

// TestHostileRPCAgents: whatever an agent makes without end, the fold stays small.
func TestHostileRPCAgents(t *testing.T) {
	n, volume := 20_000, 32<<20
	if !long {
		n, volume = 4_000, 6<<20
	}
	huge := strings.Repeat("x", 60<<10)
	item := func(what, item string) string {
		return `{"method":"item/` + what + `","params":{"threadId":"th","turnId":"tu","item":` + item + `}}`
	}
	for _, c := range []struct {
		name  string
		agent api.Agent
		line  func(i int) string
	}{
		{"commands", api.AgentCodex, func(i int) string {
			return item("started", fmt.Sprintf(`{"type":"commandExecution","id":"c%d","command":%q}`, i, huge[:i%9000]))
		}},
		{"huge names", api.AgentCodex, func(i int) string {
			return item("started", fmt.Sprintf(`{"type":"mcpToolCall","id":"%[1]s%[2]d","tool":"%[1]s%[2]d","arguments":{"%[1]s":"%[1]s"}}`, huge[:9000], i))
		}},
		{"ids that come back", api.AgentCodex, func(i int) string {
			return item([]string{"started", "completed"}[i%2], fmt.Sprintf(`{"type":%q,"id":"c%d","command":"ls","text":"x"}`, []string{"commandExecution", "agentMessage", "reasoning", "fileChange"}[i%4], i%5))
		}},
		{"agents", api.AgentCodex, func(i int) string {
			return item("completed", fmt.Sprintf(`{"type":"collabAgentToolCall","id":"c%d","tool":"spawnAgent","status":"completed","receiverThreadIds":["%s%d"]}`, i, huge[:i%9000], i))
		}},
		{"activities", api.AgentCodex, func(i int) string {
			return item("completed", fmt.Sprintf(`{"type":"subAgentActivity","id":"c%d","kind":"started","agentThreadId":"%d"}`, i, i))
		}},
		{"agents in agents", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"method":"item/completed","params":{"threadId":"t%d","turnId":"tu","item":{"type":"collabAgentToolCall","id":"c%d","tool":"spawnAgent","status":"completed","receiverThreadIds":["t%d"]}}}`, i-1, i, i)
		}},
		{"unknown threads", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"method":"item/completed","params":{"threadId":"%s%d","turnId":"tu","item":{"type":"agentMessage","id":"m","text":%q}}}`, huge[:i%3000], i, huge[:i%5000])
		}},
		{"tokens of many threads", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"method":"thread/tokenUsage/updated","params":{"threadId":"%s%d","tokenUsage":{"total":{"inputTokens":%d}}}}`, huge[:i%9000], i, i)
		}},
		{"questions", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"id":%d,"method":"item/commandExecution/requestApproval","params":{"threadId":"th","turnId":"tu","itemId":"c%d","command":%q,"proposedExecpolicyAmendment":[%q]}}`, i, i, huge[:i%20000], huge[:i%9000])
		}},
		{"ids of requests", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"id":"%s%d","method":"item/fileChange/requestApproval","params":{"threadId":"th"}}`, huge[:i%2000], i)
		}},
		{"permissions", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"id":%d,"method":"item/permissions/requestApproval","params":{"threadId":"th","permissions":{"fileSystem":{"write":[%q]}}}}`, i, huge[:i%20000])
		}},
		{"output without end", api.AgentCodex, func(int) string {
			return fmt.Sprintf(`{"method":"item/commandExecution/outputDelta","params":{"threadId":"th","turnId":"tu","itemId":"c","delta":%q}}`, huge[:1000])
		}},
		{"turns", api.AgentCodex, func(i int) string {
			return fmt.Sprintf(`{"method":"turn/%s","params":{"threadId":"th","turn":{"id":"t%d","status":"completed"}}}`, []string{"started", "completed"}[i%2], i/2)
		}},
		{"calls", api.AgentACP, func(i int) string {
			return updated("tool_call", fmt.Sprintf(`"toolCallId":"c%d","title":%q,"kind":"execute"`, i, huge[:i%9000]))
		}},
		{"calls that come back", api.AgentACP, func(i int) string {
			return updated("tool_call", fmt.Sprintf(`"toolCallId":"c%d","status":%q`, i%7, []string{"pending", "completed"}[i%2]))
		}},
		{"pictures", api.AgentACP, func(int) string {
			return updated("agent_message_chunk", fmt.Sprintf(`"content":{"type":"image","data":%q}`, huge))
		}},
		{"terminals", api.AgentACP, func(i int) string {
			return updated("tool_call", fmt.Sprintf(`"toolCallId":"c","content":[{"type":"terminal","terminalId":"%s%d"}]`, huge[:i%9000], i))
		}},
		{"permissions of ACP", api.AgentACP, func(i int) string {
			return fmt.Sprintf(`{"id":%d,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c%d","title":%q},"options":[{"optionId":%q,"kind":"allow_once"}]}}`, i, i, huge[:i%9000], huge[:i%9000])
		}},
		{"forms", api.AgentACP, func(i int) string {
			return fmt.Sprintf(`{"id":%d,"method":"elicitation/create","params":{"message":"x","requestedSchema":{"properties":{%s"z":{"type":"string"}}}}}`, i, strings.Repeat(`"y":{"enum":["a","b"]},`, 300))
		}},
		{"plans", api.AgentACP, func(i int) string {
			return updated("plan_update", fmt.Sprintf(`"plan":{"planId":"p%d","entries":[%s{}]}`, i, strings.Repeat(`{"content":"x"},`, 2000)))
		}},
		{"unknown updates", api.AgentACP, func(i int) string { return updated(fmt.Sprintf("%s%d", huge[:i%9000], i), "") }},
		{"outside of a turn", api.AgentACP, func(i int) string {
			if i == 0 {
				return `{"id":3,"result":{"stopReason":"end_turn"}}`
			}
			return updated("tool_call", fmt.Sprintf(`"toolCallId":"c%d"`, i))
		}},
	} {
		t.Run(string(c.agent)+"/"+c.name, func(t *testing.T) {
			f := hostileRPC(t, c.agent)
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

// TestWrongTypesOfRPC replaces values in real lines by values of other types.
func TestWrongTypesOfRPC(t *testing.T) {
	rnd := random(t)
	values := []any{nil, true, 7.0, -1e300, "", "x", strings.Repeat("y", 300), []any{}, []any{nil, 7.0, map[string]any{"type": "text"}}, map[string]any{}, map[string]any{"id": 7.0}}
	var mutate func(v any) any
	mutate = func(v any) any {
		if rnd.IntN(15) == 0 {
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
	for _, agent := range rpcAgents {
		for _, r := range recordings(t, agent.name) {
			for range times {
				f := New(Config{Agent: agent.agent})
				f.audit = func() { auditFold(t, f) }
				for _, rec := range []Record{{Kind: RecordRun, Run: 1, At: testTime, Start: &Start{Cwd: "/"}}, {Kind: RecordMessage, ID: "u:u-1", Text: "hello"}} {
					if err := f.Apply(rec); err != nil {
						t.Fatal(err)
					}
				}
				for i, line := range bytes.Split(r.stdout, []byte("\n")) {
					var v any
					if len(line) > 16<<10 || json.Unmarshal(line, &v) != nil {
						continue
					}
					if i > 8 {
						var err error
						if line, err = json.Marshal(mutate(v)); err != nil {
							t.Fatal(err)
						}
					}
					f.Feed(Chunk{Offset: f.Offset(), Data: append(bytes.Clone(line), '\n')})
					f.Changes()
					if rnd.IntN(20) == 0 {
						answerAny(f, rnd)
					}
				}
				lines, err := f.Lines()
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range lines {
					if !json.Valid(l.Data) {
						t.Fatalf("told %q", l.Data)
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
}

// answerAny answers what is open by one of its options, or interrupts the turn.
func answerAny(f *Fold, rnd *rand.Rand) {
	if rnd.IntN(3) == 0 {
		_ = f.Apply(Record{Kind: RecordInterrupt})
		return
	}
	for _, id := range append([]string(nil), f.asking...) {
		if q, ok := f.Entity(id); ok && len(q.Options) > 0 {
			one := rnd.IntN(3)
			a := &api.DialogueAnswer{Option: q.Options[rnd.IntN(len(q.Options))].ID, Interrupt: one == 0}
			if one == 1 {
				a.Suggestion = &one
			}
			_ = f.Apply(Record{Kind: RecordAnswer, ID: id, Answer: a})
		}
	}
}
