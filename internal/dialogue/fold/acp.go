package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// acp is the adapter for agents of the Agent Client Protocol, such as Gemini CLI: version 1,
// and the draft of version 2 if an agent speaks only that.
//
// In version 1 a turn is a request that is open. An agent has one at a time, so the
// messages after it wait here. Pieces of text have no id, and nothing is repeated
// that was said to the agent.
type acp struct {
	rpc
	Agent    api.Agent
	Version  int    // of the protocol
	Session  string // the agent's name of the conversation
	Load     bool   // what the agent can do
	Resume   bool
	Images   bool
	Model    acpSetting
	Mode     acpSetting
	Settings int      // requests for settings before the first message
	Swallow  bool     // updates repeat what was said in earlier runs
	Queue    []string // messages that wait for the end of the turn
	Prompt   int64    // the request whose turn is open; 0: none
	Saying   string   // the message of that request
	Running  bool     // of version 2: the turn is open
	Stopped  bool     // the turn has been asked to stop
	Text     string   // the message that the agent is writing
	Role     string   // its role
	Native   string   // its id, as the agent names it
	Used     api.DialogueUsage

	Asked     table[acpAsked]
	Repeats   table[int]    // how often an id of a tool call has come back
	Terminals table[string] // the tool calls that show them
}

// acpSetting is how the model or the mode is set.
type acpSetting struct {
	Method string // "": it can't be set
	Config string // id of an option
	To     string // what it is to be
}

// acpAsked is a question that waits for an answer.
type acpAsked struct {
	ID     json.RawMessage
	Method string
	Call   string
}

const acpHead = `{"jsonrpc":"2.0",`

func newACP(agent api.Agent) adapter {
	return &acp{Agent: agent, Asked: newTable[acpAsked](maxOpen), Repeats: newTable[int](maxOpen), Terminals: newTable[string](maxOpen)}
}

var errNoProgram = errors.New("the agent acp needs argv: the program to start")

func (a *acp) launch(s Start) (Launch, error) {
	argv := slices.Clone(s.Argv)
	if a.Agent != api.AgentGemini {
		if len(argv) == 0 {
			return Launch{}, errNoProgram
		}
		return Launch{Argv: append(argv, s.Args...)}, nil
	}
	if len(argv) == 0 {
		argv = []string{"gemini"}
	}
	argv = append(argv, "--acp")
	// It would start itself again with more memory, and the first process would only wait.
	return Launch{Argv: append(argv, s.Args...), Env: map[string]string{"GEMINI_CLI_NO_RELAUNCH": "true"}}, nil
}

func (a *acp) typeOf(data []byte) string {
	var r rpcLine
	if !r.parse(data) {
		return ""
	}
	switch {
	case r.method == nil && r.fault != nil:
		return "error"
	case r.method == nil && r.result != nil:
		return "result"
	}
	of := string(r.method)
	if of == "session/update" {
		of += "/" + str(member(member(r.params, "update"), "sessionUpdate"))
	}
	return of
}

func (a *acp) capabilities() *api.DialogueCapabilities {
	c := &api.DialogueCapabilities{Resume: a.Load || a.Resume, Interrupt: true, Images: a.Images, Set: []string{}}
	if a.Model.Method != "" {
		c.Set = append(c.Set, "model")
	}
	if a.Mode.Method != "" {
		c.Set = append(c.Set, "mode")
	}
	return c
}

func (a *acp) begin(f *Fold) {
	was := *a
	*a = *newACP(was.Agent).(*acp)
	a.Load, a.Resume, a.Images = was.Load, was.Resume, was.Images // until the agent says it again
	a.hello(f, 1)
}

// hello begins the handshake, with a version of the protocol.
func (a *acp) hello(f *Fold, version int) {
	a.Version = version
	info := object{}.with("name", "trl").with("title", "TRL").with("version", cmpOr(f.start.Version, "0")).json()
	p := object{}.raw("protocolVersion", []byte(strconv.Itoa(version)))
	if version == 1 {
		p = p.raw("clientCapabilities", []byte(`{"elicitation":{"form":{}}}`)).raw("clientInfo", info)
	} else {
		p = p.raw("capabilities", []byte(`{"elicitation":{"form":{}}}`)).raw("info", info)
	}
	a.call(f, acpHead, "initialize", p, called{})
}

// welcome folds what the agent can do, and opens the session.
func (a *acp) welcome(f *Fold, result []byte) {
	if v := num(member(result, "protocolVersion")); v >= 2 {
		a.Version = 2
	}
	caps, prompt := member(result, "agentCapabilities"), []byte(nil)
	a.Load = isTrue(member(caps, "loadSession"))
	if a.Version == 2 {
		session := member(member(result, "capabilities"), "session")
		a.Load, a.Resume, prompt = false, true, member(session, "prompt")
	} else {
		a.Resume, prompt = has(member(member(caps, "sessionCapabilities"), "resume")), member(caps, "promptCapabilities")
	}
	image := member(prompt, "image")
	a.Images = has(image) && string(image) != "false"
	p := object{}
	method := "session/new"
	if s := &f.start; s.NativeID != "" && s.Resume {
		switch {
		case a.Resume:
			method = "session/resume" // without a repetition of the history
		case a.Load:
			method = "session/load"
			a.Swallow = true
		default:
			f.fail("the agent can't continue a conversation")
			return
		}
		a.Session = s.NativeID
		p = p.with("sessionId", s.NativeID)
	} else if s.Fork {
		f.fail("the agent can't fork a conversation")
		return
	}
	a.call(f, acpHead, method, p.with("cwd", f.start.Cwd).raw("mcpServers", []byte("[]")), called{})
}

// opened folds what the agent says of its session.
func (a *acp) opened(f *Fold, result []byte) {
	if id := str(member(result, "sessionId")); id != "" {
		a.Session = id
	}
	if a.Session == "" {
		f.fail("the agent did not name the session")
		return
	}
	f.native(a.Session)
	a.settings(f, result)
	for _, s := range []struct {
		what, value string
		setting     *acpSetting
	}{{"model", f.start.Model, &a.Model}, {"mode", f.start.Mode, &a.Mode}} {
		if s.value == "" {
			continue
		}
		if s.setting.Method == "" {
			f.fail("the agent can't change its " + s.what)
			return
		}
		a.Settings++
		a.tellSetting(f, s.what, *s.setting, s.value)
	}
	if a.Settings == 0 {
		f.ready()
	}
}

// settings reads the model and the mode, and how they are set.
func (a *acp) settings(f *Fold, result []byte) {
	each(result, func(key, value []byte) {
		switch string(key) {
		case "modes":
			if has(value) {
				f.mode = clip(cmpOr(str(member(value, "currentModeId")), f.mode), maxTitle)
				if a.Mode.Method == "" {
					a.Mode.Method = "session/set_mode"
				}
			}
		case "models":
			if has(value) {
				f.model = clip(cmpOr(str(member(value, "currentModelId")), f.model), maxTitle)
				if a.Model.Method == "" {
					a.Model.Method = "session/set_model"
				}
			}
		case "configOptions":
			items(value, func(value []byte) {
				var id, category, current []byte
				each(value, func(key, value []byte) {
					switch string(key) {
					case "id":
						id = value
					case "category":
						category = inner(value)
					case "currentValue":
						current = value
					}
				})
				setting := acpSetting{Method: "session/set_config_option", Config: str(id)}
				switch string(category) {
				case "model":
					a.Model, f.model = setting, clip(cmpOr(str(current), f.model), maxTitle)
				case "mode":
					a.Mode, f.mode = setting, clip(cmpOr(str(current), f.mode), maxTitle)
				}
			})
		}
	})
}

func (a *acp) tellSetting(f *Fold, what string, s acpSetting, value string) {
	p := object{}.with("sessionId", a.Session)
	switch s.Method {
	case "session/set_config_option":
		p = p.with("configId", s.Config).with("value", value)
	default:
		p = p.with(what+"Id", value)
	}
	a.call(f, acpHead, s.Method, p, called{Msg: what, Arg: value})
}

func (a *acp) set(f *Fold, model, mode string) error {
	if !f.isReady {
		f.start.Model, f.start.Mode = cmpOr(model, f.start.Model), cmpOr(mode, f.start.Mode)
		return nil
	}
	if model != "" && a.Model.Method == "" {
		return &api.Error{Code: api.CodeInvalidParams, Message: "the agent can't change its model", Hint: "see capabilities.set of dialogue.info"}
	}
	if mode != "" && a.Mode.Method == "" {
		return &api.Error{Code: api.CodeInvalidParams, Message: "the agent can't change its mode", Hint: "see capabilities.set of dialogue.info"}
	}
	if model != "" {
		a.tellSetting(f, "model", a.Model, model)
	}
	if mode != "" {
		a.tellSetting(f, "mode", a.Mode, mode)
	}
	return nil
}

// open reports whether the agent is at a turn.
func (a *acp) open() bool { return a.Prompt != 0 || a.Running }

func (a *acp) message(f *Fold, m *message) error {
	if _, err := prompt(m); err != nil {
		return err
	}
	a.Queue = append(a.Queue, m.ID)
	a.next(f)
	return nil
}

// next says the message that has waited longest, if the agent is at no turn.
func (a *acp) next(f *Fold) {
	for len(a.Queue) > 0 && !a.open() {
		id := a.Queue[0]
		a.Queue = a.Queue[1:]
		i := slices.IndexFunc(f.pending, func(m *message) bool { return m.ID == id })
		if i < 0 {
			continue
		}
		blocks, err := prompt(f.pending[i])
		if err != nil {
			continue
		}
		a.Swallow = false
		n := len(f.out)
		a.call(f, acpHead, "session/prompt", object{}.with("sessionId", a.Session).raw("prompt", blocks), called{Msg: id})
		for ; n < len(f.out); n++ {
			f.out[n].Msg = id
		}
		a.Prompt, a.Saying, a.Stopped = a.Next, id, false
	}
}

// prompt returns the blocks of a message.
func prompt(m *message) ([]byte, error) {
	var blocks [][]byte
	if m.Text != "" || len(m.Content) == 0 {
		blocks = append(blocks, object{}.with("type", "text").with("text", m.Text).json())
	}
	for _, b := range m.Content {
		switch {
		case b.Type == "image" && b.Data != "":
			blocks = append(blocks, object{}.with("type", "image").with("data", b.Data).with("mimeType", cmpOr(b.Mime, "image/png")).json())
		case b.Text != "":
			blocks = append(blocks, object{}.with("type", "text").with("text", b.Text).json())
		case b.URI != "":
			blocks = append(blocks, object{}.with("type", "resource_link").with("uri", b.URI).with("name", b.URI[strings.LastIndexByte(b.URI, '/')+1:]).json())
		default:
			return nil, fmt.Errorf("a block of type %q has nothing to say", b.Type)
		}
	}
	return list(blocks...), nil
}

// again: the agent does not repeat messages, so it may have taken this one.
func (a *acp) again(*Fold, *message) bool { return false }

func (a *acp) interrupt(f *Fold) error {
	if !a.open() || a.Stopped {
		return nil
	}
	a.Stopped = true
	notify(f, acpHead, "cancel"+strconv.FormatInt(f.record, 10), "session/cancel", object{}.with("sessionId", a.Session))
	// No client answers what the agent asks in a turn that is to stop.
	for _, id := range slices.Clone(a.Asked.order) {
		if asked, ok := a.Asked.get(id); ok {
			a.withdraw(f, id, &asked)
		}
	}
	return nil
}

// withdraw answers a question that no client will answer.
func (a *acp) withdraw(f *Fold, id string, asked *acpAsked) {
	a.Asked.delete(id)
	if !f.isOpen(id) {
		return
	}
	if asked.Method == "elicitation/create" {
		reply(f, acpHead, asked.ID, "result", []byte(`{"action":"cancel"}`))
	} else {
		reply(f, acpHead, asked.ID, "result", []byte(`{"outcome":{"outcome":"cancelled"}}`))
	}
	f.withdrawn(id)
}

func (a *acp) exit(*Fold, *Exit) {}

func (a *acp) line(f *Fold, l *line) {
	var r rpcLine
	if l.data[0] != '{' || !r.parse(l.data) {
		f.garbage(l)
		return
	}
	switch {
	case r.method != nil && has(r.id) && len(r.id) <= maxRequestID:
		a.asked(f, l, &r)
	case r.method != nil && !has(r.id):
		a.notified(f, l, &r)
	case has(r.id) && r.method == nil:
		a.response(f, l, &r)
	default:
		f.unknown(l, "")
	}
	if !a.open() && !l.counted {
		f.loose()
	}
	a.next(f)
}

// response folds the answer to a request.
func (a *acp) response(f *Fold, l *line, r *rpcLine) {
	id := string(r.id)
	call, ok := a.answered(r.id)
	if !ok {
		f.unknown(l, "result")
		return
	}
	failed := has(r.fault)
	switch call.What {
	case "initialize":
		switch {
		case !failed:
			a.welcome(f, r.result)
		case a.Version == 1 && speaks(r.fault, 2):
			a.hello(f, 2)
		default:
			f.fail(faultText(r.fault))
		}
	case "session/new", "session/load", "session/resume":
		if failed {
			f.fail(faultText(r.fault))
			return
		}
		a.opened(f, r.result)
	case "session/prompt":
		if strconv.FormatInt(a.Prompt, 10) == id {
			a.prompted(f, r, failed)
		}
	case "session/set_model", "session/set_mode", "session/set_config_option":
		a.hasSet(f, call, r, failed)
	}
}

// speaks reports whether an error names a version of the protocol that the agent speaks.
func speaks(fault []byte, version int64) bool {
	found := false
	items(member(member(fault, "data"), "supported"), func(value []byte) { found = found || num(value) == version })
	return found
}

// hasSet folds that the model or the mode is set.
func (a *acp) hasSet(f *Fold, call called, r *rpcLine, failed bool) {
	first := a.Settings > 0
	if first {
		a.Settings--
	}
	switch {
	case failed && first:
		f.fail("the agent refused the " + call.Msg + ": " + faultText(r.fault))
		return
	case failed:
		f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: "the agent refused to change its " + call.Msg + ": " + faultText(r.fault)})
		return
	case call.Msg == "model":
		f.model = clip(call.Arg, maxTitle)
	default:
		f.mode = clip(call.Arg, maxTitle)
	}
	a.settings(f, r.result)
	if first && a.Settings == 0 && f.failed == "" {
		f.ready()
	}
}

// begun notes that the agent works on the message that was said last.
func (a *acp) begun(f *Fold) {
	if !a.open() {
		return
	}
	if f.turn == nil {
		a.closeText(f)
		origin := "agent"
		if a.Saying != "" {
			origin = "user"
		}
		f.beginTurn(origin)
	}
	if a.Saying != "" {
		f.taken(a.Saying)
		a.Saying = ""
	}
	f.moved()
}

// prompted folds the answer to a prompt. In version 1 it ends the turn, in version 2
// it begins one.
func (a *acp) prompted(f *Fold, r *rpcLine, failed bool) {
	if a.Version == 2 && !failed {
		a.Running = true
		a.begun(f)
		a.Prompt = 0
		return
	}
	a.begun(f)
	if failed {
		message := faultText(r.fault)
		f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: message})
		a.endTurn(f, "failed", "error", nil)
		return
	}
	a.endTurn(f, "", str(member(r.result, "stopReason")), a.spent(f, r.result))
}

// endTurn ends the turn for the agent's reason.
func (a *acp) endTurn(f *Fold, status, reason string, usage *api.DialogueUsage) {
	if status == "" {
		switch reason {
		case "end_turn", "":
			status = "done"
		case "cancelled":
			status = "interrupted"
		default: // a limit, or a refusal
			status = "failed"
			f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: "the agent stopped: " + reason, Reason: reason})
		}
	}
	a.closeText(f)
	for _, id := range slices.Clone(a.Asked.order) {
		a.Asked.delete(id)
	}
	a.Prompt, a.Saying, a.Running, a.Stopped = 0, "", false, false
	f.busy = false
	f.endTurn(status, clip(reason, maxTitle), usage)
}

// spent adds what a turn has used.
func (a *acp) spent(f *Fold, result []byte) *api.DialogueUsage {
	var turn api.DialogueUsage
	switch usage, quota := member(result, "usage"), member(member(member(result, "_meta"), "quota"), "token_count"); {
	case has(quota): // of this turn
		turn.InputTokens, turn.OutputTokens = num(member(quota, "input_tokens")), num(member(quota, "output_tokens"))
	case has(usage): // of the session
		var sum api.DialogueUsage
		each(usage, func(key, value []byte) {
			switch string(key) {
			case "inputTokens":
				sum.InputTokens = num(value)
			case "outputTokens":
				sum.OutputTokens = num(value)
			case "cachedReadTokens":
				sum.CachedInputTokens = num(value)
			case "cachedWriteTokens":
				sum.CacheWriteTokens = num(value)
			case "thoughtTokens":
				sum.ReasoningTokens = num(value)
			}
		})
		if sum.InputTokens < a.Used.InputTokens || sum.OutputTokens < a.Used.OutputTokens {
			turn = sum // the agent counts for each turn
		} else {
			turn = lessUsage(sum, a.Used)
		}
	default:
		return nil
	}
	sum := addUsage(a.Used, turn)
	sum.CostUSD, sum.ContextTokens, sum.ContextWindow = f.used.CostUSD, f.used.ContextTokens, f.used.ContextWindow
	a.Used = sum
	f.spend(sum)
	return &turn
}
