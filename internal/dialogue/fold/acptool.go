package fold

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// name returns the id of a tool call. Agents begin to count again in each process,
// and some in each turn: a call with an id of one that is settled is another one.
func (a *acp) name(f *Fold, raw []byte, begins bool) string {
	native := str(raw)
	id := name("c:"+strconv.Itoa(f.run)+":", native)
	n, _ := a.Repeats.get(id)
	last := id
	if n > 0 {
		last += "#" + strconv.Itoa(n+1)
	}
	if e := f.get(last); begins && e != nil && !f.isOpen(last) && e.Turn != f.turnID() {
		a.Repeats.put(id, n+1)
		return id + "#" + strconv.Itoa(n+2)
	}
	return last
}

// acpCall are the members of a tool call, as they are.
type acpCall struct {
	id, title, name, kind, status, content, locations, input, output, meta []byte
}

func (c *acpCall) parse(raw []byte) {
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "toolCallId":
			c.id = value
		case "title":
			c.title = value
		case "name":
			c.name = value
		case "kind":
			c.kind = inner(value)
		case "status":
			c.status = inner(value)
		case "content":
			c.content = value
		case "locations":
			c.locations = value
		case "rawInput":
			c.input = value
		case "rawOutput":
			c.output = value
		case "_meta":
			c.meta = value
		}
	})
}

// toolCall folds what an update says of a tool call. There need not have been a
// first one.
func (a *acp) toolCall(f *Fold, l *line, raw []byte, begins bool) {
	var c acpCall
	c.parse(raw)
	e := a.callOf(f, l, &c, begins)
	if f.get(e.ID) == nil && e.Status == "" {
		e.Status = "pending"
	}
	putCall(f, e)
}

// call2 returns a tool call as an entity with what is said of it.
func (a *acp) callOf(f *Fold, l *line, c *acpCall, begins bool) api.DialogueEntity {
	e := api.DialogueEntity{
		Type: api.EntityToolCall, ID: a.name(f, c.id, begins), Parent: a.parent(f, c.meta), Name: clip(str(c.name), maxTitle), Title: str(c.title), Raw: f.here(),
	}
	if e.Name == "" {
		e.Name = clip(acpToolName(c.meta), maxTitle)
	}
	if c.kind != nil {
		e.Kind = acpKind(string(c.kind))
	} else if f.get(e.ID) == nil {
		e.Kind = "other"
	}
	switch string(c.status) {
	case "pending":
		e.Status = "pending"
	case "in_progress", "paused":
		e.Status = "running"
	case "completed":
		e.Status = "done"
	case "failed":
		e.Status = "failed"
	case "cancelled":
		e.Status = "cut"
	}
	e.Output, e.Diff = a.content(l, c.content, e.ID)
	if has(c.input) {
		e.Input = c.input
	}
	items(c.locations, func(value []byte) {
		if len(e.Locations) < maxItems {
			e.Locations = append(e.Locations, api.DialogueLocation{Path: clip(str(member(value, "path")), maxShort), Line: int(num(member(value, "line")))})
		}
	})
	acpResult(l, c, &e)
	return e
}

// acpResult folds what the agent says beside the content: the output as the tool gave
// it, and an exit code if there is one.
func acpResult(l *line, c *acpCall, e *api.DialogueEntity) {
	if len(c.output) > 0 && c.output[0] == '"' && e.Output == "" {
		e.Output, _ = l.text(c.output)
	}
	code := []byte(nil)
	each(c.output, func(key, value []byte) {
		switch string(key) {
		case "exit_code", "exitCode":
			code = value
		case "output", "stdout", "formatted_output":
			if e.Output == "" {
				e.Output, _ = l.text(value)
			}
		}
	})
	if exit := member(c.meta, "terminal_exit"); has(exit) {
		code = member(exit, "exit_code")
	}
	if len(code) > 0 && (code[0] == '-' || '0' <= code[0] && code[0] <= '9') {
		n := int(num(code))
		e.ExitCode = &n
	}
}

// parent returns the tool call in which this one was made, as adapters of vendors
// say it.
func (a *acp) parent(f *Fold, meta []byte) string {
	if !has(meta) {
		return ""
	}
	native := member(member(meta, "claudeCode"), "parentToolUseId")
	if !has(native) {
		native = member(member(meta, "trl"), "parent")
	}
	if !has(native) {
		return ""
	}
	if id := a.name(f, native, false); f.get(id) != nil {
		return id
	}
	return ""
}

// acpToolName returns the name of the tool in what a vendor adds.
func acpToolName(meta []byte) string { return str(member(member(meta, "claudeCode"), "toolName")) }

func acpKind(kind string) string {
	switch kind {
	case "execute":
		return "run"
	case "read", "edit", "delete", "move", "search", "think", "fetch":
		return kind
	}
	return "other"
}

// content reads the content of a tool call: its texts, the changes to files, and the
// terminals that show it, which are noted for the call with the id.
func (a *acp) content(l *line, raw []byte, call string) (text string, diff []api.DialogueDiff) {
	var texts []string
	items(raw, func(value []byte) {
		var kind, content, path, before, after, changes, patch, terminal []byte
		each(value, func(key, value []byte) {
			switch string(key) {
			case "type":
				kind = inner(value)
			case "content":
				content = value
			case "path":
				path = value
			case "oldText":
				before = value
			case "newText":
				after = value
			case "changes":
				changes = value
			case "patch":
				patch = value
			case "terminalId":
				terminal = value
			}
		})
		switch string(kind) {
		case "content":
			if s := member(content, "text"); has(s) {
				s, _ := l.text(s)
				texts = append(texts, s)
			}
		case "diff":
			if len(diff) >= maxItems {
				return
			}
			if has(path) {
				d := api.DialogueDiff{Path: clip(str(path), maxShort)}
				d.New, _ = l.text(after)
				if has(before) {
					s, _ := l.text(before)
					d.Old = &s
				}
				diff = append(diff, d)
				return
			}
			s, _ := l.text(member(patch, "text"))
			items(changes, func(value []byte) {
				if len(diff) < maxItems {
					diff = append(diff, api.DialogueDiff{Path: clip(str(member(value, "path")), maxShort), Text: s})
					s = "" // it is of all of them
				}
			})
		case "terminal":
			if call != "" {
				a.Terminals.put(keyOf(str(terminal)), call)
			}
		}
	})
	return strings.Join(texts, "\n"), diff
}

// putCall puts a tool call, and settles it if it is over.
func putCall(f *Fold, e api.DialogueEntity) {
	if e.Status == "" || openness(&e) {
		f.put(e)
		return
	}
	if f.get(e.ID) == nil { // it begins and ends at once
		begun := e
		begun.Status, begun.Output, begun.ExitCode = "running", "", nil
		f.put(begun)
	}
	f.settle(e)
}

// asked folds a request of the agent: a question, or something that TRL refuses.
func (a *acp) asked(f *Fold, l *line, r *rpcLine) {
	method := string(r.method)
	id := name("q:"+strconv.Itoa(f.run)+":", idText(r.id))
	q := acpAsked{ID: append(json.RawMessage(nil), r.id...), Method: method}
	e := api.DialogueEntity{ID: id, Raw: f.here()}
	switch {
	case method != "session/request_permission" && method != "elicitation/create":
		if !strings.HasPrefix(method, "fs/") && !strings.HasPrefix(method, "terminal/") {
			f.unknown(l, clip(method, 256))
		}
		refuse(f, acpHead, r.id, r.method)
		return
	case f.get(id) != nil:
		f.unknown(l, method) // an id that comes back
		return
	case method == "elicitation/create":
		a.begun(f)
		a.askForm(r.params, &e)
	default:
		a.begun(f)
		a.askPermission(f, l, r.params, &e, &q)
	}
	a.closeText(f)
	a.Asked.put(id, q)
	f.ask(e)
	if a.Stopped { // it was asked while the turn was being stopped
		a.withdraw(f, id, &q)
	}
}

func (a *acp) askForm(params []byte, e *api.DialogueEntity) {
	e.Kind = "form"
	each(params, func(key, value []byte) {
		switch string(key) {
		case "message":
			e.Title = strings.TrimSpace(str(value) + " " + e.Title)
		case "requestedSchema":
			e.Fields = formFields(value)
		case "url":
			e.Title = strings.TrimSpace(e.Title + " " + str(value))
		}
	})
	e.Options = []api.DialogueOption{{ID: "accept", Kind: "allow_once", Name: "Send"}, {ID: "decline", Kind: "reject_once", Name: "Decline"}, {ID: "cancel", Kind: "reject_once", Name: "Cancel"}}
}

// askPermission folds the question whether something may be done. In version 1 it is
// about a tool call, in version 2 it has a title of its own.
func (a *acp) askPermission(f *Fold, l *line, params []byte, e *api.DialogueEntity, q *acpAsked) {
	e.Kind = "permission"
	var call, subject, options []byte
	each(params, func(key, value []byte) {
		switch string(key) {
		case "toolCall":
			call = value
		case "subject":
			subject = value
		case "options":
			options = value
		case "title":
			e.Title = str(value)
		case "description":
			e.Reason = str(value)
		}
	})
	items(options, func(value []byte) {
		o := api.DialogueOption{Kind: "other"}
		each(value, func(key, value []byte) {
			switch string(key) {
			case "optionId":
				o.ID = clip(str(value), maxShort)
			case "name":
				o.Name = clip(str(value), maxTitle)
			case "kind":
				switch kind := string(inner(value)); kind {
				case "allow_once", "allow_always", "reject_once", "reject_always":
					o.Kind = kind
				}
			}
		})
		if len(e.Options) < maxItems {
			e.Options = append(e.Options, o)
		}
	})
	if has(subject) {
		switch string(inner(member(subject, "type"))) {
		case "tool_call":
			call = member(subject, "toolCall")
		case "command":
			e.Input = commandInput(member(subject, "command"), member(subject, "cwd"))
			if id := member(subject, "toolCallId"); has(id) {
				call = object{}.raw("toolCallId", id).json()
			}
		}
	}
	if !has(call) {
		return
	}
	var c acpCall
	c.parse(call)
	t := a.callOf(f, l, &c, f.get(a.name(f, c.id, false)) == nil)
	// The text with a question says what it is about. It is no output.
	e.Reason = cmpOr(e.Reason, t.Output)
	t.Output, t.Status = "", "pending"
	f.put(t)
	q.Call, e.ToolCall = t.ID, t.ID
	if now := f.get(t.ID); now != nil {
		e.Parent, e.Title = now.Parent, cmpOr(e.Title, now.Title)
		if string(c.kind) == "switch_mode" {
			e.Kind = "plan"
		}
	}
}

func (a *acp) answer(f *Fold, q *api.DialogueEntity, answer *api.DialogueAnswer) error {
	asked, ok := a.Asked.get(q.ID)
	if !ok {
		return invalid("question %q can't be answered any more", q.ID)
	}
	option, err := chosen(q, answer)
	if err != nil {
		return err
	}
	if answer.Suggestion != nil {
		return invalid("question %q has no suggestions", q.ID)
	}
	result := object{}.raw("outcome", object{}.with("outcome", "selected").with("optionId", option.ID).json())
	if asked.Method == "elicitation/create" {
		result = object{}.with("action", option.ID)
		if option.ID == "accept" {
			content, err := formContent(q, answer)
			if err != nil {
				return err
			}
			result = result.raw("content", content)
		}
	}
	a.Asked.delete(q.ID)
	reply(f, acpHead, asked.ID, "result", result.json())
	if f.isOpen(asked.Call) {
		if !rejects(option) {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: asked.Call, Status: "running"})
		} else {
			f.refused = asked.Call // the agent need not say any more of it
		}
	}
	if answer.Interrupt && rejects(option) {
		return a.interrupt(f)
	}
	return nil
}
