package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// codex is the adapter for Codex, `codex app-server`: JSON-RPC without the jsonrpc
// member, one object a line. What it says is by thread, turn and item.
type codex struct {
	rpc
	Thread string            // the agent's name of the conversation
	Turn   string            // the agent's name of the open turn; "" if there is none
	Sent   []codexSent       // messages that a turn has, but no item has shown
	Stop   bool              // interrupt the next turn when it begins
	Agents table[codexAgent] // subagents, by their threads
	Asked  table[codexAsked] // open questions, by their ids
	Runs   table[string]     // open commands by their ids, and what was approved
	Total  table[codexUsage] // by thread
	Before api.DialogueUsage // used before the open turn
	Blamed string            // the turn whose error is known
	Looked bool              // the history of the thread has been read
	Model  string            // to be set
	Mode   string

	// The last item that was named, so that a stream of pieces need not name it again.
	lastTurn, lastItem []byte
	lastKind           string
	lastName           string
}

type codexSent struct{ Msg, Turn string }

// codexAgent is a subagent.
type codexAgent struct {
	Call string // the tool call in which it works
	Idle bool   // it has finished its turn
}

// codexAsked is a request of the agent that waits for an answer.
type codexAsked struct {
	ID     json.RawMessage
	Method string
	Call   string            // its tool call
	Rules  []json.RawMessage // decisions that suggestions stand for
	Grant  json.RawMessage   // permissions that are asked for
	What   string            // a sum of the command that is asked for
}

// size returns how much is kept of what the answer has to repeat.
func (q *codexAsked) size() int {
	n := len(q.Grant)
	for _, rule := range q.Rules {
		n += len(rule)
	}
	return n
}

type codexUsage struct{ Base, Now api.DialogueUsage }

// codexHead is how each line begins.
const codexHead = "{"

// Bounds of what is kept of an agent that opens things without end.
const (
	maxAgents = 512
	maxOpen   = 1024
	maxAsked  = 256 // each keeps up to maxRule bytes
)

func newCodex() adapter {
	return &codex{
		Agents: newTable[codexAgent](maxAgents), Asked: newTable[codexAsked](maxAsked), Runs: newTable[string](maxOpen), Total: newTable[codexUsage](maxAgents),
	}
}

func (c *codex) launch(s Start) (Launch, error) {
	argv := s.Argv
	if len(argv) == 0 {
		argv = []string{"codex"}
	}
	argv = append(slices.Clone(argv), "app-server")
	return Launch{Argv: append(argv, s.Args...)}, nil
}

func (c *codex) typeOf(data []byte) string {
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
	if of == "item/started" || of == "item/completed" {
		of += "/" + str(member(member(r.params, "item"), "type"))
	}
	return of
}

func (c *codex) capabilities() *api.DialogueCapabilities {
	return &api.DialogueCapabilities{
		Resume: true, Fork: true, ForkAt: true, Interrupt: true, Queue: true, Images: true, Confirms: true, Nesting: true,
		Set: []string{"model", "mode"},
	}
}

func (c *codex) begin(f *Fold) {
	*c = *newCodex().(*codex)
	info := object{}.with("name", "trl").with("title", "TRL").with("version", cmpOr(f.start.Version, "0"))
	c.call(f, codexHead, "initialize", object{}.raw("clientInfo", info.json()).
		raw("capabilities", []byte(`{"experimentalApi":true,"requestAttestation":false}`)), called{})
}

// open opens or continues the thread.
func (c *codex) open(f *Fold) {
	s := &f.start
	method, p := "thread/start", object{}
	if s.NativeID != "" && (s.Resume || s.Fork) {
		method, p = "thread/resume", p.with("threadId", s.NativeID)
		if s.Fork {
			method = "thread/fork"
			if s.ForkAt != "" {
				p = p.with("lastTurnId", s.ForkAt)
			}
		}
	}
	if s.Cwd != "" {
		p = p.with("cwd", s.Cwd)
	}
	if s.Model != "" {
		p = p.with("model", s.Model)
	}
	policy, sandbox := codexMode(s.Mode)
	if policy != "" {
		p = p.with("approvalPolicy", policy)
	}
	if sandbox != "" {
		p = p.with("sandbox", sandbox)
	}
	if method != "thread/start" {
		p = p.raw("excludeTurns", []byte("true"))
	}
	c.call(f, codexHead, method, p, called{})
}

// codexMode splits a mode, which is an approval policy, a sandbox mode, or both with
// a slash between them, as in on-request/workspace-write.
func codexMode(mode string) (policy, sandbox string) {
	policy, sandbox, _ = strings.Cut(mode, "/")
	switch policy {
	case "read-only", "workspace-write", "danger-full-access":
		return "", policy
	}
	return policy, sandbox
}

// sandboxPolicy returns a sandbox mode as a policy.
func sandboxPolicy(mode string) []byte {
	switch mode {
	case "read-only":
		return []byte(`{"type":"readOnly","networkAccess":false}`)
	case "workspace-write":
		return []byte(`{"type":"workspaceWrite","writableRoots":[],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}`)
	case "danger-full-access":
		return []byte(`{"type":"dangerFullAccess"}`)
	}
	return nil
}

// settings notes the model and the mode that the agent names.
func (c *codex) settings(f *Fold, raw []byte) {
	policy, sandbox := "", ""
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "model":
			f.model = clip(cmpOr(str(value), f.model), maxTitle)
		case "approvalPolicy":
			if policy = str(value); policy == "" && has(value) {
				policy = "granular"
			}
		case "sandbox", "sandboxPolicy":
			switch string(inner(member(value, "type"))) {
			case "readOnly":
				sandbox = "read-only"
			case "workspaceWrite":
				sandbox = "workspace-write"
			case "dangerFullAccess":
				sandbox = "danger-full-access"
			case "externalSandbox":
				sandbox = "external"
			}
		}
	})
	if policy != "" && sandbox != "" {
		f.mode = clip(policy, maxTitle) + "/" + sandbox
	}
}

func (c *codex) message(f *Fold, m *message) error {
	var input [][]byte
	text := func(s string) {
		input = append(input, object{}.with("type", "text").with("text", s).raw("text_elements", []byte("[]")).json())
	}
	if m.Text != "" || len(m.Content) == 0 {
		text(m.Text)
	}
	for _, b := range m.Content {
		switch {
		case b.Type == "image" && b.Data != "":
			input = append(input, object{}.with("type", "image").with("url", "data:"+cmpOr(b.Mime, "image/png")+";base64,"+b.Data).json())
		case b.Type == "image":
			input = append(input, object{}.with("type", "image").with("url", b.URI).json())
		default:
			text(cmpOr(b.Text, b.URI))
		}
	}
	p := object{}.with("threadId", c.Thread).with("clientUserMessageId", clientID(m)).raw("input", list(input...))
	c.call(f, codexHead, "turn/start", p, called{Msg: m.ID})
	return nil
}

// clientID is the name of a message that the agent repeats.
func clientID(m *message) string { return strings.TrimPrefix(m.ID, "u:") }

func (c *codex) again(*Fold, *message) bool { return c.Looked }

func (c *codex) interrupt(f *Fold) error {
	switch {
	case c.Turn != "":
		c.call(f, codexHead, "turn/interrupt", object{}.with("threadId", c.Thread).with("turnId", c.Turn), called{Arg: c.Turn})
	case c.starting():
		c.Stop = true
	}
	return nil
}

// starting reports whether a turn has been asked for and has not begun.
func (c *codex) starting() bool {
	if len(c.Sent) > 0 {
		return true
	}
	for _, call := range c.Calls {
		if call.What == "turn/start" {
			return true
		}
	}
	return false
}

func (c *codex) set(f *Fold, model, mode string) error {
	c.Model, c.Mode = cmpOr(model, c.Model), cmpOr(mode, c.Mode)
	if f.isReady {
		c.tellSettings(f)
	}
	return nil
}

// tellSettings tells the model and the mode that are to be set.
func (c *codex) tellSettings(f *Fold) {
	p := object{}.with("threadId", c.Thread)
	if c.Model != "" {
		p = p.with("model", c.Model)
	}
	policy, sandbox := codexMode(c.Mode)
	if policy != "" {
		p = p.with("approvalPolicy", policy)
	}
	if sandbox := sandboxPolicy(sandbox); sandbox != nil {
		p = p.raw("sandboxPolicy", sandbox)
	}
	if len(p) > 1 {
		c.call(f, codexHead, "thread/settings/update", p, called{})
	}
	c.Model, c.Mode = "", ""
}

func (c *codex) exit(*Fold, *Exit) {}

func (c *codex) line(f *Fold, l *line) {
	var r rpcLine
	if !r.parse(l.data) {
		f.garbage(l)
		return
	}
	switch {
	case r.method != nil && has(r.id) && len(r.id) <= maxRequestID:
		c.asked(f, l, &r)
	case r.method != nil && !has(r.id):
		c.notified(f, l, &r)
	case has(r.id) || has(r.fault):
		c.response(f, l, &r)
	default:
		f.unknown(l, "")
	}
	if c.Turn == "" && !l.counted {
		f.loose()
	}
}

// response folds the answer to a request.
func (c *codex) response(f *Fold, l *line, r *rpcLine) {
	call, ok := c.answered(r.id)
	if !ok {
		if !l.orphan {
			f.unknown(l, "result")
		}
		return
	}
	failed := has(r.fault)
	switch call.What {
	case "initialize":
		if failed {
			f.fail(faultText(r.fault))
			return
		}
		notify(f, codexHead, "initialized", "initialized", nil)
		c.open(f)
	case "thread/start", "thread/resume", "thread/fork":
		if failed {
			f.fail(faultText(r.fault))
			return
		}
		c.Thread = str(member(member(r.result, "thread"), "id"))
		if c.Thread == "" {
			f.fail("the agent did not name the thread")
			return
		}
		f.native(c.Thread)
		c.settings(f, r.result)
		if call.What == "thread/resume" && slices.ContainsFunc(f.pending, func(m *message) bool { return m.Written != 0 }) {
			// Some messages may have been taken by an agent that ended before it said so.
			c.call(f, codexHead, "thread/turns/list", object{}.with("threadId", c.Thread).raw("limit", []byte("4")).with("itemsView", "full"), called{})
			return
		}
		c.begun(f)
	case "thread/turns/list":
		if !failed {
			c.Looked = true
			c.history(f, r.result)
		}
		c.begun(f)
	case "turn/start":
		if failed {
			f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: faultText(r.fault)})
			f.dropMessage(call.Msg)
			return
		}
		if e := f.get(call.Msg); e != nil && (e.Delivery == "accepted" || e.Delivery == "written") {
			c.Sent = append(c.Sent, codexSent{Msg: call.Msg, Turn: str(member(member(r.result, "turn"), "id"))})
		}
	case "turn/interrupt": // it fails if the turn has ended meanwhile
	default:
		if failed {
			f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: faultText(r.fault)})
		}
	}
}

// begun ends the handshake.
func (c *codex) begun(f *Fold) {
	if c.Model != "" || c.Mode != "" {
		c.tellSettings(f)
	}
	f.ready()
}

// history takes the messages that the thread has already.
func (c *codex) history(f *Fold, result []byte) {
	items(member(result, "data"), func(turn []byte) {
		items(member(turn, "items"), func(item []byte) {
			if id := str(member(item, "clientId")); id != "" {
				f.delivery("u:"+id, "taken")
			}
		})
	})
}
