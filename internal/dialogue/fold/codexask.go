package fold

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// Bounds of what is kept of a question for its answer.
const (
	maxRules = 16
	maxRule  = 8 << 10
)

// codexQuestion are the members of a request of Codex, as they are.
type codexQuestion struct {
	thread, turnID, itemID, reason, command, cwd, decisions, amendment, network, permissions, questions, grantRoot, kind []byte
	callID, conversation, message, mode, schema, url, server                                                             []byte
}

func (q *codexQuestion) parse(raw []byte) {
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "threadId":
			q.thread = value
		case "turnId":
			q.turnID = value
		case "itemId":
			q.itemID = value
		case "reason":
			q.reason = value
		case "command":
			q.command = value
		case "cwd":
			q.cwd = value
		case "availableDecisions":
			q.decisions = value
		case "proposedExecpolicyAmendment":
			q.amendment = value
		case "proposedNetworkPolicyAmendments":
			q.network = value
		case "permissions":
			q.permissions = value
		case "questions":
			q.questions = value
		case "grantRoot":
			q.grantRoot = value
		case "kind":
			q.kind = inner(value)
		case "callId":
			q.callID = value
		case "conversationId":
			q.conversation = value
		case "message":
			q.message = value
		case "mode":
			q.mode = inner(value)
		case "requestedSchema":
			q.schema = value
		case "url":
			q.url = value
		case "serverName":
			q.server = value
		}
	})
}

// asked folds a request of the agent: a question, or something that TRL refuses.
func (c *codex) asked(f *Fold, l *line, r *rpcLine) {
	var q codexQuestion
	method := string(r.method)
	switch method {
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval", "item/permissions/requestApproval", "item/tool/requestUserInput",
		"mcpServer/elicitation/request", "execCommandApproval", "applyPatchApproval":
		q.parse(r.params)
	default:
		f.unknown(l, method)
		refuse(f, codexHead, r.id, r.method)
		return
	}
	thread := q.thread
	if thread == nil {
		thread = q.conversation
	}
	parent, main, ok := c.place(f, l, thread)
	if !ok {
		return
	}
	if main {
		f.moved()
	}
	id := name("q:"+strconv.Itoa(f.run)+":", idText(r.id))
	if f.get(id) != nil {
		f.unknown(l, method) // an id that comes back
		return
	}
	asked := codexAsked{ID: append(json.RawMessage(nil), r.id...), Method: method}
	e := api.DialogueEntity{ID: id, Parent: parent, Kind: "permission", Reason: str(q.reason), Raw: f.here()}
	if item := q.itemID; has(item) {
		asked.Call = c.name("c:", q.turnID, item)
	}
	switch method {
	case "item/commandExecution/requestApproval":
		c.askCommand(f, l, &q, &e, &asked, parent)
	case "item/fileChange/requestApproval":
		e.Options = codexOptions("accept", "acceptForSession", "decline", "cancel")
		e.Title = "Change files"
		if call := f.get(asked.Call); call != nil {
			e.Title = call.Title
		}
		if root := str(q.grantRoot); root != "" {
			e.Reason = strings.TrimSpace(e.Reason + " It asks to write anywhere under " + root + ".")
		}
	case "item/permissions/requestApproval":
		e.Options = []api.DialogueOption{
			{ID: "turn", Kind: "allow_once", Name: "Allow for this turn"},
			{ID: "session", Kind: "allow_always", Name: "Allow for this session"},
			{ID: "decline", Kind: "reject_once", Name: "Deny"},
		}
		e.Title = "More permissions"
		e.Input = q.permissions
		if len(q.permissions) > maxRule {
			e.Options = e.Options[2:] // an answer can't repeat what would be granted
			break
		}
		asked.Grant = append(json.RawMessage(nil), q.permissions...)
	case "item/tool/requestUserInput":
		c.askUser(&q, &e)
	case "mcpServer/elicitation/request":
		e.Kind, e.Title = "form", str(q.message)
		if server := str(q.server); server != "" {
			e.Reason = strings.TrimSpace(e.Reason + " Asked by the MCP server " + server + ".")
		}
		e.Options = []api.DialogueOption{{ID: "accept", Kind: "allow_once", Name: "Send"}, {ID: "decline", Kind: "reject_once", Name: "Decline"}, {ID: "cancel", Kind: "reject_once", Name: "Cancel"}}
		if string(q.mode) == "url" {
			e.Title += " " + str(q.url)
		} else {
			e.Fields = formFields(q.schema)
		}
	case "execCommandApproval", "applyPatchApproval": // of clients of an earlier protocol
		e.Options = codexOptions("approved", "approved_for_session", "denied", "abort")
		var words []string
		items(q.command, func(value []byte) { words = append(words, str(value)) })
		e.Title = cmpOr(strings.Join(words, " "), "Change files")
		e.Input = commandInput(q.command, q.cwd)
	}
	if f.get(asked.Call) != nil {
		e.ToolCall = asked.Call
		if f.isOpen(asked.Call) {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: asked.Call, Status: "pending"})
		}
	}
	c.Asked.put(id, asked)
	f.ask(e)
}

// askCommand folds the question whether a command may run.
func (c *codex) askCommand(f *Fold, l *line, q *codexQuestion, e *api.DialogueEntity, asked *codexAsked, parent string) {
	command, _ := l.text(q.command)
	e.Title, e.Input, asked.What = command, commandInput(q.command, q.cwd), letters(command)
	if string(q.kind) == "writeStdin" {
		asked.What = ""
	}
	if asked.Call != "" && f.get(asked.Call) == nil && has(q.command) {
		f.put(api.DialogueEntity{
			Type: api.EntityToolCall, ID: asked.Call, Parent: parent, Name: "commandExecution", Kind: "run", Title: command, Input: e.Input, Status: "pending", Raw: f.here(),
		})
	}
	add := func(id string, rule []byte) {
		o := codexOptions(id)[0]
		if rule == nil {
			e.Options = append(e.Options, o)
			return
		}
		if len(asked.Rules) >= maxRules || asked.size()+len(rule) > maxRule {
			return
		}
		title := ruleTitle(rule)
		if n := len(asked.Rules); n > 0 {
			o.ID += "." + strconv.Itoa(n+1)
		}
		o.Name = title
		e.Options = append(e.Options, o)
		e.Suggestions = append(e.Suggestions, api.DialogueSuggestion{Title: title, Rule: append(json.RawMessage(nil), rule...)})
		asked.Rules = append(asked.Rules, append(json.RawMessage(nil), rule...))
	}
	known := items(q.decisions, func(value []byte) {
		switch {
		case len(e.Options) >= maxItems:
		case len(value) > 0 && value[0] == '{':
			each(value, func(key, _ []byte) { add(string(key), value) })
		default:
			add(str(value), nil)
		}
	})
	if !known {
		add("accept", nil)
		add("acceptForSession", nil)
		if has(q.amendment) {
			add("acceptWithExecpolicyAmendment", object{}.raw("acceptWithExecpolicyAmendment", object{}.raw("execpolicy_amendment", q.amendment).json()).json())
		}
		items(q.network, func(value []byte) {
			add("applyNetworkPolicyAmendment", object{}.raw("applyNetworkPolicyAmendment", object{}.raw("network_policy_amendment", value).json()).json())
		})
		add("cancel", nil)
	}
	// To deny and go on is always possible, also where it is not listed.
	for i, o := range e.Options {
		if o.ID == "decline" {
			return
		}
		if o.ID == "cancel" {
			e.Options = append(e.Options[:i:i], append(codexOptions("decline"), e.Options[i:]...)...)
			return
		}
	}
	e.Options = append(e.Options, codexOptions("decline")...)
}

// ruleTitle says what a rule is about.
func ruleTitle(rule []byte) string {
	title := ""
	each(rule, func(_, value []byte) {
		var words []string
		items(member(value, "execpolicy_amendment"), func(value []byte) { words = append(words, str(value)) })
		if len(words) > 0 {
			title = "Allow, and do not ask again for commands that begin with: " + strings.Join(words, " ")
		}
		if net := member(value, "network_policy_amendment"); has(net) {
			title = "From now on " + str(member(net, "action")) + " connections to " + str(member(net, "host"))
		}
	})
	return clip(cmpOr(title, string(rule)), maxTitle)
}

// codexOptions returns the options for decisions.
func codexOptions(decisions ...string) (options []api.DialogueOption) {
	for _, d := range decisions {
		o := api.DialogueOption{ID: clip(d, maxTitle), Kind: "other", Name: clip(d, maxTitle)}
		switch d {
		case "accept", "approved":
			o.Kind, o.Name = "allow_once", "Allow"
		case "acceptForSession", "approved_for_session":
			o.Kind, o.Name = "allow_always", "Allow for this session"
		case "acceptWithExecpolicyAmendment", "applyNetworkPolicyAmendment":
			o.Kind = "allow_always"
		case "decline", "denied":
			o.Kind, o.Name = "reject_once", "Deny"
		case "cancel", "abort":
			o.Kind, o.Name = "reject_once", "Deny and stop"
		}
		options = append(options, o)
	}
	return options
}

// askUser folds questions of the model.
func (c *codex) askUser(q *codexQuestion, e *api.DialogueEntity) {
	e.Kind = "choice"
	items(q.questions, func(value []byte) {
		if len(e.Fields) >= maxItems {
			return
		}
		var id, text, options []byte
		each(value, func(key, value []byte) {
			switch string(key) {
			case "id":
				id = value
			case "question":
				text = value
			case "options":
				options = value
			}
		})
		field := api.DialogueField{ID: clip(str(id), maxTitle), Title: clip(str(text), maxTitle), Type: "text"}
		items(options, func(value []byte) {
			if len(field.Options) >= maxItems {
				return
			}
			label, more := str(member(value, "label")), str(member(value, "description"))
			o := api.DialogueOption{ID: clip(label, maxTitle), Kind: "other", Name: clip(label, maxTitle)}
			if more != "" {
				o.Name = clip(label+": "+more, maxTitle)
			}
			field.Options = append(field.Options, o)
			field.Type = "choice"
		})
		if e.Title == "" {
			e.Title = field.Title
		}
		e.Fields = append(e.Fields, field)
	})
	e.Options = []api.DialogueOption{{ID: "answer", Kind: "allow_once", Name: "Answer"}, {ID: "skip", Kind: "reject_once", Name: "Do not answer"}}
}

func (c *codex) answer(f *Fold, q *api.DialogueEntity, a *api.DialogueAnswer) error {
	asked, ok := c.Asked.get(q.ID)
	if !ok {
		return invalid("question %q can't be answered any more", q.ID)
	}
	option, err := chosen(q, a)
	if err != nil {
		return err
	}
	var result []byte
	switch asked.Method {
	case "item/permissions/requestApproval":
		granted, scope := []byte("{}"), "turn"
		if !rejects(option) {
			granted, scope = grantOf(asked.Grant), option.ID
		}
		result = object{}.raw("permissions", granted).with("scope", scope).json()
	case "item/tool/requestUserInput":
		answers := object{}
		for _, field := range q.Fields {
			if value, ok := a.Values[field.ID]; ok && !rejects(option) {
				answers = answers.raw(field.ID, object{}.raw("answers", list(texts(value)...)).json())
			}
		}
		if len(answers) == 0 && !rejects(option) {
			return invalid("the answer to question %q has no values", q.ID)
		}
		result = object{}.raw("answers", answers.json()).json()
	case "mcpServer/elicitation/request":
		content := []byte("null")
		if option.ID == "accept" && len(q.Fields) > 0 {
			if content, err = formContent(q, a); err != nil {
				return err
			}
		}
		result = object{}.with("action", option.ID).raw("content", content).raw("_meta", []byte("null")).json()
	default:
		decision, err := c.decision(&asked, option, a)
		if err != nil {
			return err
		}
		result = object{}.raw("decision", decision).json()
	}
	if !rejects(option) && asked.What != "" && asked.Call != "" {
		c.Runs.put(asked.Call, asked.What)
	}
	c.Asked.delete(q.ID)
	reply(f, codexHead, asked.ID, "result", result)
	if f.isOpen(asked.Call) && !rejects(option) {
		f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: asked.Call, Status: "running"})
	}
	return nil
}

// decision returns the answer to the question whether something may be done.
func (c *codex) decision(asked *codexAsked, option api.DialogueOption, a *api.DialogueAnswer) ([]byte, error) {
	if a.Suggestion != nil {
		if n := *a.Suggestion; n < 0 || n >= len(asked.Rules) {
			return nil, invalid("the question has no suggestion %d", n)
		}
		if rejects(option) {
			return nil, invalid("a suggestion can't be taken with a refusal")
		}
		return asked.Rules[*a.Suggestion], nil
	}
	for i, rule := range asked.Rules {
		id, n, _ := strings.Cut(option.ID, ".")
		if strings.HasPrefix(string(rule), `{"`+id+`"`) && (n == "" && i == 0 || n == strconv.Itoa(i+1)) {
			return rule, nil
		}
	}
	id := option.ID
	if a.Interrupt && rejects(option) {
		switch id {
		case "decline":
			id = "cancel"
		case "denied":
			id = "abort"
		}
	}
	if id == "denied" {
		return object{}.raw("denied", object{}.with("rejection", cmpOr(a.Message, "denied")).json()).json(), nil
	}
	return appendString(nil, id), nil
}

// grantOf returns the permissions that were asked for, without those that are null.
func grantOf(asked json.RawMessage) []byte {
	o := object{}
	each(asked, func(key, value []byte) {
		if has(value) {
			o = o.raw(string(key), value)
		}
	})
	return o.json()
}

// resolved folds that the agent no longer waits for an answer.
func (c *codex) resolved(f *Fold, request []byte) {
	id := name("q:"+strconv.Itoa(f.run)+":", idText(request))
	asked, ok := c.Asked.get(id)
	c.Asked.delete(id)
	if f.isOpen(id) {
		f.withdrawn(id)
	}
	if ok && f.isOpen(asked.Call) {
		f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: asked.Call, Status: "running"})
	}
}
