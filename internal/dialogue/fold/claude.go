package fold

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// claude is the adapter for Claude Code, in its mode with JSON lines both ways.
type claude struct {
	Init    string // the request of the handshake
	States  bool   // this run says running and idle itself
	Running bool   // what it has said last
	Agents  int    // background tasks that hold a turn open
	Started bool   // a message of a person sets off the next turn
	Cost    float64
	Last    string // the last message of the main agent, as the agent names it

	Streams  table[*claudeStream] // by parent
	Tasks    table[claudeTask]    // by the agent's name of the task
	Denied   table[bool]          // calls that must not run
	Asks     table[*claudeAsk]    // open questions, by id
	Sent     table[string]        // answers that are not echoed yet: their sums, by request
	Requests table[claudeRequest] // our own, not answered yet
	Said     table[string]        // ids of messages by the uuid that they were sent with
}

// claudeStream is the message that an agent streams.
type claudeStream struct {
	Msg    string
	Blocks []claudeBlock
}

type claudeBlock struct {
	Index int64
	Kind  string // text, thinking, or "": nothing to be streamed
	ID    string // of the entity
	Whole bool   // the whole block has come
}

type claudeTask struct {
	Call  string // id of the tool call
	Holds bool   // it is an agent: the dialogue is not idle before it ends
	Final string // how it ended, in the agent's words
}

type claudeAsk struct {
	Request string
	Tool    string
	Call    string
	Input   []byte            // as the agent wrote it; nil: too long, read it again
	Raw     api.DialogueRange // the line
	Rules   [][]byte          // suggestions, as the agent wrote them
	Titles  []string          // of fields, for the answers
}

type claudeRequest struct{ What, Value string }

func newClaude() *claude {
	const some = 1024
	return &claude{
		Streams: newTable[*claudeStream](64), Tasks: newTable[claudeTask](some), Denied: newTable[bool](some), Asks: newTable[*claudeAsk](256),
		Sent: newTable[string](256), Requests: newTable[claudeRequest](256), Said: newTable[string](some),
	}
}

func (c *claude) capabilities() *api.DialogueCapabilities {
	return &api.DialogueCapabilities{
		Resume: true, Fork: true, ForkAt: true, Interrupt: true, Queue: true, Images: true, Confirms: true, Nesting: true, Set: []string{"model", "mode"},
	}
}

func (c *claude) launch(s Start) (Launch, error) {
	argv := s.Argv
	if len(argv) == 0 {
		argv = []string{"claude"}
	}
	argv = append(append([]string(nil), argv...),
		"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--include-partial-messages", "--replay-user-messages", "--forward-subagent-text", "--permission-prompt-tool", "stdio")
	l := Launch{Env: map[string]string{"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}, Unset: []string{"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"}}
	switch {
	case s.Resume || s.Fork:
		if s.NativeID == "" {
			return Launch{}, fmt.Errorf("claude: no conversation to continue")
		}
		argv = append(argv, "--resume="+s.NativeID)
		if s.Fork {
			argv = append(argv, "--fork-session")
			if s.ForkAt != "" {
				argv = append(argv, "--resume-session-at="+s.ForkAt)
			}
		} else {
			l.NativeID = s.NativeID
		}
	case s.NativeID != "":
		argv = append(argv, "--session-id="+s.NativeID)
		l.NativeID = s.NativeID
	}
	if s.Model != "" {
		argv = append(argv, "--model="+s.Model)
	}
	if s.Mode != "" {
		argv = append(argv, "--permission-mode="+s.Mode)
	}
	argv = append(argv, s.Args...)
	l.Argv = argv
	return l, nil
}

// begin starts a run with the handshake.
func (c *claude) begin(f *Fold) {
	said := c.Said
	*c = *newClaude()
	c.Said = said
	c.Init = "trl-" + strconv.Itoa(f.run) + "-init"
	f.tell("init", []byte(`{"type":"control_request","request_id":"`+c.Init+`","request":{"subtype":"initialize"}}`))
}

// exit forgets what the run had.
func (c *claude) exit(*Fold, *Exit) {}

// line folds one line.
func (c *claude) line(f *Fold, l *line) {
	var e claudeEvent
	if l.data[0] != '{' {
		f.garbage(l)
		return
	}
	if !e.read(l.data) {
		// A line with bytes that are no UTF-8 is read as encoding/json would.
		e = claudeEvent{}
		l.data = bytes.ToValidUTF8(l.data, []byte("\uFFFD"))
		if !e.read(l.data) {
			f.garbage(l)
			return
		}
	}
	if !l.counted && !isTrue(e.isReplay) && f.repeated(e.uuid) {
		return
	}
	if id := e.session; len(id) > 2 && !is(id, f.nativeID) {
		f.native(str(id))
	}
	c.event(f, l, &e)
	f.busy = c.Running
	if !c.States {
		f.busy = c.Agents > 0
	}
}

func (c *claude) event(f *Fold, l *line, e *claudeEvent) {
	switch string(e.typ) {
	case `"stream_event"`:
		if c.parent(f, l, e) {
			c.stream(f, e)
		}
	case `"assistant"`:
		if c.parent(f, l, e) {
			c.assistant(f, l, e)
		}
	case `"user"`:
		if c.parent(f, l, e) {
			c.user(f, l, e)
		}
	case `"system"`:
		c.system(f, l, e)
	case `"result"`:
		c.result(f, e)
	case `"command_lifecycle"`:
		c.lifecycle(f, e)
	case `"control_request"`:
		c.asks(f, l, e)
	case `"control_cancel_request"`:
		id := c.question(f, e.requestID)
		f.withdrawn(id)
		c.Asks.delete(id)
	case `"control_response"`:
		c.responds(f, e)
	case `"rate_limit_event"`, `"tool_progress"`, `"tool_use_summary"`, `"keep_alive"`, `"prompt_suggestion"`, `"auth_status"`:
		// Nothing of them is in a transcript.
	default:
		f.unknown(l, typeName(str(e.typ), str(e.subtype)))
	}
}

// parent resolves the parent of an event. It reports false if the line waits for it.
func (c *claude) parent(f *Fold, l *line, e *claudeEvent) bool {
	if len(e.parent) <= 2 || e.parent[0] != '"' {
		e.parent = nil
		return true
	}
	return !f.wait(l, callID(str(e.parent)))
}

func callID(native string) string { return name("c:", native) }

func (e *claudeEvent) parentID() string {
	if e.parent == nil {
		return ""
	}
	return callID(str(e.parent))
}

// stream folds a piece of a message.
func (c *claude) stream(f *Fold, e *claudeEvent) {
	var typ, index, message, block, delta []byte
	each(e.event, func(key, v []byte) {
		switch string(key) {
		case "type":
			typ = v
		case "index":
			index = v
		case "message":
			message = v
		case "content_block":
			block = v
		case "delta":
			delta = v
		}
	})
	parent := e.parentID()
	f.moved()
	if parent == "" {
		f.beginTurn("")
	}
	switch string(typ) {
	case `"message_start"`:
		c.endStream(f, parent)
		c.Streams.put(parent, &claudeStream{Msg: name("", str(member(message, "id")))})
	case `"content_block_start"`:
		s, ok := c.Streams.get(parent)
		if !ok || len(s.Blocks) >= maxItems {
			return
		}
		b := claudeBlock{Index: num(index)}
		var kind, id, tool []byte
		each(block, func(key, v []byte) {
			switch string(key) {
			case "type":
				kind = v
			case "id":
				id = v
			case "name":
				tool = v
			}
		})
		switch string(kind) {
		case `"text"`, `"thinking"`:
			b.Kind = str(kind)
			b.ID = "m:" + letters(parent, s.Msg, strconv.FormatInt(b.Index, 10))
			f.put(api.DialogueEntity{Type: api.EntityMessage, ID: b.ID, Role: claudeRole(b.Kind), Parent: parent})
		case `"tool_use"`, `"server_tool_use"`, `"mcp_tool_use"`:
			tool := str(tool)
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: callID(str(id)), Parent: parent, Name: tool, Kind: claudeKind(tool), Status: "pending"})
		}
		s.Blocks = append(s.Blocks, b)
	case `"content_block_delta"`:
		s, ok := c.Streams.get(parent)
		if !ok {
			return
		}
		n := num(index)
		for i := len(s.Blocks) - 1; i >= 0; i-- {
			if b := &s.Blocks[i]; b.Index == n {
				if b.Kind != "" && !b.Whole {
					f.append(b.ID, "text", claudeDelta(delta))
				}
				break
			}
		}
	case `"message_stop"`:
		c.endStream(f, parent)
	}
}

// claudeDelta returns the text of a delta, "" if it has none.
func claudeDelta(delta []byte) string {
	text := ""
	each(delta, func(key, v []byte) {
		switch string(key) {
		case "text", "thinking":
			text = str(v)
		}
	})
	return text
}

// endStream closes what the last message of an agent has left open.
func (c *claude) endStream(f *Fold, parent string) {
	s, ok := c.Streams.get(parent)
	if !ok {
		return
	}
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.Kind != "" && !b.Whole {
			f.put(api.DialogueEntity{Type: api.EntityMessage, ID: b.ID, Final: true})
		}
	}
	c.Streams.delete(parent)
}

func claudeRole(kind string) string {
	if kind == "thinking" {
		return "thought"
	}
	return "agent"
}

// assistant folds whole blocks of a message.
func (c *claude) assistant(f *Fold, l *line, e *claudeEvent) {
	var id, content []byte
	each(e.message, func(key, v []byte) {
		switch string(key) {
		case "id":
			id = v
		case "content":
			content = v
		}
	})
	parent := e.parentID()
	f.moved()
	if parent == "" {
		f.beginTurn("")
		c.Last = clip(str(e.uuid), maxID)
	}
	msg := name("", str(id))
	n := 0
	items(content, func(b []byte) {
		c.block(f, l, e, b, parent, msg, n)
		n++
	})
}

func (c *claude) block(f *Fold, l *line, e *claudeEvent, b []byte, parent, msg string, n int) {
	var kind, text, id, tool, input []byte
	each(b, func(key, v []byte) {
		switch string(key) {
		case "type":
			kind = v
		case "text", "thinking":
			text = v
		case "id":
			id = v
		case "name":
			tool = v
		case "input":
			input = v
		}
	})
	switch string(kind) {
	case `"text"`, `"thinking"`:
		kind := str(kind)
		text, whole := l.text(text)
		if s, ok := c.Streams.get(parent); ok && s.Msg == msg {
			for i := range s.Blocks {
				if sb := &s.Blocks[i]; sb.Kind == kind && !sb.Whole {
					sb.Whole = true
					f.finish(sb.ID, text, whole)
					return
				}
			}
		}
		m := api.DialogueEntity{
			Type: api.EntityMessage, ID: "m:" + letters(parent, msg, str(e.uuid), strconv.Itoa(n)), Role: claudeRole(kind), Parent: parent, Text: text, Final: true,
		}
		if whole > int64(len(text)) {
			m.Cut = map[string]int64{"text": whole}
		}
		f.put(m)
	case `"tool_use"`, `"server_tool_use"`, `"mcp_tool_use"`:
		c.call(f, l, callID(str(id)), str(tool), parent, input)
	case `"web_search_tool_result"`, `"web_fetch_tool_result"`, `"mcp_tool_result"`, `"code_execution_tool_result"`:
		c.toolResult(f, l, e, b)
	}
}

// call folds a tool call with its input.
func (c *claude) call(f *Fold, l *line, id, tool, parent string, input []byte) {
	d := claudeInput(tool, input)
	call := api.DialogueEntity{
		Type: api.EntityToolCall, ID: id, Parent: parent, Name: tool, Kind: claudeKind(tool), Status: "running", Raw: f.here(),
		Title: d.title, Input: input, Diff: d.diff, Locations: d.locations,
	}
	if l.long && len(input) > maxOutput {
		call.Cut = map[string]int64{"input": l.raw.Bytes}
	}
	f.put(call)
	if len(d.plan) > 0 {
		f.put(api.DialogueEntity{Type: api.EntityPlan, ID: "p:" + strings.TrimPrefix(parent, "c:"), Parent: parent, Entries: d.plan})
	}
}

// user folds results of tools, echoes of what a person said, and what the agent says
// to itself in that role.
func (c *claude) user(f *Fold, l *line, e *claudeEvent) {
	content := member(e.message, "content")
	if isTrue(e.isReplay) && e.parent == nil {
		if c.echo(f, e, content) {
			return
		}
	}
	n := 0
	one := func(kind, text []byte) {
		if string(kind) != `"text"` {
			return
		}
		role := "system"
		if e.parent != nil || isTrue(e.isReplay) {
			role = "user"
		}
		s, whole := l.text(text)
		m := api.DialogueEntity{Type: api.EntityMessage, ID: "m:" + letters("user", str(e.uuid), strconv.Itoa(n)), Role: role, Parent: e.parentID(), Text: s, Final: true}
		if whole > int64(len(s)) {
			m.Cut = map[string]int64{"text": whole}
		}
		f.put(m)
		n++
	}
	if len(content) > 0 && content[0] == '"' {
		one([]byte(`"text"`), content)
		return
	}
	items(content, func(b []byte) {
		var kind, text []byte
		each(b, func(key, v []byte) {
			switch string(key) {
			case "type":
				kind = v
			case "text":
				text = v
			}
		})
		if string(kind) == `"tool_result"` {
			c.toolResult(f, l, e, b)
			return
		}
		one(kind, text)
	})
}

// echo takes the agent's repetition of a message of ours.
func (c *claude) echo(f *Fold, e *claudeEvent, content []byte) bool {
	id, ok := c.Said.get(str(e.uuid))
	if !ok {
		return false
	}
	for _, m := range f.pending {
		if m.ID == id && len(m.Content) == 0 && len(content) > 0 && content[0] == '"' && str(content) != strings.ToValidUTF8(m.Text, "\uFFFD") && !strings.HasPrefix(m.Text, "/") && !f.cur.long {
			f.fault(api.DialogueEntity{Code: api.DialogueAltered, Message: "the agent repeated the message " + id + " differently"})
		}
	}
	if f.taken(id) {
		if f.turn != nil {
			f.beginTurn("user")
		} else {
			c.Started = true
		}
	}
	return true
}

// lifecycle says how far a message has come.
func (c *claude) lifecycle(f *Fold, e *claudeEvent) {
	id, ok := c.Said.get(str(e.command))
	state := str(e.state)
	if state == "started" {
		if f.turn != nil {
			f.beginTurn("user") // it joins the turn
		} else {
			c.Started = true
		}
	}
	if !ok {
		return
	}
	switch state {
	case "started":
		f.taken(id)
	case "completed":
		f.taken(id)
		f.done(id)
	case "cancelled":
		if x := f.get(id); x != nil && deliveryRank(x.Delivery) >= deliveryRank("taken") {
			f.done(id)
		} else {
			f.dropMessage(id)
		}
	}
}
