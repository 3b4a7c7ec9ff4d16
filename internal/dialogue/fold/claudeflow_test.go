package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

// flow is a dialogue with a scripted agent: a test says its lines.
type flow struct {
	*watched
	t *testing.T
	n int
}

func newFlow(t *testing.T, cfg Config) *flow {
	cfg.Agent = api.AgentClaude
	return &flow{watched: watch(t, New(cfg)), t: t}
}

func (w *flow) apply(r Record) {
	w.t.Helper()
	if err := w.try(r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *flow) try(r Record) error {
	w.t.Helper()
	r.At = testTime
	err := w.f.Apply(r)
	w.drain()
	return err
}

// run starts a run and its handshake.
func (w *flow) run(n int, ready bool) {
	w.t.Helper()
	w.apply(Record{Kind: RecordRun, Run: n, Start: &Start{Cwd: "/", NativeID: "n", Resume: n > 1}})
	if ready {
		w.written()
		w.says(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":"trl-%d-init","response":{}}}`, n))
	}
}

// says feeds lines of the agent.
func (w *flow) says(lines ...string) {
	w.t.Helper()
	for _, l := range lines {
		w.f.Feed(Chunk{Offset: w.f.Offset(), Data: []byte(l + "\n"), At: testTime})
		w.drain()
	}
}

// event makes a line with a uuid of its own.
func (w *flow) event(format string, args ...any) string {
	w.n++
	return strings.TrimSuffix(fmt.Sprintf(format, args...), "}") + fmt.Sprintf(`,"uuid":"00000000-0000-4000-8000-%012d","session_id":"n"}`, w.n)
}

// lines returns the keys of what the agent must get.
func (w *flow) keys() []string {
	w.t.Helper()
	lines, err := w.f.Lines()
	if err != nil {
		w.t.Fatal(err)
	}
	keys := []string{}
	for _, l := range lines {
		keys = append(keys, l.Key)
	}
	return keys
}

// written says that all lines are in the agent's input, and returns the last.
func (w *flow) written() string {
	w.t.Helper()
	lines, err := w.f.Lines()
	if err != nil {
		w.t.Fatal(err)
	}
	if len(lines) == 0 {
		return ""
	}
	w.apply(Record{Kind: RecordWritten, Keys: w.keys()})
	if n := len(w.keys()); n > 0 {
		w.t.Fatalf("%d lines are left", n)
	}
	return string(lines[len(lines)-1].Data)
}

func (w *flow) state(want api.DialogueState) {
	w.t.Helper()
	if got := w.f.Summary().State; got != want {
		w.t.Fatalf("the state is %s, not %s", got, want)
	}
}

func (w *flow) get(id string) api.DialogueEntity {
	w.t.Helper()
	e, ok := w.f.Entity(id)
	if !ok {
		w.t.Fatalf("there is no %s", id)
	}
	return e
}

func (w *flow) delivery(id, want string) {
	w.t.Helper()
	if got := w.get(id).Delivery; got != want {
		w.t.Fatalf("the delivery of %s is %s, not %s", id, got, want)
	}
}

// faults returns the codes of the errors.
func (w *flow) faults() []string {
	codes := []string{}
	for _, p := range w.f.Entities() {
		if p.Entity.Type == api.EntityError {
			codes = append(codes, p.Entity.Code)
		}
	}
	return codes
}

const uuidA, uuidB = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"

func echo(uuid, text string) string {
	return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":%q},"session_id":"n","parent_tool_use_id":null,"uuid":%q,"isReplay":true}`, text, uuid)
}

func ask(request, tool, input, more string) string {
	return fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":"call-%s"%s}}`, request, tool, input, request, more)
}

func (w *flow) begin() {
	w.t.Helper()
	w.says(w.event(`{"type":"system","subtype":"session_state_changed","state":"running"}`), w.event(`{"type":"system","subtype":"init","model":"m","permissionMode":"default"}`))
}

func (w *flow) result() string {
	return w.event(`{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","usage":{"input_tokens":1,"output_tokens":2},"total_cost_usd":0.5}`)
}

func (w *flow) idle() string {
	return w.event(`{"type":"system","subtype":"session_state_changed","state":"idle"}`)
}

func TestLaunch(t *testing.T) {
	for _, c := range []struct {
		name  string
		start Start
		want  []string // what follows the words that are always there
		id    string
	}{
		{"new", Start{NativeID: "n"}, []string{"claude", "--session-id=n"}, "n"},
		{"resume", Start{NativeID: "n", Resume: true, Model: "m", Mode: "plan"}, []string{"claude", "--resume=n", "--model=m", "--permission-mode=plan"}, "n"},
		{"fork", Start{NativeID: "n", Fork: true, ForkAt: "u", Args: []string{"-x"}}, []string{"claude", "--resume=n", "--fork-session", "--resume-session-at=u", "-x"}, ""},
		{"argv", Start{Argv: []string{"/opt/claude", "--debug"}}, []string{"/opt/claude", "--debug"}, ""},
	} {
		l, err := LaunchOf(api.AgentClaude, c.start)
		if err != nil {
			t.Fatal(err)
		}
		argv := strings.Join(l.Argv, " ")
		fixed := " -p --input-format stream-json --output-format stream-json --verbose --include-partial-messages --replay-user-messages --forward-subagent-text --permission-prompt-tool stdio"
		before, after, ok := strings.Cut(argv, fixed)
		if got := before + after; !ok || got != strings.Join(c.want, " ") || l.NativeID != c.id {
			t.Errorf("%s: %s, id %q", c.name, argv, l.NativeID)
		}
		if l.Env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] != "1" {
			t.Errorf("%s: env %v", c.name, l.Env)
		}
	}
	if _, err := LaunchOf(api.AgentClaude, Start{Resume: true}); err == nil {
		t.Error("nothing can be resumed without a name")
	}
	if _, err := LaunchOf("other", Start{}); err == nil {
		t.Error("there is no such agent")
	}
}

// TestAMessageIsSaidOnce follows a message through its states.
func TestAMessageIsSaidOnce(t *testing.T) {
	w := newFlow(t, Config{})
	w.apply(Record{Kind: RecordRun, Run: 1, Start: &Start{NativeID: "n"}})
	w.state(api.DialogueStarting)
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidA, Key: "a", Text: "hello <world>", By: "alice"})
	w.delivery("u:"+uuidA, "accepted")
	if diff := cmp.Diff([]string{"r1.init"}, w.keys()); diff != "" {
		t.Fatalf("before the handshake is over:\n%s", diff)
	}
	w.written()
	w.says(`{"type":"control_response","response":{"subtype":"success","request_id":"trl-1-init","response":{}}}`)
	if diff := cmp.Diff([]string{"r1.m.u:" + uuidA}, w.keys()); diff != "" {
		t.Fatal(diff)
	}
	want := `{"message":{"content":"hello <world>","role":"user"},"parent_tool_use_id":null,"session_id":"","type":"user","uuid":"` + uuidA + `"}` + "\n"
	if got := w.written(); got != want {
		t.Fatalf("told %q, not %q", got, want)
	}
	w.delivery("u:"+uuidA, "written")
	w.state(api.DialogueRunning)
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidA, Key: "a", Text: "hello <world>"}) // the caller repeats it
	if n := len(w.keys()); n > 0 {
		t.Fatal("a message is said twice")
	}
	w.says(w.event(`{"type":"command_lifecycle","command_uuid":%q,"state":"queued"}`, uuidA))
	w.delivery("u:"+uuidA, "written")
	w.begin()
	w.says(echo(uuidA, "hello <world>"))
	w.delivery("u:"+uuidA, "taken")
	if got := w.get("u:" + uuidA).Turn; got != "t1" {
		t.Errorf("its turn is %q", got)
	}
	w.says(w.result())
	w.delivery("u:"+uuidA, "done")
	w.state(api.DialogueRunning) // until the agent says that it is idle
	w.says(w.idle())
	w.state(api.DialogueIdle)
	if codes := w.faults(); len(codes) > 0 {
		t.Error(codes)
	}
}

// TestNothingIsSaidTwiceAfterAnExit: what the agent has not taken is said again to
// its next run, with the same uuid; what it has taken is not.
func TestNothingIsSaidTwiceAfterAnExit(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidA, Text: "one"})
	first := w.written()
	w.begin()
	w.says(echo(uuidA, "one"))
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidB, Text: "two"})
	w.apply(Record{Kind: RecordMessage, ID: "u:key", Text: "three"})
	second := w.written()
	if !strings.Contains(first, uuidA) || strings.Contains(second, uuidB) {
		t.Fatal(first, second)
	}
	w.apply(Record{Kind: RecordExit, Exit: &Exit{Signal: "SIGKILL"}})
	w.state(api.DialogueEnded)
	w.delivery("u:"+uuidA, "taken")
	w.delivery("u:"+uuidB, "written")
	if n := len(w.keys()); n > 0 {
		t.Fatal("lines for an agent that has ended")
	}
	if got := w.get("t1"); got.Status != "cut" || got.EndedAt == nil {
		t.Errorf("the turn is %+v", got)
	}
	w.apply(Record{Kind: RecordEnd, Reason: api.DialogueFailed})
	w.restore()
	w.run(2, true)
	if diff := cmp.Diff([]string{"r2.m.u:" + uuidB, "r2.m.u:key"}, w.keys()); diff != "" {
		t.Fatalf("told to the second run:\n%s", diff)
	}
	if again := w.written(); again != second {
		t.Errorf("said again as %q, not %q", again, second)
	}
	w.says(echo(uuidB, "two"), w.event(`{"type":"command_lifecycle","command_uuid":%q,"state":"completed"}`, uuidB))
	w.delivery("u:"+uuidB, "done")
}

func TestAMessageIsAltered(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.apply(Record{Kind: RecordMessage, ID: "u:" + uuidA, Text: "one"})
	w.written()
	w.says(echo(uuidA, "two"))
	if diff := cmp.Diff([]string{api.DialogueAltered}, w.faults()); diff != "" {
		t.Error(diff)
	}
}

// TestAnAnswerIsExact: the agent gets back what it asked for, byte for byte.
func TestAnAnswerIsExact(t *testing.T) {
	const input = `{"command":"echo \u0041 <&> \u2028 é","n":1.0,"big":12345678901234567890,"a" :[ ]}`
	const rules = `,"permission_suggestions":[{"type":"setMode","mode":"acceptEdits","destination":"session"},{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls:*"}],"behavior":"allow"}]`
	one := 1
	for _, c := range []struct {
		name   string
		answer api.DialogueAnswer
		want   string
		status string
	}{
		{"allow", api.DialogueAnswer{Option: "allow"}, `{"behavior":"allow","updatedInput":` + input + `}`, "running"},
		{"always", api.DialogueAnswer{Option: "allow_always"}, `{"behavior":"allow","updatedInput":` + input + `,"updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"},{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls:*"}],"behavior":"allow"}]}`, "running"},
		{
			"suggestion",
			api.DialogueAnswer{Option: "allow", Suggestion: &one},
			`{"behavior":"allow","updatedInput":` + input + `,"updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls:*"}],"behavior":"allow"}]}`, "running",
		},
		{"deny", api.DialogueAnswer{Option: "deny", Message: "<no>"}, `{"behavior":"deny","message":"<no>"}`, "pending"},
		{"stop", api.DialogueAnswer{Option: "deny", Interrupt: true}, `{"behavior":"deny","message":"The user declined.","interrupt":true}`, "pending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFlow(t, Config{})
			w.run(1, true)
			w.begin()
			w.says(ask("r", "Bash", input, rules))
			w.state(api.DialogueAsking)
			q := w.get("q:1:r")
			if q.State != "open" || q.ToolCall != "c:call-r" || len(q.Suggestions) != 2 || q.Suggestions[1].Title != "allow Bash(ls:*)" {
				t.Errorf("the question is %s", asJSON(t, q))
			}
			if got := w.get("c:call-r"); got.Status != "pending" {
				t.Errorf("its call is %s", got.Status)
			}
			w.restore()
			w.apply(Record{Kind: RecordAnswer, ID: "q:1:r", Answer: &c.answer, By: "alice"})
			want := `{"type":"control_response","response":{"subtype":"success","request_id":"r","response":` + c.want + `}}`
			if got := w.written(); got != want+"\n" {
				t.Errorf("told %s, not %s", got, want)
			}
			if got := w.get("q:1:r"); got.State != "answered" || got.By != "alice" || got.Answer == nil {
				t.Errorf("the question is %s", asJSON(t, got))
			}
			if got := w.get("c:call-r"); got.Status != c.status {
				t.Errorf("its call is %s", got.Status)
			}
			err := w.try(Record{Kind: RecordAnswer, ID: "q:1:r", Answer: &c.answer})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != CodeQuestionSettled || e.Details["by"] != "alice" {
				t.Errorf("a second answer: %v", err)
			}
			w.says(want)
			if codes := w.faults(); len(codes) > 0 {
				t.Errorf("the echo is the same: %v", codes)
			}
			w.says(w.event(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"call-r","content":"x","is_error":%v}]}}`, c.status == "pending"))
			status := "done"
			if c.status == "pending" {
				status = "denied"
			}
			if got := w.get("c:call-r"); got.Status != status {
				t.Errorf("its call is %s", got.Status)
			}
		})
	}
}

func TestAnAnswerIsAltered(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(ask("r", "Bash", `{"command":"ls"}`, ""))
	w.apply(Record{Kind: RecordAnswer, ID: "q:1:r", Answer: &api.DialogueAnswer{Option: "allow"}})
	w.written()
	w.says(`{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"behavior":"allow","updatedInput":{"command":"rm"}}}}`)
	if diff := cmp.Diff([]string{api.DialogueAltered}, w.faults()); diff != "" {
		t.Error(diff)
	}
}

// TestAnAnswerThatDoesNotFit changes nothing.
func TestAnAnswerThatDoesNotFit(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(ask("r", "Bash", `{}`, ""), ask("s", "AskUserQuestion", `{"questions":[{"question":"Which?","options":[{"label":"Red"}]}]}`, ""))
	seven := 7
	before := asJSON(t, w.f.Entities())
	position := w.f.Position()
	for _, r := range []Record{
		{ID: "q:1:r", Answer: &api.DialogueAnswer{}},
		{ID: "q:1:r", Answer: &api.DialogueAnswer{Option: "maybe"}},
		{ID: "q:1:r", Answer: &api.DialogueAnswer{Option: "allow", Suggestion: &seven}},
		{ID: "q:1:r", Answer: &api.DialogueAnswer{Option: "allow_always"}},
		{ID: "q:1:s", Answer: &api.DialogueAnswer{Option: "allow"}},
		{ID: "q:1:s", Answer: &api.DialogueAnswer{Values: map[string]json.RawMessage{"q9": json.RawMessage(`"x"`)}}},
		{ID: "q:1:s", Answer: &api.DialogueAnswer{Values: map[string]json.RawMessage{"q1": json.RawMessage(`{}`)}}},
		{ID: "q:2:r", Answer: &api.DialogueAnswer{Option: "allow"}},
		{ID: "t1", Answer: &api.DialogueAnswer{Option: "allow"}},
	} {
		r.Kind = RecordAnswer
		var e *api.Error
		if err := w.try(r); !errors.As(err, &e) || e.Code != api.CodeInvalidParams {
			t.Errorf("%s: %v", asJSON(t, r.Answer), err)
		}
	}
	if len(w.keys()) > 0 || asJSON(t, w.f.Entities()) != before || w.f.Position() != position {
		t.Error("something has changed")
	}
	w.apply(Record{Kind: RecordAnswer, ID: "q:1:s", Answer: &api.DialogueAnswer{Values: map[string]json.RawMessage{"q1": json.RawMessage(`["Red","Blue"]`)}}})
	want := `"updatedInput":{"questions":[{"question":"Which?","options":[{"label":"Red"}]}],"answers":{"Which?":"Red, Blue"}}}`
	if got := w.written(); !strings.Contains(got, want) {
		t.Errorf("told %s", got)
	}
}

// TestAQuestionThatIsTooLongIsReadAgain: its input is not kept.
func TestAQuestionThatIsTooLongIsReadAgain(t *testing.T) {
	input := `{"content":"` + strings.Repeat("0123456789", 300_000) + `"}`
	line := ask("r", "Write", input, "")
	var at int64
	w := newFlow(t, Config{Read: func(r api.DialogueRange) ([]byte, error) {
		if r.Run != 1 || r.Offset != at || r.Bytes != int64(len(line)+1) {
			return nil, fmt.Errorf("read %+v, not %d", r, at)
		}
		return []byte(line + "\n"), nil
	}})
	w.run(1, true)
	w.begin()
	at = w.f.Offset()
	w.says(line)
	if got := w.get("c:call-r"); len(got.Input) > maxOutput || got.Cut["input"] < 3_000_000 || !json.Valid(got.Input) {
		t.Errorf("the input takes %d bytes, cut %v", len(got.Input), got.Cut)
	}
	w.apply(Record{Kind: RecordAnswer, ID: "q:1:r", Answer: &api.DialogueAnswer{Option: "allow"}})
	if got := w.written(); !strings.Contains(got, `"updatedInput":`+input+`}`) {
		t.Error("the input is not what was asked")
	}
	w.says(ask("s", "Write", input, ""))
	w.f.cfg.Read = nil
	if err := w.try(Record{Kind: RecordAnswer, ID: "q:1:s", Answer: &api.DialogueAnswer{Option: "allow"}}); err == nil {
		t.Error("answered without its input")
	}
	w.apply(Record{Kind: RecordAnswer, ID: "q:1:s", By: "trl", Reason: "expired", Answer: &api.DialogueAnswer{Option: "deny", Interrupt: true}})
	if got := w.get("q:1:s"); got.State != "expired" || got.By != "trl" {
		t.Errorf("the question is %s by %s", got.State, got.By)
	}
}

// TestAQuestionOfOneRunIsNotAnsweredInAnother: the agent's ids may come back.
func TestAQuestionOfOneRunIsNotAnsweredInAnother(t *testing.T) {
	w := newFlow(t, Config{})
	w.run(1, true)
	w.begin()
	w.says(ask("0", "Bash", `{"command":"old"}`, ""))
	w.apply(Record{Kind: RecordExit, Exit: &Exit{Expected: true}})
	if got := w.get("q:1:0"); got.State != "lost" {
		t.Errorf("the question is %s", got.State)
	}
	if diff := cmp.Diff([]string{api.DialogueUnexpectedExit}, w.faults()); diff != "" {
		t.Error(diff)
	}
	w.run(2, true)
	w.begin()
	w.says(ask("0", "Bash", `{"command":"new"}`, ""))
	if err := w.try(Record{Kind: RecordAnswer, ID: "q:1:0", Answer: &api.DialogueAnswer{Option: "allow"}}); err == nil {
		t.Error("a question of the first run is answered")
	}
	w.apply(Record{Kind: RecordAnswer, ID: "q:2:0", Answer: &api.DialogueAnswer{Option: "allow"}})
	if got := w.written(); !strings.Contains(got, "new") {
		t.Error(got)
	}
}
