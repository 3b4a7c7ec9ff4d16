package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// TestExit: whatever is open is closed in one step, leaves first, and end is last.
func TestExit(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(
		w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"A","name":"Agent","input":{}}]}}`),
		w.event(`{"type":"assistant","parent_tool_use_id":"A","message":{"id":"m2","content":[{"type":"tool_use","id":"B","name":"Bash","input":{}}]}}`),
		w.event(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m3"}},"parent_tool_use_id":"A"}`),
		w.event(`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text"}},"parent_tool_use_id":"A"}`),
		w.event(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half"}},"parent_tool_use_id":"A"}`),
		strings.Replace(ask("Q", "Bash", `{}`, ""), "call-Q", "B", 1),
	)
	w.f.Feed(Chunk{Offset: w.f.Offset(), Stderr: true, Data: []byte("\x1b[31mpanic\x1b[0m\n")})
	w.f.Feed(Chunk{Offset: w.f.Offset(), Data: []byte(`{"type":"torn`)})
	w.log = nil
	code := 2
	w.apply(Record{Kind: RecordExit, Exit: &Exit{ExitCode: &code}})
	w.apply(Record{Kind: RecordEnd, Reason: api.DialogueFailed})
	var got []string
	for i, c := range w.log {
		e := c.Entity
		got = append(got, strings.Join([]string{string(e.Type), e.Status, e.State, e.Code, e.Reason}, " "))
		if c.Last != (i == len(w.log)-1) {
			t.Errorf("change %d: last is %v", i, c.Last)
		}
	}
	want := []string{
		"error   garbage ", "question  lost  ", "tool_call cut   agent_ended", "message    ", "tool_call cut   agent_ended", "turn cut   agent_ended", "error   unexpected_exit ",
		"state  ended  ", "end   unexpected_exit error",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, p := range w.f.Entities() {
		if e := p.Entity; e.Code == api.DialogueUnexpectedExit && e.Type == api.EntityError && (*e.ExitCode != 2 || e.Stderr != "\x1b[31mpanic\x1b[0m\n") {
			t.Errorf("the error is %s", asJSON(t, e))
		}
	}
}

// TestExits: those that are errors, and those that are not.
func TestExits(t *testing.T) {
	one := 1
	for _, c := range []struct {
		name string
		busy bool
		exit Exit
		want []string
	}{
		{"asked for", false, Exit{Expected: true}, []string{}},
		{"asked for, with a status", false, Exit{Expected: true, ExitCode: &one}, []string{}},
		{"asked for, at work", true, Exit{Expected: true}, []string{api.DialogueUnexpectedExit}},
		{"not asked for", false, Exit{ExitCode: new(int)}, []string{api.DialogueUnexpectedExit}},
		{"lost", true, Exit{Lost: "the host does not answer"}, []string{api.DialogueReconnectFailed}},
	} {
		w := newFlow(t, Config{})
		w.run(1, true)
		if c.busy {
			w.begin()
		}
		w.apply(Record{Kind: RecordExit, Exit: &c.exit})
		w.apply(Record{Kind: RecordEnd, Reason: api.DialogueFinished})
		if diff := cmp.Diff(c.want, w.faults()); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
	w := newFlow(t, Config{})
	w.run(1, false)
	w.f.Feed(Chunk{Stderr: true, Data: []byte("Error: session in use\n")})
	w.apply(Record{Kind: RecordExit, Exit: &Exit{ExitCode: &one}})
	if got := w.f.Summary(); got.Ready || got.Failed != "Error: session in use" {
		t.Errorf("failed: %q", got.Failed)
	}
}

// TestSettings: interrupt, model and mode, and what the agent makes of them.
func TestSettings(t *testing.T) {
	w := newFlow(t, Config{})
	if err := w.try(Record{Kind: RecordInterrupt}); err == nil {
		t.Error("no agent is there to be interrupted")
	}
	w.run(1, true)
	w.apply(Record{Kind: RecordInterrupt})
	if n := len(w.keys()); n > 0 {
		t.Error("there was nothing to stop")
	}
	w.begin()
	w.apply(Record{Kind: RecordInterrupt, By: "alice"})
	if got := w.written(); !strings.Contains(got, `"request":{"subtype":"interrupt"}`) {
		t.Error(got)
	}
	w.apply(Record{Kind: RecordSet, Model: "big", Mode: "plan"})
	if n := len(w.keys()); n != 2 {
		t.Errorf("%d lines", n)
	}
	record := w.f.record
	w.written()
	if got := w.f.Summary(); got.Model != "m" || got.Mode != "default" {
		t.Errorf("before the agent has agreed: %s, %s", got.Model, got.Mode)
	}
	w.says(
		fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":"trl-1-%d-model","response":{}}}`, record),
		fmt.Sprintf(`{"type":"control_response","response":{"subtype":"error","request_id":"trl-1-%d-mode","error":"no such mode"}}`, record),
	)
	if got := w.f.Summary(); got.Model != "big" || got.Mode != "default" {
		t.Errorf("then: %s, %s", got.Model, got.Mode)
	}
	if diff := cmp.Diff([]string{api.DialogueAgentError}, w.faults()); diff != "" {
		t.Error(diff)
	}
	w.says(w.event(`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}`))
	if got := w.get("t1"); got.Status != "interrupted" {
		t.Errorf("the turn is %s", got.Status)
	}
}

// TestIdleWithoutStates: an agent that does not say so is idle when no turn and no
// background agent is left.
func TestIdleWithoutStates(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.state(api.DialogueIdle)
	w.says(w.event(`{"type":"system","subtype":"init"}`))
	w.state(api.DialogueRunning)
	for _, kind := range []string{"local_agent", "local_bash"} {
		w.says(
			w.event(`{"type":"assistant","message":{"id":"m-%[1]s","content":[{"type":"tool_use","id":"%[1]s","name":"Agent","input":{}}]}}`, kind),
			w.event(`{"type":"system","subtype":"task_started","task_id":"t-%[1]s","tool_use_id":"%[1]s","is_backgrounded":true,"task_type":"%[1]s"}`, kind),
			w.event(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"%[1]s","content":"launched"}]},"tool_use_result":{"isAsync":true,"agentId":"t-%[1]s"}}`, kind),
		)
	}
	w.says(w.result())
	w.state(api.DialogueRunning)
	if got := w.f.Summary().Background; got != 2 {
		t.Errorf("%d in the background", got)
	}
	w.says(w.event(`{"type":"system","subtype":"task_updated","task_id":"t-local_agent","patch":{"status":"completed"}}`))
	w.state(api.DialogueIdle) // a shell in the background never keeps it from being idle
	if got := w.f.Summary().Background; got != 1 {
		t.Errorf("%d in the background", got)
	}
	if got := w.get("c:local_bash"); got.Status != "running" {
		t.Errorf("the shell is %s", got.Status)
	}
	w.says(w.event(`{"type":"system","subtype":"task_notification","task_id":"t-local_bash","status":"killed","summary":"stopped"}`))
	if got := w.get("c:local_bash"); got.Status != "cut" || got.Output != "stopped" {
		t.Errorf("the shell is %s: %s", got.Status, got.Output)
	}
}

// TestOrphans: what comes before its parent waits for it.
func TestOrphans(t *testing.T) {
	child := func(w *flow, id, parent string) string {
		return w.event(`{"type":"assistant","parent_tool_use_id":%q,"message":{"id":"m-%s","content":[{"type":"tool_use","id":%q,"name":"Agent","input":{}}]}}`, parent, id, id)
	}
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(child(w, "C", "B"), child(w, "B", "A"))
	if _, ok := w.f.Entity("c:B"); ok {
		t.Fatal("it does not wait")
	}
	w.restore()
	w.says(w.event(`{"type":"assistant","message":{"id":"m-A","content":[{"type":"tool_use","id":"A","name":"Agent","input":{}}]}}`))
	if b, c := w.get("c:B"), w.get("c:C"); b.Parent != "c:A" || c.Parent != "c:B" || b.Orphan || c.Orphan {
		t.Errorf("parents %q and %q", b.Parent, c.Parent)
	}
	// In a circle, and below itself.
	w.says(child(w, "D", "E"), child(w, "E", "D"), child(w, "F", "F"))
	w.says(w.result())
	d, e, f := w.get("c:D"), w.get("c:E"), w.get("c:F")
	if !d.Orphan || d.Parent != "" || e.Parent != "c:D" || !f.Orphan {
		t.Errorf("%s\n%s\n%s", asJSON(t, d), asJSON(t, e), asJSON(t, f))
	}
	// Too many of them.
	w.begin()
	for i := range maxWaiting + 1 {
		w.says(child(w, fmt.Sprint("G", i), "nowhere"))
	}
	if got := w.get("c:G0"); !got.Orphan {
		t.Error("it waits for ever")
	}
	// Under something closed.
	w.says(w.event(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"G0","content":""}]}}`), child(w, "H", "G0"))
	if got := w.get("c:H"); !got.Orphan || got.Status != "running" {
		t.Errorf("%s", asJSON(t, got))
	}
}

// TestSettledWithItsParent: what is open below a call ends with it.
func TestSettledWithItsParent(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(
		w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"A","name":"Agent","input":{}}]}}`),
		w.event(`{"type":"assistant","parent_tool_use_id":"A","message":{"id":"m2","content":[{"type":"tool_use","id":"B","name":"Bash","input":{}}]}}`),
		strings.Replace(ask("Q", "Bash", `{}`, ""), "call-Q", "B", 1),
		w.event(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"A","content":"done"}]}}`),
	)
	if a, b, q := w.get("c:A"), w.get("c:B"), w.get("q:1:Q"); a.Status != "done" || b.Status != "cut" || b.Reason != "parent_ended" || q.State != "cancelled" {
		t.Errorf("%s %s %s", a.Status, b.Status, q.State)
	}
	w.state(api.DialogueRunning)
}

func TestRetryingIsCleared(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	for i := range 3 {
		w.says(w.event(`{"type":"system","subtype":"api_retry","attempt":%d,"max_retries":3,"error_status":529}`, i+1))
	}
	if !w.f.Summary().Retrying || len(w.faults()) != 1 {
		t.Errorf("%v", w.faults())
	}
	w.says(w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"x"}]}}`))
	if got := w.get("e1"); !got.Cleared || got.Message != "the agent tries again, attempt 3 of 3: status 529" || w.f.Summary().Retrying {
		t.Errorf("%s", asJSON(t, got))
	}
}

func TestStalledAndLink(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"A","name":"Bash","input":{}}]}}`))
	w.apply(Record{Kind: RecordLink, ID: "c:A", ExecID: "e-1"})
	w.apply(Record{Kind: RecordLink, ID: "c:nothing", ExecID: "e-1"})
	if got := w.get("c:A").ExecID; got != "e-1" {
		t.Error(got)
	}
	w.apply(Record{Kind: RecordStalled, Evidence: &api.DialogueEvidence{SilentMS: 7}})
	if got := w.get("e1"); got.Code != api.DialogueStalled || got.Cleared || got.Evidence.SilentMS != 7 {
		t.Errorf("%s", asJSON(t, got))
	}
	w.says(`{"type":"keep_alive"}`)
	if got := w.get("e1"); !got.Cleared {
		t.Error("it still stands")
	}
}

func TestGap(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	at := w.f.Offset()
	w.f.Feed(Chunk{Offset: at, Data: []byte(`{"type":"torn`)})
	w.f.Feed(Chunk{Offset: at + 1000, Data: []byte("end of a line\"}\n" + w.result() + "\n")})
	w.drain()
	if got := w.get("e1"); got.Code != api.DialogueGap || got.Bytes != 987 {
		t.Errorf("%s", asJSON(t, got))
	}
	if got := w.get("t1"); got.Status != "done" {
		t.Errorf("the turn is %s", got.Status)
	}
	if got := w.f.Summary(); got.Garbage != 0 {
		t.Error("a torn line is read")
	}
}

// TestTextsAreCut: a long text is there in part, and its whole length.
func TestTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", maxText)
	for _, streamed := range []bool{false, true} {
		w := newFlow(t, Config{})
		w.run(1, true)
		w.begin()
		if streamed {
			w.says(
				w.event(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`),
				w.event(`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text"}}}`),
			)
			for rest := long; rest != ""; rest = rest[min(len(rest), 100_000):] {
				w.says(w.event(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}}`, rest[:min(len(rest), 100_000)]))
			}
		}
		w.says(w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"%s"}]}}`, long))
		found := 0
		for _, p := range w.f.Entities() {
			if e := p.Entity; e.Type == api.EntityMessage {
				found++
				if e.Text != long[:maxText] || e.Cut["text"] != int64(len(long)) || !e.Final {
					t.Errorf("streamed %v: %d bytes of %d", streamed, len(e.Text), e.Cut["text"])
				}
			}
		}
		if found != 1 {
			t.Errorf("streamed %v: %d messages", streamed, found)
		}
	}
}

// TestHalfOfAPair: an agent cuts a text within a character.
func TestHalfOfAPair(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(
		w.event(`{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`),
		w.event(`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text"}}}`),
		w.event(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}}`),
		w.event(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00b"}}}`),
		w.event(`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"a\ud83d\ude00b"}]}}`),
	)
	for _, p := range w.f.Entities() {
		if e := p.Entity; e.Type == api.EntityMessage && (e.Text != "a😀b" || !e.Final) {
			t.Errorf("%q", e.Text)
		}
	}
}

// TestALongTurn: what is settled leaves, oldest first; the turn, its message, what is
// open and the counts stay.
func TestALongTurn(t *testing.T) {
	w := newFlow(t, Config{MemoryBytes: 64 << 10})
	w.run(1, true)
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidA, Text: "go on"})
	w.written()
	w.begin()
	w.says(echo(uuidA, "go on"), w.event(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"open","name":"Agent","input":{}}]}}`))
	const many = 500
	for i := range many {
		w.says(
			w.event(`{"type":"assistant","message":{"id":"m%[1]d","content":[{"type":"tool_use","id":"c%[1]d","name":"Bash","input":{"command":"ls"}}]}}`, i),
			w.event(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c%d","content":"ok"}]}}`, i),
		)
		if i%50 == 0 {
			w.restore()
		}
	}
	if n := len(w.f.Entities()); n > 100 {
		t.Errorf("%d entities are left", n)
	}
	next := 0
	for _, c := range w.log {
		if !c.Archive || c.Entity.Type != api.EntityToolCall {
			continue
		}
		if want := fmt.Sprint("c:c", next); c.Entity.ID != want || c.Entity.Output != "ok" || c.Entity.Status != "done" || c.Changed.Compare(c.At) >= 0 {
			t.Fatalf("%s left as %s", want, asJSON(t, c.Entity))
		}
		next++
	}
	if next < many-100 {
		t.Errorf("%d have left", next)
	}
	w.delivery("u:"+uuidA, "taken")
	if got := w.get("c:open"); got.Status != "running" {
		t.Errorf("what is open is %s", got.Status)
	}
	w.says(w.result(), w.idle())
	w.delivery("u:"+uuidA, "done")
	w.state(api.DialogueIdle)
	place, ok := w.f.ForkPoint("t1")
	if !ok || !strings.HasPrefix(place, "00000000-") {
		t.Errorf("the turn ends at %q", place)
	}
}

func TestTypeOf(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"system","subtype":"init","x":1}`:                        "system/init",
		`{"type":"result","subtype":"success","result":"cut he`:           "result/success",
		`{"type":"stream_event","event":{"type":"message_stop"}}`:         "stream_event/message_stop",
		`{"type":"control_request","request":{"subtype":"can_use_tool"}}`: "control_request/can_use_tool",
		`{"type":7}`: "", `no JSON`: "", ``: "", `[]`: "",
	} {
		if got := TypeOf(api.AgentClaude, []byte(line)); got != want {
			t.Errorf("%s is a %q, not %q", line, got, want)
		}
	}
	if got := TypeOf("other", []byte(`{"type":"x"}`)); got != "" {
		t.Error(got)
	}
}
