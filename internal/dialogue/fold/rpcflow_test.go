package fold

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// rpcFlow is a fold of an agent that speaks JSON-RPC, line by line.
type rpcFlow struct {
	*watched
	t   *testing.T
	run int
}

func newRPCFlow(t *testing.T, agent api.Agent, start Start) *rpcFlow {
	t.Helper()
	w := &rpcFlow{watched: watch(t, New(Config{Agent: agent})), t: t}
	w.begin(start)
	return w
}

func (w *rpcFlow) begin(start Start) {
	w.t.Helper()
	w.run++
	if start.Cwd == "" {
		start.Cwd = "/w"
	}
	w.step(step{rec: &Record{Kind: RecordRun, Run: w.run, At: testTime, NativeID: start.NativeID, Start: &start}})
}

// says feeds lines of the agent.
func (w *rpcFlow) says(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		w.step(step{out: []byte(line + "\n")})
	}
}

// tells compares what the fold tells with lines, and writes it.
func (w *rpcFlow) tells(want ...string) {
	w.t.Helper()
	lines, err := w.f.Lines()
	if err != nil {
		w.t.Fatal(err)
	}
	var got, keys []string
	for _, l := range lines {
		got, keys = append(got, strings.TrimSuffix(string(l.Data), "\n")), append(keys, l.Key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Fatalf("told (-want +got):\n%s", diff)
	}
	if keys != nil {
		w.step(step{rec: &Record{Kind: RecordWritten, Keys: keys, At: testTime}})
	}
}

// skips writes what the fold tells, whatever it is.
func (w *rpcFlow) skips() {
	w.t.Helper()
	lines, err := w.f.Lines()
	if err != nil {
		w.t.Fatal(err)
	}
	var keys []string
	for _, l := range lines {
		keys = append(keys, l.Key)
	}
	w.step(step{rec: &Record{Kind: RecordWritten, Keys: keys, At: testTime}})
}

func (w *rpcFlow) say(key, text string) {
	w.t.Helper()
	w.step(step{rec: &Record{Kind: RecordMessage, ID: "u:" + key, Key: key, Text: text, At: testTime}})
}

func (w *rpcFlow) exits(e Exit) {
	w.t.Helper()
	w.step(step{rec: &Record{Kind: RecordExit, Exit: &e, At: testTime}})
}

// has checks an entity.
func (w *rpcFlow) has(want api.DialogueEntity) {
	w.t.Helper()
	got, ok := w.f.Entity(want.ID)
	if !ok {
		w.t.Fatalf("no entity %q", want.ID)
	}
	got.From, got.At, got.Run, got.Raw, got.EndedAt, got.Usage = "", nil, 0, nil, nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", want.ID, diff)
	}
}

func (w *rpcFlow) delivery(id, want string) {
	w.t.Helper()
	if e, _ := w.f.Entity(id); e.Delivery != want {
		w.t.Errorf("%s is %q, not %q", id, e.Delivery, want)
	}
}

// texts returns the messages of a role.
func (w *rpcFlow) texts(role string) (out []string) {
	for _, p := range w.f.Entities() {
		if p.Entity.Type == api.EntityMessage && p.Entity.Role == role {
			out = append(out, p.Entity.Text)
		}
	}
	return out
}

const (
	acpInit  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"trl","title":"TRL","version":"0"}}}`
	acpReady = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true}}}}`
	acpNew   = `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`
)

// updated returns an update of the session s.
func updated(kind, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"` + kind + `"` + more + `}}}`
}

func chunk(text string) string {
	return updated("agent_message_chunk", `"content":{"type":"text","text":"`+text+`"}`)
}

// TestACPSaysOnePromptAtATime holds messages back until the turn before them is over.
func TestACPSaysOnePromptAtATime(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.say("b", "two")
	w.tells(acpInit)
	w.says(acpReady)
	w.tells(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`)
	w.says(acpNew)
	prompt := func(id, text string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"` + text + `"}]}}`
	}
	w.tells(prompt("3", "one"))
	w.delivery("u:a", "written")
	w.delivery("u:b", "accepted")
	w.says(updated("available_commands_update", `"availableCommands":[]`))
	w.delivery("u:a", "written")
	w.says(chunk("He"), chunk("llo"))
	w.delivery("u:a", "taken")
	w.tells()
	w.says(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
	w.delivery("u:a", "done")
	w.tells(prompt("4", "two"))
	w.says(`{"jsonrpc":"2.0","id":4,"result":{"stopReason":"max_tokens"}}`)
	w.delivery("u:b", "done")
	w.has(api.DialogueEntity{Type: api.EntityTurn, ID: "t2", Status: "failed", Reason: "max_tokens", Origin: "user"})
	if diff := cmp.Diff([]string{"Hello"}, w.texts("agent")); diff != "" {
		t.Error(diff)
	}
	if s := w.f.Summary(); s.State != api.DialogueIdle || s.Unknown != 0 {
		t.Errorf("%+v", s)
	}
}

// TestACPDoesNotKnowWhatAnAgentTook: a prompt that an agent died over is not said
// again by itself, and one that was never said is.
func TestACPDoesNotKnowWhatAnAgentTook(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.say("b", "two")
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew)
	w.skips()
	w.exits(Exit{Signal: "SIGKILL"})
	w.begin(Start{NativeID: "s", Resume: true})
	w.skips()
	w.says(acpReady)
	w.tells(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/w","mcpServers":[]}}`)
	// The history of earlier runs, of which some comes after the answer.
	w.says(updated("user_message_chunk", `"content":{"type":"text","text":"old"}`), chunk("old answer"))
	w.says(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	w.delivery("u:a", "unknown")
	w.tells(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"two"}]}}`)
	w.says(chunk("new answer"), `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
	if diff := cmp.Diff([]string{"new answer"}, w.texts("agent")); diff != "" {
		t.Error(diff)
	}
}

// TestACPRefusesWhatEditorsDo answers requests for files and terminals with an error.
func TestACPRefusesWhatEditorsDo(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew, `{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"path":"/etc/passwd"}}`, `{"jsonrpc":"2.0","id":8,"method":"terminal/create","params":{}}`)
	w.tells(
		`{"jsonrpc":"2.0","id":"f","error":{"code":-32601,"message":"TRL does not offer fs/read_text_file"}}`,
		`{"jsonrpc":"2.0","id":8,"error":{"code":-32601,"message":"TRL does not offer terminal/create"}}`)
	if n := w.f.Summary().Unknown; n != 0 {
		t.Errorf("%d unknown lines", n)
	}
	w.says(`{"jsonrpc":"2.0","id":9,"method":"_vendor/thing"}`)
	w.tells(`{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"TRL does not offer _vendor/thing"}}`)
	if n := w.f.Summary().Unknown; n != 1 {
		t.Errorf("%d unknown lines", n)
	}
}

// TestACPInterrupt answers open questions when a turn is stopped, and those that are
// asked while it stops.
func TestACPInterrupt(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew)
	w.skips()
	ask := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}],"toolCall":{"toolCallId":"t` + id + `","title":"rm","kind":"execute"}}}`
	}
	w.says(ask("0"))
	if w.f.Summary().State != api.DialogueAsking {
		t.Error("not asking")
	}
	w.step(step{rec: &Record{Kind: RecordInterrupt, At: testTime}})
	cancelled := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"outcome":{"outcome":"cancelled"}}}`
	}
	w.tells(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`, cancelled("0"))
	w.step(step{rec: &Record{Kind: RecordInterrupt, At: testTime}}) // a second time
	w.tells()
	w.says(ask("1"))
	w.tells(cancelled("1"))
	w.says(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}`)
	for _, id := range []string{"q:1:0", "q:1:1"} {
		if e, _ := w.f.Entity(id); e.State != "cancelled" {
			t.Errorf("%s is %s", id, e.State)
		}
	}
	w.has(api.DialogueEntity{Type: api.EntityTurn, ID: "t1", Status: "interrupted", Reason: "cancelled", Origin: "user"})
}

// TestACPAnswers: a refusal settles the call, of which the agent says no more.
func TestACPAnswers(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew)
	w.skips()
	w.says(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"n","name":"No","kind":"reject_once"}],"toolCall":{"toolCallId":"t","title":"rm","kind":"execute","content":[{"type":"content","content":{"type":"text","text":"It removes all."}}],"rawInput":{"command":"rm"}}}}`)
	err := w.f.Apply(Record{Kind: RecordAnswer, ID: "q:1:0", Answer: &api.DialogueAnswer{Option: "y"}})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeInvalidParams {
		t.Errorf("another option: %v", err)
	}
	w.step(step{rec: &Record{Kind: RecordAnswer, ID: "q:1:0", By: "bob", Answer: &api.DialogueAnswer{Option: "n", Interrupt: true}, At: testTime}})
	w.tells(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"n"}}}`, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.has(api.DialogueEntity{
		Type: api.EntityQuestion, ID: "q:1:0", Turn: "t1", State: "answered", By: "bob", Kind: "permission", Title: "rm", Reason: "It removes all.", ToolCall: "c:1:t",
		Options: []api.DialogueOption{{ID: "n", Kind: "reject_once", Name: "No"}}, Answer: &api.DialogueAnswer{Option: "n", Interrupt: true},
	})
	w.has(api.DialogueEntity{Type: api.EntityToolCall, ID: "c:1:t", Turn: "t1", Status: "denied", Kind: "run", Title: "rm", Input: json.RawMessage(`{"command":"rm"}`)})
	w.says(updated("tool_call_update", `"toolCallId":"t","status":"failed"`))
	if e, _ := w.f.Entity("c:1:t"); openness(&e) {
		t.Error("the call is open again")
	}
}

// TestACPOutsideOfATurn keeps what an agent says between its turns, and is idle.
func TestACPOutsideOfATurn(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew, chunk("By the"), chunk(" way."))
	if s := w.f.Summary().State; s != api.DialogueIdle {
		t.Errorf("the state is %s", s)
	}
	w.says(updated("tool_call", `"toolCallId":"bg","title":"watch","kind":"execute","status":"in_progress"`))
	if s := w.f.Summary(); s.State != api.DialogueIdle {
		t.Errorf("%+v", s)
	}
	w.says(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"y","name":"Yes","kind":"allow_once"}],"toolCall":{"toolCallId":"bg"}}}`)
	if s := w.f.Summary().State; s != api.DialogueAsking {
		t.Errorf("the state is %s", s)
	}
	w.step(step{rec: &Record{Kind: RecordAnswer, ID: "q:1:0", Answer: &api.DialogueAnswer{Option: "y"}, At: testTime}})
	w.says(updated("tool_call_update", `"toolCallId":"bg","status":"completed","rawOutput":{"exit_code":3,"output":"x"}`))
	three := 3
	w.has(api.DialogueEntity{Type: api.EntityToolCall, ID: "c:1:bg", Turn: "t2", Status: "done", Kind: "run", Title: "watch", Output: "x", ExitCode: &three})
	if diff := cmp.Diff([]string{"By the way."}, w.texts("agent")); diff != "" {
		t.Error(diff)
	}
}

// TestACPVersion2 speaks the draft of version 2 with an agent that knows no other.
func TestACPVersion2(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.say("b", "two")
	w.tells(acpInit)
	w.says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"requested":1,"supported":[2]}}}`)
	w.tells(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":2,"capabilities":{"elicitation":{"form":{}}},"info":{"name":"trl","title":"TRL","version":"0"}}}`)
	w.says(`{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{"session":{"prompt":{"image":{}}}}}}`)
	w.tells(`{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`)
	w.says(`{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s","configOptions":[{"id":"m","name":"Model","category":"model","type":"select","currentValue":"big","options":[]}]}}`)
	w.skips()
	w.says(
		`{"jsonrpc":"2.0","id":4,"result":{"messageId":"p1"}}`,
		updated("user_message", `"messageId":"p1","content":[{"type":"text","text":"one"}]`),
		updated("state_update", `"state":"running"`),
		updated("agent_thought_chunk", `"messageId":"m0","content":{"type":"text","text":"Hm."}`),
		updated("agent_message_chunk", `"messageId":"m1","content":{"type":"text","text":"Hel"}`),
		updated("tool_call_update", `"toolCallId":"c","title":"ls","kind":"execute","status":"in_progress","content":[{"type":"terminal","terminalId":"T"}]`),
		updated("terminal_output_chunk", `"terminalId":"T","data":"aGkK"`),
		updated("terminal_update", `"terminalId":"T","exitStatus":{"exitCode":2}`),
		updated("tool_call_update", `"toolCallId":"c","status":"completed"`),
		updated("agent_message_chunk", `"messageId":"m1","content":{"type":"text","text":"lo"}`),
		updated("agent_message", `"messageId":"m1","content":[{"type":"text","text":"Hello!"}]`),
		updated("plan_update", `"plan":{"type":"items","planId":"P","entries":[{"content":"Look","priority":"high","status":"cancelled"}]}`),
		updated("usage_update", `"used":10,"size":100,"cost":{"amount":0.5,"currency":"USD"}`),
		updated("state_update", `"state":"requires_action"`),
		`{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s","title":"Run it?","subject":{"type":"command","command":"rm","cwd":"/w"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}`,
	)
	w.step(step{rec: &Record{Kind: RecordAnswer, ID: `q:1:"q"`, Answer: &api.DialogueAnswer{Option: "y"}, At: testTime}})
	w.tells(`{"jsonrpc":"2.0","id":"q","result":{"outcome":{"outcome":"selected","optionId":"y"}}}`)
	w.says(updated("state_update", `"state":"idle","stopReason":"end_turn"`))
	w.delivery("u:a", "done")
	w.tells(`{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"two"}]}}`)
	w.says(`{"jsonrpc":"2.0","id":5,"result":{"messageId":"p2"}}`, updated("state_update", `"state":"idle","stopReason":"error","error":{"code":1,"message":"Overloaded"}`))
	w.delivery("u:b", "done")
	w.has(api.DialogueEntity{Type: api.EntityTurn, ID: "t2", Status: "failed", Reason: "error", Origin: "user"})
	two := 2
	w.has(api.DialogueEntity{Type: api.EntityToolCall, ID: "c:1:c", Turn: "t1", Status: "done", Kind: "run", Title: "ls", Output: "hi\n", ExitCode: &two})
	if diff := cmp.Diff([]string{"Hello!"}, w.texts("agent")); diff != "" {
		t.Error(diff)
	}
	s := w.f.Summary()
	if s.Unknown != 0 || s.Model != "big" || s.State != api.DialogueIdle || !s.Capabilities.Images || s.Usage.ContextWindow != 100 || *s.Usage.CostUSD != 0.5 {
		t.Errorf("%+v", s)
	}
	w.step(step{rec: &Record{Kind: RecordSet, Model: "small", At: testTime}})
	w.tells(`{"jsonrpc":"2.0","id":6,"method":"session/set_config_option","params":{"sessionId":"s","configId":"m","value":"small"}}`)
	w.says(`{"jsonrpc":"2.0","id":6,"result":{"configOptions":[]}}`)
	if m := w.f.Summary().Model; m != "small" {
		t.Errorf("the model is %q", m)
	}
	if err := w.f.Apply(Record{Kind: RecordSet, Mode: "plan"}); err == nil {
		t.Error("the mode can be set")
	}
}

// TestACPHandshakeFails says why an agent is not ready.
func TestACPHandshakeFails(t *testing.T) {
	for name, c := range map[string]struct {
		start Start
		lines []string
		want  string
	}{
		"initialize":  {Start{}, []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":{"details":"no key"}}}`}, "Internal error: no key"},
		"new":         {Start{}, []string{acpReady, `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required"}}`}, "Authentication required"},
		"no load":     {Start{NativeID: "s", Resume: true}, []string{`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`}, "the agent can't continue a conversation"},
		"fork":        {Start{NativeID: "s", Fork: true}, []string{acpReady}, "the agent can't fork a conversation"},
		"no mode":     {Start{Mode: "plan"}, []string{acpReady, acpNew}, "the agent can't change its mode"},
		"wrong model": {Start{Model: "x"}, []string{acpReady, `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","models":{"currentModelId":"y"}}}`, `{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no such model"}}`}, "the agent refused the model: no such model"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRPCFlow(t, api.AgentACP, c.start)
			for _, line := range c.lines {
				w.skips()
				w.says(line)
			}
			if s := w.f.Summary(); s.Failed != c.want || s.Ready {
				t.Errorf("failed: %q, ready: %v", s.Failed, s.Ready)
			}
		})
	}
}

// TestACPForm asks a person to fill in a form.
func TestACPForm(t *testing.T) {
	w := newRPCFlow(t, api.AgentACP, Start{})
	w.say("a", "one")
	w.skips()
	w.says(acpReady)
	w.skips()
	w.says(acpNew)
	w.skips()
	w.says(`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"sessionId":"s","mode":"form","message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","title":"Name"},"size":{"type":"string","oneOf":[{"const":"s","title":"Small"}]},"tags":{"type":"array","items":{"enum":["a","b"]}},"old":{"type":"boolean"}},"required":["name"]}}}`)
	w.has(api.DialogueEntity{
		Type: api.EntityQuestion, ID: "q:1:5", Turn: "t1", State: "open", Kind: "form", Title: "Who are you?",
		Options: []api.DialogueOption{{ID: "accept", Kind: "allow_once", Name: "Send"}, {ID: "decline", Kind: "reject_once", Name: "Decline"}, {ID: "cancel", Kind: "reject_once", Name: "Cancel"}},
		Fields: []api.DialogueField{
			{ID: "name", Title: "Name", Type: "text", Required: true},
			{ID: "size", Type: "choice", Options: []api.DialogueOption{{ID: "s", Kind: "other", Name: "Small"}}},
			{ID: "tags", Type: "choices", Options: []api.DialogueOption{{ID: "a", Kind: "other", Name: "a"}, {ID: "b", Kind: "other", Name: "b"}}},
			{ID: "old", Type: "boolean"},
		},
	})
	if err := w.f.Apply(Record{Kind: RecordAnswer, ID: "q:1:5", Answer: &api.DialogueAnswer{Option: "accept"}}); err == nil {
		t.Error("a required field may be left out")
	}
	values := map[string]json.RawMessage{"name": []byte(`"Ann"`), "old": []byte("true")}
	w.step(step{rec: &Record{Kind: RecordAnswer, ID: "q:1:5", Answer: &api.DialogueAnswer{Option: "accept", Values: values}, At: testTime}})
	w.tells(`{"jsonrpc":"2.0","id":5,"result":{"action":"accept","content":{"name":"Ann","old":true}}}`)
}

const (
	codexInit  = `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"trl","title":"TRL","version":"0"},"capabilities":{"experimentalApi":true,"requestAttestation":false}}}`
	codexReady = `{"id":1,"result":{}}`
	codexNew   = `{"id":2,"result":{"thread":{"id":"th"},"model":"m","approvalPolicy":"on-request","sandbox":{"type":"readOnly"}}}`
	codexTurn  = `{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`
)

func newCodexFlow(t *testing.T) *rpcFlow {
	t.Helper()
	w := newRPCFlow(t, api.AgentCodex, Start{})
	w.say("a", "one")
	w.skips()
	w.says(codexReady)
	w.skips()
	w.says(codexNew)
	w.skips()
	return w
}

func TestCodexStarts(t *testing.T) {
	for name, c := range map[string]struct {
		start Start
		want  string
	}{
		"plain":  {Start{}, `{"id":2,"method":"thread/start","params":{"cwd":"/w"}}`},
		"all":    {Start{Model: "m", Mode: "on-request/read-only"}, `{"id":2,"method":"thread/start","params":{"cwd":"/w","model":"m","approvalPolicy":"on-request","sandbox":"read-only"}}`},
		"policy": {Start{Mode: "never"}, `{"id":2,"method":"thread/start","params":{"cwd":"/w","approvalPolicy":"never"}}`},
		"box":    {Start{Mode: "danger-full-access"}, `{"id":2,"method":"thread/start","params":{"cwd":"/w","sandbox":"danger-full-access"}}`},
		"resume": {Start{NativeID: "x", Resume: true}, `{"id":2,"method":"thread/resume","params":{"threadId":"x","cwd":"/w","excludeTurns":true}}`},
		"fork":   {Start{NativeID: "x", Fork: true, ForkAt: "y"}, `{"id":2,"method":"thread/fork","params":{"threadId":"x","lastTurnId":"y","cwd":"/w","excludeTurns":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRPCFlow(t, api.AgentCodex, c.start)
			w.tells(codexInit)
			w.says(codexReady)
			w.tells(`{"method":"initialized"}`, c.want)
			w.says(codexNew)
			if s := w.f.Summary(); !s.Ready || s.NativeID != "th" || s.Mode != "on-request/read-only" || s.Model != "m" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestCodexInterruptsATurnThatBegins remembers an interrupt until there is a turn.
func TestCodexInterruptsATurnThatBegins(t *testing.T) {
	w := newCodexFlow(t)
	w.step(step{rec: &Record{Kind: RecordInterrupt, At: testTime}})
	w.tells()
	w.says(`{"id":3,"result":{"turn":{"id":"tu"}}}`, codexTurn)
	w.tells(`{"id":4,"method":"turn/interrupt","params":{"threadId":"th","turnId":"tu"}}`)
	w.says(`{"id":4,"result":{}}`, `{"method":"turn/completed","params":{"threadId":"th","turn":{"id":"tu","status":"interrupted"}}}`)
	w.delivery("u:a", "done") // the turn had it, though nothing showed it
	w.has(api.DialogueEntity{Type: api.EntityTurn, ID: "t1", Status: "interrupted", Origin: "user", NativeID: "tu"})
}

// TestCodexSaysWhatTheHistoryLacks: after the death of an agent the history of the
// thread tells which messages it had.
func TestCodexSaysWhatTheHistoryLacks(t *testing.T) {
	w := newCodexFlow(t)
	w.say("b", "two")
	w.skips()
	w.exits(Exit{Signal: "SIGKILL"})
	w.begin(Start{NativeID: "th", Resume: true})
	w.skips()
	w.says(codexReady)
	w.skips()
	w.says(codexNew)
	w.tells(`{"id":3,"method":"thread/turns/list","params":{"threadId":"th","limit":4,"itemsView":"full"}}`)
	w.says(`{"id":3,"result":{"data":[{"id":"tu","items":[{"type":"userMessage","id":"i","clientId":"a","content":[]}],"status":"interrupted"}]}}`)
	w.delivery("u:a", "taken")
	w.tells(`{"id":4,"method":"turn/start","params":{"threadId":"th","clientUserMessageId":"b","input":[{"type":"text","text":"two","text_elements":[]}]}}`)
}

// TestCodexAltered notices a command that is not the one that was approved, and a
// message that is not the one that was said.
func TestCodexAltered(t *testing.T) {
	w := newCodexFlow(t)
	w.says(`{"id":3,"result":{"turn":{"id":"tu"}}}`, codexTurn,
		`{"method":"item/started","params":{"threadId":"th","turnId":"tu","item":{"type":"userMessage","id":"i","clientId":"a","content":[{"type":"text","text":"another"}]}}}`,
		`{"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"th","turnId":"tu","itemId":"c","command":"ls","cwd":"/w"}}`)
	w.step(step{rec: &Record{Kind: RecordAnswer, ID: "q:1:0", Answer: &api.DialogueAnswer{Option: "accept"}, At: testTime}})
	w.tells(`{"id":0,"result":{"decision":"accept"}}`)
	w.says(`{"method":"item/completed","params":{"threadId":"th","turnId":"tu","item":{"type":"commandExecution","id":"c","command":"rm -rf /","status":"completed"}}}`)
	var codes []string
	for _, p := range w.f.Entities() {
		if p.Entity.Type == api.EntityError {
			codes = append(codes, p.Entity.Code)
		}
	}
	if diff := cmp.Diff([]string{api.DialogueAltered, api.DialogueAltered}, codes); diff != "" {
		t.Error(diff)
	}
}

// TestCodexDecisions: what an answer becomes.
func TestCodexDecisions(t *testing.T) {
	zero, five := 0, 5
	for name, c := range map[string]struct {
		ask    string
		answer api.DialogueAnswer
		want   string
	}{
		"accept":     {`"item/commandExecution/requestApproval","id":0,"params":{"command":"ls"`, api.DialogueAnswer{Option: "accept"}, `{"id":0,"result":{"decision":"accept"}}`},
		"session":    {`"item/commandExecution/requestApproval","id":0,"params":{"command":"ls"`, api.DialogueAnswer{Option: "acceptForSession"}, `{"id":0,"result":{"decision":"acceptForSession"}}`},
		"suggestion": {`"item/commandExecution/requestApproval","id":0,"params":{"command":"ls","proposedExecpolicyAmendment":["ls"]`, api.DialogueAnswer{Option: "accept", Suggestion: &zero}, `{"id":0,"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["ls"]}}}}`},
		"rule":       {`"item/commandExecution/requestApproval","id":0,"params":{"command":"ls","proposedExecpolicyAmendment":["ls"]`, api.DialogueAnswer{Option: "acceptWithExecpolicyAmendment"}, `{"id":0,"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["ls"]}}}}`},
		"no rule":    {`"item/commandExecution/requestApproval","id":0,"params":{"command":"ls"`, api.DialogueAnswer{Option: "accept", Suggestion: &five}, ""},
		"deny":       {`"item/fileChange/requestApproval","id":"x","params":{"reason":"r"`, api.DialogueAnswer{Option: "decline"}, `{"id":"x","result":{"decision":"decline"}}`},
		"stop":       {`"item/fileChange/requestApproval","id":0,"params":{"reason":"r"`, api.DialogueAnswer{Option: "decline", Interrupt: true}, `{"id":0,"result":{"decision":"cancel"}}`},
		"permit":     {`"item/permissions/requestApproval","id":0,"params":{"permissions":{"network":null,"fileSystem":{"write":["/x"]}}`, api.DialogueAnswer{Option: "session"}, `{"id":0,"result":{"permissions":{"fileSystem":{"write":["/x"]}},"scope":"session"}}`},
		"forbid":     {`"item/permissions/requestApproval","id":0,"params":{"permissions":{"network":null}`, api.DialogueAnswer{Option: "decline"}, `{"id":0,"result":{"permissions":{},"scope":"turn"}}`},
		"choose":     {`"item/tool/requestUserInput","id":0,"params":{"questions":[{"id":"c","question":"Which?","options":[{"label":"Red","description":"Warm."}]}]`, api.DialogueAnswer{Values: map[string]json.RawMessage{"c": []byte(`"Red"`)}}, `{"id":0,"result":{"answers":{"c":{"answers":["Red"]}}}}`},
		"skip":       {`"item/tool/requestUserInput","id":0,"params":{"questions":[{"id":"c","question":"Which?"}]`, api.DialogueAnswer{Option: "skip"}, `{"id":0,"result":{"answers":{}}}`},
		"form":       {`"mcpServer/elicitation/request","id":0,"params":{"serverName":"s","mode":"form","message":"Name?","requestedSchema":{"properties":{"n":{"type":"string"}}}`, api.DialogueAnswer{Option: "accept", Values: map[string]json.RawMessage{"n": []byte(`"Ann"`)}}, `{"id":0,"result":{"action":"accept","content":{"n":"Ann"},"_meta":null}}`},
		"earlier":    {`"execCommandApproval","id":0,"params":{"conversationId":"th","callId":"c","command":["ls","-l"],"cwd":"/w"`, api.DialogueAnswer{Option: "denied", Message: "no"}, `{"id":0,"result":{"decision":{"denied":{"rejection":"no"}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCodexFlow(t)
			w.says(`{"id":3,"result":{"turn":{"id":"tu"}}}`, codexTurn, `{"method":`+c.ask+`,"threadId":"th","turnId":"tu","itemId":"c"}}`)
			asking := w.f.Summary().Asking
			if len(asking) != 1 {
				t.Fatalf("asking %v", asking)
			}
			err := w.f.Apply(Record{Kind: RecordAnswer, ID: asking[0], Answer: &c.answer, At: testTime})
			if (err == nil) != (c.want != "") {
				t.Fatal(err)
			}
			w.drain()
			if c.want != "" {
				w.tells(c.want)
			}
		})
	}
}

// TestCodexRefuses answers requests for what TRL does not do with an error.
func TestCodexRefuses(t *testing.T) {
	w := newCodexFlow(t)
	w.says(`{"id":5,"method":"item/tool/call","params":{"threadId":"th"}}`)
	w.tells(`{"id":5,"error":{"code":-32601,"message":"TRL does not offer item/tool/call"}}`)
}

func TestLaunchOfRPC(t *testing.T) {
	for name, c := range map[string]struct {
		agent api.Agent
		start Start
		want  []string
	}{
		"codex":      {api.AgentCodex, Start{Args: []string{"-c", "x=1"}}, []string{"codex", "app-server", "-c", "x=1"}},
		"other":      {api.AgentCodex, Start{Argv: []string{"npx", "codex"}}, []string{"npx", "codex", "app-server"}},
		"gemini":     {api.AgentGemini, Start{}, []string{"gemini", "--acp"}},
		"acp":        {api.AgentACP, Start{Argv: []string{"my-agent"}, Args: []string{"--acp"}}, []string{"my-agent", "--acp"}},
		"no program": {api.AgentACP, Start{}, nil},
	} {
		l, err := LaunchOf(c.agent, c.start)
		if diff := cmp.Diff(c.want, l.Argv); diff != "" || (err != nil) != (c.want == nil) {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
