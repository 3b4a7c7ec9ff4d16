package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// codexItem are the members of an item, as they are.
type codexItem struct {
	typ, id, clientID, content, text, summary, command, cwd, status, actions, output, exitCode, changes          []byte
	server, tool, arguments, result, fault, success, contentItems, receivers, prompt, model, states, query, path []byte
	kind, agentThread, fragments, review, name                                                                   []byte
}

func (it *codexItem) parse(raw []byte) {
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "type":
			it.typ = inner(value)
		case "id":
			it.id = value
		case "clientId":
			it.clientID = value
		case "content":
			it.content = value
		case "text":
			it.text = value
		case "summary":
			it.summary = value
		case "command":
			it.command = value
		case "cwd":
			it.cwd = value
		case "status":
			it.status = inner(value)
		case "commandActions":
			it.actions = value
		case "aggregatedOutput", "output":
			it.output = value
		case "exitCode":
			it.exitCode = value
		case "changes":
			it.changes = value
		case "server", "namespace":
			it.server = value
		case "tool":
			it.tool = value
		case "arguments":
			it.arguments = value
		case "result":
			it.result = value
		case "error":
			it.fault = value
		case "success":
			it.success = value
		case "contentItems":
			it.contentItems = value
		case "receiverThreadIds":
			it.receivers = value
		case "prompt":
			it.prompt = value
		case "model":
			it.model = value
		case "agentsStates":
			it.states = value
		case "query":
			it.query = value
		case "path":
			it.path = value
		case "kind":
			it.kind = inner(value)
		case "agentThreadId":
			it.agentThread = value
		case "fragments":
			it.fragments = value
		case "review":
			it.review = value
		case "name":
			it.name = value
		}
	})
}

// item folds the beginning or the end of an item.
func (c *codex) item(f *Fold, l *line, p *codexParams, parent string, main, completed bool) {
	var it codexItem
	it.parse(p.item)
	call := func(e api.DialogueEntity) {
		e.Type, e.ID, e.Parent = api.EntityToolCall, c.name("c:", p.turnID, it.id), parent
		e.Name = cmpOr(e.Name, string(it.typ))
		e.Status = itemStatus(it.status, completed)
		e.Raw = f.here()
		putCall(f, e)
	}
	switch string(it.typ) {
	case "userMessage":
		c.userMessage(f, l, p, &it, parent, main)
	case "agentMessage", "plan":
		c.words(f, l, c.name("m:", p.turnID, it.id), "agent", parent, it.text, completed)
	case "reasoning":
		c.reasoning(f, l, p, &it, parent, completed)
	case "hookPrompt":
		var text strings.Builder
		items(it.fragments, func(value []byte) { text.WriteString(str(member(value, "text"))) })
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: c.name("m:", p.turnID, it.id), Role: "system", Parent: parent, Text: text.String(), Final: true})
	case "enteredReviewMode", "exitedReviewMode":
		text, _ := l.text(it.review)
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: c.name("m:", p.turnID, it.id), Role: "system", Parent: parent, Text: text, Final: true})
	case "commandExecution":
		c.command(f, l, p, &it, parent, completed)
	case "fileChange":
		diff, kind, title, places := fileChanges(l, it.changes)
		call(api.DialogueEntity{Kind: kind, Title: title, Diff: diff, Locations: places})
	case "mcpToolCall", "dynamicToolCall":
		e := api.DialogueEntity{Kind: "other", Name: str(it.tool), Title: str(it.tool), Input: it.arguments}
		if server := str(it.server); server != "" {
			e.Title = server + ": " + e.Title
		}
		e.Output = toolOutput(l, it.result, it.contentItems)
		if has(it.fault) {
			e.Output = str(member(it.fault, "message"))
		}
		call(e)
	case "functionCallOutput":
		text, _ := l.text(it.output)
		completed = true
		call(api.DialogueEntity{Kind: "other", Name: str(it.name), Title: str(it.name), Output: text})
	case "collabAgentToolCall":
		c.collab(f, l, p, &it, parent, completed)
	case "subAgentActivity":
		c.activity(f, p, &it, parent)
	case "webSearch":
		call(api.DialogueEntity{Kind: "search", Title: str(it.query)})
	case "imageView":
		call(api.DialogueEntity{Kind: "read", Title: str(it.path), Locations: []api.DialogueLocation{{Path: str(it.path)}}})
	case "contextCompaction":
		call(api.DialogueEntity{Kind: "think", Title: "Compacts the context"})
	case "sleep", "imageGeneration":
		call(api.DialogueEntity{Kind: "other", Title: string(it.typ)})
	default:
		f.unknown(l, "item/"+string(it.typ))
	}
}

func itemStatus(status []byte, completed bool) string {
	switch string(status) {
	case "completed":
		return "done"
	case "failed":
		return "failed"
	case "declined":
		return "denied"
	case "interrupted":
		return "cut"
	}
	if completed {
		return "done"
	}
	return "running"
}

// words folds an item that is a text.
func (c *codex) words(f *Fold, l *line, id, role, parent string, text []byte, completed bool) {
	if f.get(id) == nil {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Role: role, Parent: parent})
	}
	if completed {
		s, whole := l.text(text)
		f.finish(id, s, whole)
	}
}

// reasoning folds thoughts: a summary in parts, or else what the model says itself.
func (c *codex) reasoning(f *Fold, l *line, p *codexParams, it *codexItem, parent string, completed bool) {
	join := func(parts []byte) string {
		var all []string
		items(parts, func(value []byte) {
			s, _ := l.text(value)
			all = append(all, s)
		})
		return strings.Join(all, "\n\n")
	}
	finish := func(kind, text string) {
		id := c.name(kind, p.turnID, it.id)
		if text != "" && f.get(id) == nil {
			f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Role: "thought", Parent: parent})
		}
		f.finish(id, text, int64(len(text)))
	}
	if completed {
		summary := join(it.summary)
		finish("m:", summary)
		if content := c.name("r:", p.turnID, it.id); summary == "" || f.get(content) != nil {
			finish("r:", join(it.content))
		}
	}
}

// userMessage folds the echo of a message.
func (c *codex) userMessage(f *Fold, l *line, p *codexParams, it *codexItem, parent string, main bool) {
	text, whole := "", int64(0)
	first := true
	items(it.content, func(value []byte) {
		if !is(member(value, "type"), "text") {
			return
		}
		s, n := l.text(member(value, "text"))
		if first {
			text, whole, first = s, n, false
		}
	})
	id := str(it.clientID)
	for _, s := range c.Sent { // without a name it is known by its text
		if said := f.get(s.Msg); id == "" && main && said != nil && said.Text == text {
			id = strings.TrimPrefix(s.Msg, "u:")
		}
	}
	e := f.get("u:" + id)
	if id == "" || !main || e == nil {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: c.name("m:", p.turnID, it.id), Role: "user", Parent: parent, Text: text, Final: true, Raw: f.here()})
		return
	}
	id = "u:" + id
	c.Sent = slices.DeleteFunc(c.Sent, func(s codexSent) bool { return s.Msg == id })
	if e.Delivery == "accepted" || e.Delivery == "written" {
		if len(e.Cut) == 0 && e.Text != "" && whole == int64(len(text)) && text != e.Text {
			f.fault(api.DialogueEntity{ID: "altered:" + id, Code: api.DialogueAltered, Message: "the agent repeats the message differently"})
		}
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Raw: f.here()})
		f.taken(id)
	}
}

// command folds a command.
func (c *codex) command(f *Fold, l *line, p *codexParams, it *codexItem, parent string, completed bool) {
	id := c.name("c:", p.turnID, it.id)
	command, _ := l.text(it.command)
	e := api.DialogueEntity{
		Type: api.EntityToolCall, ID: id, Parent: parent, Name: "commandExecution", Kind: actionKind(it.actions), Title: command,
		Status: itemStatus(it.status, completed), Raw: f.here(),
	}
	if f.get(id) == nil || completed {
		e.Input = commandInput(it.command, it.cwd)
	}
	if !completed {
		if _, ok := c.Runs.get(id); !ok {
			c.Runs.put(id, "")
		}
		if !f.isOpen(id) || f.get(id).Status == "pending" {
			f.put(e)
		}
		return
	}
	if has(it.output) {
		e.Output, _ = l.text(it.output)
	}
	if has(it.exitCode) {
		code := int(num(it.exitCode))
		e.ExitCode = &code
	}
	if approved, _ := c.Runs.get(id); approved != "" && approved != letters(command) && e.Status != "denied" {
		f.fault(api.DialogueEntity{ID: "altered:" + id, Code: api.DialogueAltered, Message: "the agent ran another command than the one that was approved", Parent: parent})
	}
	c.Runs.delete(id)
	putCall(f, e)
}

func commandInput(command, cwd []byte) json.RawMessage {
	o := object{}
	if has(command) {
		o = o.raw("command", command)
	}
	if has(cwd) {
		o = o.raw("cwd", cwd)
	}
	return o.json()
}

// actionKind says what a command does, if the agent knows.
func actionKind(actions []byte) string {
	kind := ""
	items(actions, func(value []byte) {
		k := "run"
		switch string(inner(member(value, "type"))) {
		case "read":
			k = "read"
		case "listFiles", "search":
			k = "search"
		}
		if kind == "" || kind == k {
			kind = k
		} else {
			kind = "run"
		}
	})
	return cmpOr(kind, "run")
}

// fileChanges reads changes of files.
func fileChanges(l *line, raw []byte) (diff []api.DialogueDiff, kind, title string, places []api.DialogueLocation) {
	var names []string
	items(raw, func(value []byte) {
		if len(diff) >= maxItems {
			return
		}
		var path, text, what []byte
		each(value, func(key, value []byte) {
			switch string(key) {
			case "path":
				path = value
			case "diff":
				text = value
			case "kind":
				what = value
			}
		})
		d := api.DialogueDiff{Path: str(path)}
		s, _ := l.text(text)
		k := "edit"
		switch string(inner(member(what, "type"))) {
		case "add":
			d.New = s
		case "delete":
			d.Old, k = &s, "delete"
		default:
			d.Text = s
			if has(member(what, "move_path")) {
				k = "move"
			}
		}
		if kind == "" || kind == k {
			kind = k
		} else {
			kind = "edit"
		}
		names = append(names, d.Path)
		diff, places = append(diff, d), append(places, api.DialogueLocation{Path: d.Path})
	})
	return diff, cmpOr(kind, "edit"), strings.Join(names, ", "), places
}

// toolOutput returns the texts of the result of a tool.
func toolOutput(l *line, result, contentItems []byte) string {
	var out []string
	block := func(value []byte) {
		if raw := member(value, "text"); has(raw) {
			s, _ := l.text(raw)
			out = append(out, s)
		}
	}
	items(member(result, "content"), block)
	items(contentItems, block)
	return strings.Join(out, "\n")
}

// collab folds a tool of the agent that works with other agents.
func (c *codex) collab(f *Fold, l *line, p *codexParams, it *codexItem, parent string, completed bool) {
	id := c.name("c:", p.turnID, it.id)
	tool := str(it.tool)
	prompt, _ := l.text(it.prompt)
	e := api.DialogueEntity{Type: api.EntityToolCall, ID: id, Parent: parent, Name: tool, Kind: "agent", Title: cmpOr(prompt, tool), Status: itemStatus(it.status, completed), Raw: f.here()}
	in := object{}
	if has(it.prompt) {
		in = in.raw("prompt", it.prompt)
	}
	if has(it.model) && !is(it.model, "") {
		in = in.raw("model", it.model)
	}
	if len(in) > 0 {
		e.Input = in.json()
	}
	gives := tool == "spawnAgent" || tool == "sendInput" || tool == "followupTask" || tool == "resumeAgent"
	works := false // an agent works in this call
	items(it.receivers, func(value []byte) {
		thread := str(value)
		if !gives || thread == "" {
			return
		}
		a, known := c.Agents.get(keyOf(thread))
		if !known || !completed && !f.isOpen(a.Call) {
			a, known = codexAgent{Call: id}, true
			c.Agents.put(keyOf(thread), a)
			e.Task = clip(thread, maxID)
		}
		works = works || known && a.Call == id && !a.Idle
	})
	if e.Status == "done" && works {
		e.Status = "running" // it lasts as long as its agent works
		f.put(e)
		f.detach(id)
	} else {
		putCall(f, e)
	}
	items(it.receivers, func(value []byte) {
		if _, known := c.Agents.get(keyOf(str(value))); known {
			f.arrived("thread:" + keyOf(str(value)))
		}
	})
	each(it.states, func(key, value []byte) {
		var status string
		switch string(inner(member(value, "status"))) {
		case "completed":
			status = "done"
		case "errored":
			status = "failed"
		case "interrupted", "shutdown", "notFound":
			status = "cut"
		default:
			return
		}
		message, _ := l.text(member(value, "message"))
		c.agentDone(f, string(key), status, message)
	})
}

// activity folds what a subagent does, as the second version of these tools says it.
func (c *codex) activity(f *Fold, p *codexParams, it *codexItem, parent string) {
	thread := str(it.agentThread)
	switch string(it.kind) {
	case "started", "interacted":
		if a, known := c.Agents.get(keyOf(thread)); known && f.isOpen(a.Call) {
			return
		}
		id := c.name("c:", p.turnID, it.id)
		c.Agents.put(keyOf(thread), codexAgent{Call: id})
		f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: id, Parent: parent, Name: "subAgentActivity", Kind: "agent", Title: str(it.path), Status: "running", Task: clip(thread, maxID), Raw: f.here()})
		f.detach(id)
		f.arrived("thread:" + keyOf(thread))
	case "completed":
		c.agentDone(f, thread, "done", "")
	case "interrupted":
		c.agentDone(f, thread, "cut", "")
	}
}

// agentDone settles the tool call of a subagent.
func (c *codex) agentDone(f *Fold, thread, status, output string) {
	a, ok := c.Agents.get(keyOf(thread))
	if !ok {
		return
	}
	a.Idle = true
	c.Agents.put(keyOf(thread), a)
	if f.isOpen(a.Call) {
		f.settle(api.DialogueEntity{Type: api.EntityToolCall, ID: a.Call, Status: status, Output: output})
	}
}
