package fold

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// codeNoMethod is the error of JSON-RPC for a method that is not there. Both protocols
// let agents ask their client for more than answers: for files, terminals, tokens.
const codeNoMethod = -32601

// rpc is what an adapter of a protocol over JSON-RPC remembers of its requests.
type rpc struct {
	Next  int64            // the last id that was given to a request
	Calls map[int64]called // requests that are not answered yet
}

// called is a request to the agent that is not answered yet.
type called struct {
	What string `json:",omitempty"` // the method
	Msg  string `json:",omitempty"` // the message that it says
	Arg  string `json:",omitempty"`
}

// rpcLine is one line of the protocol, its members as they are.
type rpcLine struct {
	method, id, params, result, fault []byte
}

// parse reads the members of a line. ok is false if it is no object.
func (r *rpcLine) parse(data []byte) (ok bool) {
	return each(data, func(key, value []byte) {
		switch string(key) {
		case "method":
			r.method = inner(value)
		case "id":
			r.id = value
		case "params":
			r.params = value
		case "result":
			r.result = value
		case "error":
			r.fault = value
		}
	})
}

// inner returns a string without its quotes, for comparisons with names that have
// no escapes; nil if it is no string.
func inner(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// maxRequestID is how long the id of a request of the agent may be, which its answer
// repeats.
const maxRequestID = 1 << 10

// keyOf returns a name that an agent gave as the key of a table.
func keyOf(native string) string { return name("", native) }

// idText returns the id of a request as text. Ids 1 and "1" are different.
func idText(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return strconv.Quote(str(raw))
	}
	return string(raw)
}

// call tells a request, and remembers what it was for.
func (r *rpc) call(f *Fold, head, method string, params object, c called) {
	r.Next++
	if r.Calls == nil {
		r.Calls = map[int64]called{}
	}
	c.What = method
	r.Calls[r.Next] = c
	id := strconv.FormatInt(r.Next, 10)
	b := append([]byte(head), `"id":`...)
	b = append(b, id...)
	b = append(b, `,"method":`...)
	b = appendString(b, method)
	b = append(b, `,"params":`...)
	b = params.append(b)
	f.tell(id, append(b, '}', '\n'))
}

// answered returns the request that a line answers.
func (r *rpc) answered(id []byte) (called, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return called{}, false
	}
	c, ok := r.Calls[n]
	delete(r.Calls, n)
	return c, ok
}

// notify tells a notification.
func notify(f *Fold, head, key, method string, params object) {
	b := append([]byte(head), `"method":`...)
	b = appendString(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b = params.append(b)
	}
	f.tell(key, append(b, '}', '\n'))
}

// reply tells the answer to a request of the agent.
func reply(f *Fold, head string, id []byte, member string, value []byte) {
	b := append([]byte(head), `"id":`...)
	b = append(b, id...)
	b = append(b, ',', '"')
	b = append(b, member...)
	b = append(b, '"', ':')
	b = append(b, value...)
	// An id may come back in a later request of the agent, and the key must not.
	f.tell("a"+letters(string(id))+"."+strconv.FormatInt(f.record, 36)+"."+strconv.FormatInt(f.settled, 36), append(b, '}', '\n'))
}

// refuse tells that TRL does not do what the agent asks for.
func refuse(f *Fold, head string, id, method []byte) {
	b := append([]byte(`{"code":`), strconv.Itoa(codeNoMethod)...)
	b = append(b, `,"message":`...)
	b = appendString(b, "TRL does not offer "+clip(string(method), 128))
	reply(f, head, id, "error", append(b, '}'))
}

// member is a member of an object for the agent. Its value is JSON.
type jsonMember struct {
	name  string
	value []byte
}

// object is an object for the agent, in the order in which it is written, so that
// the same input gives the same bytes.
type object []jsonMember

func (o object) append(b []byte) []byte {
	b = append(b, '{')
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m.name)
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}

func (o object) json() []byte { return o.append(nil) }

// with adds a member with a text.
func (o object) with(name, text string) object {
	return append(o, jsonMember{name, appendString(nil, text)})
}

// raw adds a member with a value that is JSON.
func (o object) raw(name string, value []byte) object { return append(o, jsonMember{name, value}) }

// list returns an array.
func list(values ...[]byte) []byte {
	b := append([]byte{'['}, bytes.Join(values, []byte{','})...)
	return append(b, ']')
}

// appendString appends a string as JSON. It keeps < and > as they are: what a person
// has approved must come back as it was, byte for byte.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// faultText returns the text of an error of JSON-RPC, with what it says in detail.
func faultText(raw []byte) string {
	var message, data []byte
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "message":
			message = value
		case "data":
			data = value
		}
	})
	text := str(message)
	switch {
	case has(member(data, "details")):
		text += ": " + str(member(data, "details"))
	case len(data) > 0 && data[0] == '"':
		text += ": " + str(data)
	}
	return nestedError(text)
}

// nestedError returns the message in a text that is an answer of a model's API, and
// else the text.
func nestedError(text string) string {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return text
	}
	raw := []byte(text)
	if text[0] == '[' {
		var first []byte
		items(bytes.TrimSpace(raw), func(value []byte) {
			if first == nil {
				first = value
			}
		})
		raw = first
	}
	if inside := str(member(member(bytes.TrimSpace(raw), "error"), "message")); inside != "" {
		return inside
	}
	return text
}

// chosen returns the option that an answer names.
func chosen(q *api.DialogueEntity, a *api.DialogueAnswer) (api.DialogueOption, error) {
	for _, o := range q.Options {
		if o.ID == a.Option {
			return o, nil
		}
	}
	if a.Option == "" {
		for _, o := range q.Options { // an answer with values alone
			if o.Kind == "allow_once" && len(a.Values) > 0 {
				return o, nil
			}
		}
	}
	return api.DialogueOption{}, invalid("question %q has no option %q", q.ID, a.Option)
}

// rejects reports whether an option says no.
func rejects(o api.DialogueOption) bool { return o.Kind == "reject_once" || o.Kind == "reject_always" }

// formFields returns the fields of a form that is described by a JSON schema.
func formFields(schema []byte) (fields []api.DialogueField) {
	required := map[string]bool{}
	items(member(schema, "required"), func(value []byte) { required[str(value)] = true })
	each(member(schema, "properties"), func(key, value []byte) {
		if len(fields) >= maxItems {
			return
		}
		var p struct{ typ, title, description, oneOf, enum, names, items []byte }
		each(value, func(key, value []byte) {
			switch string(key) {
			case "type":
				p.typ = value
			case "title":
				p.title = value
			case "description":
				p.description = value
			case "oneOf", "anyOf":
				p.oneOf = value
			case "enum":
				p.enum = value
			case "enumNames":
				p.names = value
			case "items":
				p.items = value
			}
		})
		field := api.DialogueField{ID: clip(string(key), maxShort), Title: clip(cmpOr(str(p.title), str(p.description)), maxTitle), Type: "text"}
		field.Required = required[string(key)]
		switch string(inner(p.typ)) {
		case "boolean":
			field.Type = "boolean"
		case "number", "integer":
			field.Type = "number"
		case "array":
			field.Type = "choices"
			p.enum, p.oneOf = member(p.items, "enum"), member(p.items, "anyOf")
			if p.oneOf == nil {
				p.oneOf = member(p.items, "oneOf")
			}
		}
		option := func(id, name string) {
			if field.Type == "text" {
				field.Type = "choice"
			}
			if len(field.Options) < maxItems {
				field.Options = append(field.Options, api.DialogueOption{ID: id, Kind: "other", Name: clip(name, maxTitle)})
			}
		}
		var names []string
		items(p.names, func(value []byte) { names = append(names, str(value)) })
		i := 0
		items(p.enum, func(value []byte) {
			id := str(value)
			title := id
			if i < len(names) {
				title = names[i]
			}
			i++
			option(id, title)
		})
		items(p.oneOf, func(value []byte) { option(str(member(value, "const")), str(member(value, "title"))) })
		fields = append(fields, field)
	})
	return fields
}

// formContent returns the values of an answer as an object, in the order of the
// fields.
func formContent(q *api.DialogueEntity, a *api.DialogueAnswer) ([]byte, error) {
	content := object{}
	for _, field := range q.Fields {
		value, ok := a.Values[field.ID]
		if !ok {
			if field.Required {
				return nil, invalid("question %q needs the field %q", q.ID, field.ID)
			}
			continue
		}
		if !json.Valid(value) {
			return nil, invalid("the value of the field %q is no JSON", field.ID)
		}
		content = content.raw(field.ID, value)
	}
	return content.json(), nil
}

// texts returns the texts of a value that is a text or a list of texts.
func texts(raw json.RawMessage) (out [][]byte) {
	if len(raw) > 0 && raw[0] == '"' {
		return [][]byte{raw}
	}
	items(raw, func(value []byte) {
		if len(value) > 0 && value[0] == '"' {
			out = append(out, value)
		}
	})
	if out == nil && has(raw) && raw[0] != '[' {
		out = append(out, appendString(nil, string(raw))) // a number or a boolean
	}
	return out
}
