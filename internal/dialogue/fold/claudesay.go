package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// What is kept of questions for their answers: of one, and of all that are open. What
// is longer is read again.
const (
	keepInput  = 64 << 10
	keepInputs = 512 << 10
	keepRules  = 16 << 10
)

// uuid returns the uuid of a message: the same each time it is said, so the agent
// takes it once. It is that in the id; else it is made of the id and the dialogue.
func (c *claude) uuid(f *Fold, id string) string {
	var key [16]byte
	if own, ok := strings.CutPrefix(id, "u:"); ok && parseUUID([]byte(own), &key) {
		return own
	}
	sum := sha256.Sum256([]byte("trl message\x00" + f.seed + "\x00" + id))
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8: made by a rule of one's own
	s := hex.EncodeToString(u)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// message tells a message.
func (c *claude) message(f *Fold, m *message) error {
	uuid := c.uuid(f, m.ID)
	c.Said.put(uuid, m.ID)
	var content any = m.Text
	if len(m.Content) > 0 {
		blocks := []any{}
		if m.Text != "" {
			blocks = append(blocks, map[string]any{"type": "text", "text": m.Text})
		}
		for _, b := range m.Content {
			switch {
			case b.Type == "image" && b.Data != "":
				blocks = append(blocks, map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": b.Mime, "data": b.Data}})
			case b.Type == "image" && b.URI != "":
				blocks = append(blocks, map[string]any{"type": "image", "source": map[string]any{"type": "url", "url": b.URI}})
			case b.Text != "":
				blocks = append(blocks, map[string]any{"type": "text", "text": b.Text})
			case b.URI != "":
				blocks = append(blocks, map[string]any{"type": "text", "text": b.URI})
			default:
				return fmt.Errorf("a block of type %q has nothing to say", b.Type)
			}
		}
		content = blocks
	}
	data, err := encode(map[string]any{
		"type": "user", "message": map[string]any{"role": "user", "content": content}, "parent_tool_use_id": nil, "session_id": "", "uuid": uuid,
	})
	if err != nil {
		return err
	}
	f.tell("m."+m.ID, data)
	return nil
}

// again: the agent takes a uuid once, so saying it again does no harm.
func (c *claude) again(*Fold, *message) bool { return true }

// request tells a request of our own.
func (c *claude) request(f *Fold, body map[string]any, what, value string) error {
	id := "trl-" + strconv.Itoa(f.run) + "-" + strconv.FormatInt(f.record, 10) + "-" + what
	data, err := encode(map[string]any{"type": "control_request", "request_id": id, "request": body})
	if err != nil {
		return err
	}
	c.Requests.put(id, claudeRequest{what, value})
	f.tell("q."+id, data)
	return nil
}

func (c *claude) interrupt(f *Fold) error {
	if s := f.state(); s != api.DialogueRunning && s != api.DialogueAsking {
		return nil // there is nothing to stop
	}
	return c.request(f, map[string]any{"subtype": "interrupt"}, "interrupt", "")
}

func (c *claude) set(f *Fold, model, mode string) error {
	if model != "" {
		if err := c.request(f, map[string]any{"subtype": "set_model", "model": model}, "model", model); err != nil {
			return err
		}
	}
	if mode != "" {
		return c.request(f, map[string]any{"subtype": "set_permission_mode", "mode": mode}, "mode", mode)
	}
	return nil
}

// responds takes an answer of the agent to a request of ours, or its repetition of an
// answer of ours.
func (c *claude) responds(f *Fold, e *claudeEvent) {
	var subtype, request, response, failure []byte
	each(e.response, func(key, v []byte) {
		switch string(key) {
		case "subtype":
			subtype = v
		case "request_id":
			request = v
		case "response":
			response = v
		case "error":
			failure = v
		}
	})
	id, ok := str(request), !is(subtype, "error")
	if sum, mine := c.Sent.get(id); mine {
		c.Sent.delete(id)
		if got := sumOf(response); got != sum {
			f.fault(api.DialogueEntity{Code: api.DialogueAltered, Message: "the agent repeated the answer to " + c.question(f, request) + " differently", Raw: f.here()})
		}
		return
	}
	if id == c.Init && id != "" {
		if ok {
			f.ready()
		} else {
			f.fail(cmpOr(str(failure), "the agent refused the handshake"))
		}
		return
	}
	r, mine := c.Requests.get(id)
	if !mine {
		return
	}
	c.Requests.delete(id)
	switch {
	case !ok:
		f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: "the agent refused to change its " + cmpOr(r.What, "settings") + ": " + clip(str(failure), maxShort)})
	case r.What == "model":
		f.model = r.Value
	case r.What == "mode":
		f.mode = r.Value
	}
}

func (c *claude) question(f *Fold, request []byte) string {
	return name("q:"+strconv.Itoa(f.run)+":", str(request))
}

// asks folds a question of the agent.
func (c *claude) asks(f *Fold, l *line, e *claudeEvent) {
	var subtype, tool, input, description, suggestions, reason, call, title, agent []byte
	each(e.request, func(key, v []byte) {
		switch string(key) {
		case "subtype":
			subtype = v
		case "tool_name":
			tool = v
		case "input":
			input = v
		case "description":
			description = v
		case "permission_suggestions":
			suggestions = v
		case "decision_reason":
			reason = v
		case "tool_use_id":
			call = v
		case "title":
			title = v
		case "agent_id":
			agent = v
		}
	})
	if !is(subtype, "can_use_tool") {
		f.unknown(l, typeName("control_request", str(subtype)))
		if data, err := encode(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": str(e.requestID), "error": "not supported by this client",
		}}); err == nil && len(e.requestID) > 2 && len(e.requestID) <= maxID && len(f.out) < 64 {
			f.tell("u."+strconv.FormatInt(l.raw.Offset, 10), data)
		}
		return
	}
	q := c.question(f, e.requestID)
	if f.get(q) != nil {
		return // asked already
	}
	ask := &claudeAsk{Request: str(e.requestID), Tool: clip(str(tool), maxTitle), Raw: l.raw}
	if len(ask.Request) > maxID {
		f.unknown(l, "control_request/can_use_tool")
		return
	}
	kept := 0
	for _, a := range c.Asks.m {
		kept += len(a.Input)
		for _, rule := range a.Rules {
			kept += len(rule)
		}
	}
	if len(input) <= keepInput && kept+len(input) <= keepInputs && !l.long {
		ask.Input = bytes.Clone(input)
	}
	d := claudeInput(ask.Tool, input)
	question := api.DialogueEntity{
		ID: q, Kind: "permission", Name: ask.Tool, Input: input, Diff: d.diff, Locations: d.locations, Title: cmpOr(cmpOr(str(title), str(description)), d.title), Reason: str(reason),
		Options: []api.DialogueOption{{ID: "allow", Kind: "allow_once", Name: "Allow"}, {ID: "deny", Kind: "reject_once", Name: "Deny"}},
	}
	if l.long && len(input) > maxOutput {
		question.Cut = map[string]int64{"input": l.raw.Bytes}
	}
	switch ask.Tool {
	case "AskUserQuestion":
		question.Kind = "choice"
		question.Fields, ask.Titles = claudeFields(input)
		question.Options[0].Name, question.Options[1].Name = "Answer", "Don't answer"
	case "ExitPlanMode":
		question.Kind = "plan"
	}
	room := min(keepRules, keepInputs+keepRules-kept)
	items(suggestions, func(v []byte) {
		if room -= len(v); room >= 0 && len(ask.Rules) < 16 {
			ask.Rules = append(ask.Rules, bytes.Clone(v))
			question.Suggestions = append(question.Suggestions, api.DialogueSuggestion{Title: claudeRule(v), Rule: compact(v)})
		}
	})
	if len(call) > 2 {
		ask.Call = callID(str(call))
		question.ToolCall = ask.Call
		if x := f.get(ask.Call); x != nil {
			question.Parent = x.Parent
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: ask.Call, Status: "pending"})
		} else {
			// A question creates its tool call.
			if task, ok := c.Tasks.get(str(agent)); ok && f.get(task.Call) != nil {
				question.Parent = task.Call
			}
			f.put(api.DialogueEntity{
				Type: api.EntityToolCall, ID: ask.Call, Parent: question.Parent, Name: ask.Tool, Kind: claudeKind(ask.Tool), Status: "pending", Title: d.title, Input: input, Diff: d.diff, Locations: d.locations, Cut: question.Cut,
			})
		}
	}
	if len(question.Suggestions) > 0 {
		question.Options = slices.Insert(question.Options, 1, api.DialogueOption{ID: "allow_always", Kind: "allow_always", Name: "Allow, and don't ask again"})
	}
	f.ask(question)
	c.Asks.put(q, ask)
}

// claudeFields returns what AskUserQuestion asks for, with the texts of the questions,
// by which they are answered.
func claudeFields(input []byte) (fields []api.DialogueField, titles []string) {
	items(member(input, "questions"), func(q []byte) {
		if len(fields) >= 16 || len(q) > 16<<10 {
			return
		}
		field := api.DialogueField{ID: "q" + strconv.Itoa(len(fields)+1), Type: "choice", Required: true}
		var options []byte
		many := false
		each(q, func(key, v []byte) {
			switch string(key) {
			case "question":
				field.Title = str(v)
			case "options":
				options = v
			case "multiSelect":
				many = isTrue(v)
			}
		})
		if many {
			field.Type = "choices"
		}
		items(options, func(o []byte) {
			label, about := str(member(o, "label")), str(member(o, "description"))
			if len(field.Options) < 64 && label != "" {
				text := label
				if about != "" {
					text += ": " + about
				}
				field.Options = append(field.Options, api.DialogueOption{ID: clip(label, maxTitle), Kind: "other", Name: clip(text, maxTitle)})
			}
		})
		titles = append(titles, field.Title)
		field.Title = clip(field.Title, maxShort)
		fields = append(fields, field)
	})
	return fields, titles
}

// claudeRule names a suggestion for people.
func claudeRule(rule []byte) string {
	var typ, mode, dirs, rules, where, behaviour []byte
	each(rule, func(key, v []byte) {
		switch string(key) {
		case "type":
			typ = v
		case "mode":
			mode = v
		case "directories":
			dirs = v
		case "rules":
			rules = v
		case "destination":
			where = v
		case "behavior":
			behaviour = v
		}
	})
	var what []string
	switch str(typ) {
	case "setMode":
		what = append(what, "mode "+str(mode))
	case "addDirectories":
		items(dirs, func(v []byte) { what = append(what, "directory "+str(v)) })
	case "addRules":
		items(rules, func(v []byte) {
			s := str(member(v, "toolName"))
			if r := str(member(v, "ruleContent")); r != "" {
				s += "(" + r + ")"
			}
			what = append(what, cmpOr(str(behaviour), "allow")+" "+s)
		})
	}
	if len(what) == 0 {
		what = append(what, cmpOr(str(typ), "rule"))
	}
	s := strings.Join(what, ", ")
	if d := str(where); d != "" {
		s += " (" + d + ")"
	}
	return clip(s, maxTitle)
}

// invalid returns the error for an answer that does not fit.
func invalid(format string, args ...any) error {
	return &api.Error{Code: api.CodeInvalidParams, Message: fmt.Sprintf(format, args...), Hint: "choose one of the question's options"}
}

// answer tells the answer to a question.
func (c *claude) answer(f *Fold, q *api.DialogueEntity, a *api.DialogueAnswer) error {
	ask, ok := c.Asks.get(q.ID)
	if !ok {
		return invalid("question %q can't be answered any more", q.ID)
	}
	option := a.Option
	if option == "" && len(a.Values) > 0 {
		option = "allow"
	}
	var body []byte
	status := "running"
	switch option {
	case "allow", "allow_always":
		input, err := c.input(f, ask)
		if err != nil {
			return err
		}
		if q.Kind == "choice" {
			if input, err = ask.fill(input, q, a.Values); err != nil {
				return err
			}
		}
		body = append(append(body, `{"behavior":"allow","updatedInput":`...), input...)
		var rules [][]byte
		switch n := a.Suggestion; {
		case n != nil && (*n < 0 || *n >= len(ask.Rules)):
			return invalid("question %q has no suggestion %d", q.ID, *n)
		case n != nil:
			rules = ask.Rules[*n : *n+1]
		case option == "allow_always": // all of them, as in the agent's own dialogue
			if rules = ask.Rules; len(rules) == 0 {
				return invalid("question %q suggests nothing that could be allowed always", q.ID)
			}
		}
		if len(rules) > 0 {
			body = append(append(append(body, `,"updatedPermissions":[`...), bytes.Join(rules, []byte(","))...), ']')
		}
		body = append(body, '}')
	case "deny":
		status = ""
		text, err := encode(cmpOr(a.Message, "The user declined."))
		if err != nil {
			return err
		}
		body = append(append(body, `{"behavior":"deny","message":`...), bytes.TrimSpace(text)...)
		if a.Interrupt {
			body = append(body, `,"interrupt":true`...)
		}
		body = append(body, '}')
	case "":
		return invalid("the answer to question %q names no option", q.ID)
	default:
		return invalid("question %q has no option %q", q.ID, option)
	}
	request, err := encode(ask.Request)
	if err != nil {
		return err
	}
	data := append([]byte(`{"type":"control_response","response":{"subtype":"success","request_id":`), bytes.TrimSpace(request)...)
	data = append(append(append(data, `,"response":`...), body...), "}}"...)
	f.tell("a."+q.ID, data)
	c.Sent.put(ask.Request, sumOf(body))
	c.Asks.delete(q.ID)
	if ask.Call != "" {
		if status == "" {
			c.Denied.put(ask.Call, true)
		} else {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: ask.Call, Status: status})
		}
	}
	return nil
}

// input returns the input of a question, byte for byte.
func (c *claude) input(f *Fold, ask *claudeAsk) ([]byte, error) {
	if ask.Input != nil {
		return ask.Input, nil
	}
	if f.cfg.Read == nil {
		return nil, errors.New("the question is too long to be answered")
	}
	data, err := f.cfg.Read(ask.Raw)
	if err != nil {
		return nil, fmt.Errorf("read the question again: %w", err)
	}
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		data = data[:i]
	}
	var e claudeEvent
	if !e.read(data) || str(e.requestID) != ask.Request {
		return nil, errors.New("read the question again: another line is in its place")
	}
	input := member(e.request, "input")
	if input == nil {
		return nil, errors.New("read the question again: it has no input")
	}
	return input, nil
}

// fill puts answers into the input of AskUserQuestion.
func (ask *claudeAsk) fill(input []byte, q *api.DialogueEntity, values map[string]json.RawMessage) ([]byte, error) {
	for id := range values {
		if !slices.ContainsFunc(q.Fields, func(f api.DialogueField) bool { return f.ID == id }) {
			return nil, invalid("question %q has no field %q", q.ID, id)
		}
	}
	answers := map[string]string{}
	for i, field := range q.Fields {
		v, ok := values[field.ID]
		if !ok {
			if field.Required {
				return nil, invalid("question %q needs the field %q", q.ID, field.ID)
			}
			continue
		}
		var one string
		var many []string
		switch {
		case json.Unmarshal(v, &one) == nil:
		case json.Unmarshal(v, &many) == nil:
			one = strings.Join(many, ", ")
		default:
			return nil, invalid("the field %q must be a string or a list of strings", field.ID)
		}
		answers[ask.Titles[i]] = one
	}
	text, err := encode(answers)
	if err != nil {
		return nil, err
	}
	input = bytes.TrimSpace(input)
	if len(input) < 2 || input[len(input)-1] != '}' {
		return nil, invalid("question %q has no input to fill", q.ID)
	}
	out := bytes.TrimSpace(bytes.Clone(input[:len(input)-1]))
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(append(out, `"answers":`...), bytes.TrimSpace(text)...), '}'), nil
}

// sumOf returns a sum of what a JSON text says, however it is written.
func sumOf(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
