package fold

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// notified folds a notification.
func (a *acp) notified(f *Fold, l *line, r *rpcLine) {
	switch string(r.method) {
	case "session/update":
		a.updated(f, l, r.params)
	case "$/cancel_request":
		id := name("q:"+strconv.Itoa(f.run)+":", idText(member(r.params, "requestId")))
		a.Asked.delete(id)
		f.withdrawn(id)
	case "elicitation/complete":
	default:
		f.unknown(l, clip(string(r.method), 256))
	}
}

// updated folds an update of the session.
func (a *acp) updated(f *Fold, l *line, params []byte) {
	var update, session []byte
	each(params, func(key, value []byte) {
		switch string(key) {
		case "update":
			update = value
		case "sessionId":
			session = value
		}
	})
	var u acpUpdate
	if !u.parse(update) {
		f.unknown(l, "session/update")
		return
	}
	of := string(u.kind)
	if a.Session != "" && !is(session, a.Session) && has(session) {
		f.unknown(l, "session/update/"+of)
		return
	}
	switch of {
	case "available_commands_update", "session_info_update":
		return
	case "current_mode_update":
		f.mode = clip(cmpOr(str(u.mode), f.mode), maxTitle)
		return
	case "config_option_update":
		a.settings(f, update)
		return
	case "usage_update":
		a.used(f, &u)
		return
	case "state_update":
		a.state(f, &u)
		return
	}
	if a.Swallow {
		return // history
	}
	switch of {
	case "user_message_chunk", "user_message":
		a.begun(f)
		a.userText(f, l, &u)
		return
	case "agent_message_chunk":
		if mode, ok := a.newMode(u.content); ok {
			f.mode = clip(mode, maxTitle)
			return
		}
		a.begun(f)
		a.chunk(f, l, &u, "agent")
		return
	case "agent_thought_chunk":
		a.begun(f)
		a.chunk(f, l, &u, "thought")
		return
	case "agent_message":
		a.begun(f)
		a.wholeText(f, l, &u, "agent")
	case "agent_thought":
		a.begun(f)
		a.wholeText(f, l, &u, "thought")
	case "tool_call", "tool_call_update":
		a.begun(f)
		a.closeText(f)
		a.toolCall(f, l, update, of == "tool_call")
	case "tool_call_content_chunk":
		a.begun(f)
		a.closeText(f)
		text, _ := a.content(l, list(u.content), "")
		f.append(a.name(f, u.call, false), "output", text)
	case "terminal_output_chunk":
		if data, err := base64.StdEncoding.DecodeString(str(u.data)); err == nil {
			if call, ok := a.Terminals.get(keyOf(str(u.terminal))); ok {
				f.append(call, "output", strings.ToValidUTF8(string(data), "\uFFFD"))
			}
		}
	case "terminal_update":
		if call, ok := a.Terminals.get(keyOf(str(u.terminal))); ok && f.get(call) != nil {
			if code := member(u.exit, "exitCode"); has(code) {
				n := int(num(code))
				f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: call, ExitCode: &n})
			}
		}
	case "plan", "plan_update":
		a.begun(f)
		a.closeText(f)
		id, entries := f.turnID(), u.entries
		if has(u.plan) {
			id, entries = str(member(u.plan, "planId")), member(u.plan, "entries")
		}
		f.put(api.DialogueEntity{Type: api.EntityPlan, ID: name("p:"+strconv.Itoa(f.run)+":", cmpOr(id, "plan")), Entries: planEntries(entries, "content")})
	case "notice":
		text := str(u.title)
		if more := str(u.description); more != "" {
			text += ": " + more
		}
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: "m:" + letters(strconv.Itoa(f.run), strconv.FormatInt(l.raw.Offset, 10)), Role: "system", Text: text, Final: true})
	case "compaction_update":
		status := "running"
		switch string(inner(u.status)) {
		case "completed":
			status = "done"
		case "failed":
			status = "failed"
		}
		id := name("c:"+strconv.Itoa(f.run)+":compaction:", str(u.compaction))
		putCall(f, api.DialogueEntity{Type: api.EntityToolCall, ID: id, Name: "compaction", Kind: "think", Title: "Compacts the context", Status: status})
	case "compaction_summary_chunk":
		// The summary is for the agent.
	default:
		f.unknown(l, "session/update/"+clip(of, 256))
	}
}

// newMode returns the mode in a piece of text by which Gemini CLI says that it has
// changed its mode.
func (a *acp) newMode(content []byte) (mode string, ok bool) {
	const mark = `"[MODE_UPDATE] `
	if a.Agent != api.AgentGemini || !bytes.Contains(content, []byte(mark)) {
		return "", false
	}
	return strings.CutPrefix(str(member(content, "text")), mark[1:])
}

// acpUpdate are the members of an update, as they are.
type acpUpdate struct {
	kind, content, message, call, mode, entries, plan, used, size, cost, state, stop, title, description, status []byte
	compaction, terminal, data, exit, fault                                                                      []byte
}

func (u *acpUpdate) parse(raw []byte) bool {
	return each(raw, func(key, value []byte) {
		switch string(key) {
		case "sessionUpdate":
			u.kind = inner(value)
		case "content":
			u.content = value
		case "messageId":
			u.message = value
		case "toolCallId":
			u.call = value
		case "currentModeId":
			u.mode = value
		case "entries":
			u.entries = value
		case "plan":
			u.plan = value
		case "used":
			u.used = value
		case "size":
			u.size = value
		case "cost":
			u.cost = value
		case "state":
			u.state = inner(value)
		case "stopReason":
			u.stop = value
		case "title":
			u.title = value
		case "description":
			u.description = value
		case "status":
			u.status = value
		case "compactionId":
			u.compaction = value
		case "terminalId":
			u.terminal = value
		case "data":
			u.data = value
		case "exitStatus":
			u.exit = value
		case "error":
			u.fault = value
		}
	}) && u.kind != nil
}

// used folds how full the context is, and what the session has cost.
func (a *acp) used(f *Fold, u *acpUpdate) {
	sum := f.used
	sum.ContextTokens, sum.ContextWindow = num(u.used), num(u.size)
	if cost, ok := float(member(u.cost, "amount")); ok && is(member(u.cost, "currency"), "USD") {
		sum.CostUSD = &cost
	}
	f.spend(sum)
}

// state folds the state of the session, which is the turn in version 2.
func (a *acp) state(f *Fold, u *acpUpdate) {
	switch string(u.state) {
	case "running", "requires_action":
		if a.Swallow {
			return
		}
		a.Running = true
		a.begun(f)
	case "idle":
		if a.open() && a.Prompt == 0 {
			reason := str(u.stop)
			status := ""
			if reason == "error" {
				status = "failed"
				f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: cmpOr(faultText(u.fault), "the agent stopped with an error")})
			}
			a.endTurn(f, status, reason, nil)
		}
	}
}

// chunk folds a piece of a text.
func (a *acp) chunk(f *Fold, l *line, u *acpUpdate, role string) {
	native := str(u.message)
	if a.Text == "" || a.Role != role || a.Native != native {
		a.closeText(f)
		id := a.textID(f, l, native)
		a.Role, a.Native, a.Text = role, native, id
		if f.get(id) == nil {
			f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Role: role})
		}
	}
	var kind, text []byte
	each(u.content, func(key, value []byte) {
		switch string(key) {
		case "type":
			kind = inner(value)
		case "text":
			text = value
		}
	})
	if string(kind) == "text" {
		s, _ := l.text(text)
		f.append(a.Text, "text", s)
		return
	}
	if e := f.get(a.Text); e != nil && len(e.Content) < maxItems {
		b := acpBlock(l, u.content)
		size := len(b.Data) + len(b.Text)
		for i := range e.Content {
			size += len(e.Content[i].Data) + len(e.Content[i].Text)
		}
		if size > maxText {
			b.Data, b.Text = "", "" // it is in the raw line
		}
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: a.Text, Content: append(slices.Clone(e.Content), b)})
	}
}

// textID returns the id of a message of the agent.
func (a *acp) textID(f *Fold, l *line, native string) string {
	if native != "" {
		return "m:" + letters(a.Session, native)
	}
	return "m:" + letters(strconv.Itoa(f.run), strconv.FormatInt(l.raw.Offset, 10))
}

// wholeText folds a text that replaces what was said of it.
func (a *acp) wholeText(f *Fold, l *line, u *acpUpdate, role string) {
	id := a.textID(f, l, str(u.message))
	if a.Text != id {
		a.closeText(f)
	}
	a.Text, a.Role, a.Native = "", "", ""
	if f.get(id) == nil {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Role: role})
	}
	text, whole, blocks := a.blocks(l, u.content)
	if len(blocks) > 0 {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Content: blocks})
	}
	f.finish(id, text, whole)
}

// userText folds a message that was not said by us, or the repetition of one that was.
func (a *acp) userText(f *Fold, l *line, u *acpUpdate) {
	if a.open() || a.Version == 1 {
		return // our own: its text is known
	}
	text, _, blocks := a.blocks(l, u.content)
	f.put(api.DialogueEntity{Type: api.EntityMessage, ID: a.textID(f, l, str(u.message)), Role: "user", Text: text, Content: blocks, Final: true})
}

// blocks returns the text in content, which is a block or a list of blocks, and the
// blocks that are no text.
func (a *acp) blocks(l *line, raw []byte) (text string, whole int64, blocks []api.DialogueBlock) {
	one := func(value []byte) {
		if is(member(value, "type"), "text") {
			s, n := l.text(member(value, "text"))
			text += s
			whole += n
		} else if len(blocks) < maxItems {
			blocks = append(blocks, acpBlock(l, value))
		}
	}
	if len(raw) > 0 && raw[0] == '{' {
		one(raw)
	} else {
		items(raw, one)
	}
	return text, whole, blocks
}

// acpBlock returns a block that is no text.
func acpBlock(l *line, raw []byte) api.DialogueBlock {
	b := api.DialogueBlock{Type: "other"}
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			switch string(inner(value)) {
			case "image":
				b.Type = "image"
			case "resource_link", "resource":
				b.Type = "file"
			}
		case "data":
			if len(value) <= maxText {
				b.Data = str(value)
			}
		case "mimeType":
			b.Mime = clip(str(value), maxTitle)
		case "uri":
			b.URI = clip(str(value), maxShort)
		case "text":
			b.Text, _ = l.text(value)
		case "resource":
			b.URI = clip(str(member(value, "uri")), maxShort)
			b.Text, _ = l.text(member(value, "text"))
		}
	})
	b.Text = clip(b.Text, maxOutput)
	return b
}

// closeText ends the message that the agent is writing.
func (a *acp) closeText(f *Fold) {
	if a.Text != "" {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: a.Text, Final: true})
		a.Text, a.Role, a.Native = "", "", ""
	}
}
