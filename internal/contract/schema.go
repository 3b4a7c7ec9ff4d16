package contract

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemas builds the definitions of the contract. References between them are
// prefix plus the name.
type schemas struct {
	*Contract
	prefix string
	defs   map[string]*jsonschema.Schema
}

// Schema generates the JSON Schema. It describes any message on the wire, and
// has a definition for every type and, as METHOD.request and METHOD.response,
// for every method.
//
// It is as strict as the daemon about what a client sends, except that the
// daemon treats a null member as absent. It is open about what the daemon
// sends: later versions may add members.
func (c *Contract) Schema() ([]byte, error) {
	s := c.schemas("#/$defs/")
	return indented(&jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema",
		Title:  "TRL protocol, version 1",
		Comment: "Generated from the method table and the types of the daemon; do not edit. " +
			"To regenerate it: go test ./internal/contract -run Fresh -update",
		Description: "A message between a client and the daemon. protocol.md explains everything.",
		AnyOf:       []*jsonschema.Schema{s.ref("Request"), s.ref("Response"), s.ref("Notification")},
		Defs:        s.defs,
	})
}

func (c *Contract) schemas(prefix string) *schemas {
	s := &schemas{Contract: c, prefix: prefix, defs: map[string]*jsonschema.Schema{}}
	for _, t := range c.Types {
		s.defs[t.Name] = s.ofType(t)
	}
	s.defs["ErrorObject"] = s.errorObject()
	id := &jsonschema.Schema{Types: []string{"string", "number", "null"}}
	request, response := &jsonschema.Schema{}, &jsonschema.Schema{}
	for _, m := range c.Methods {
		required := []string{"jsonrpc", "method"}
		if params := c.byName[nameOf(m.Params)]; slices.ContainsFunc(params.Fields, func(f Field) bool { return f.Required }) {
			required = append(required, "params")
		}
		s.defs[m.Name+".request"] = message(m.Summary, required,
			member{"id", id}, member{"method", constant(m.Name)}, member{"params", s.ref(nameOf(m.Params))})
		s.defs[m.Name+".response"] = message("The answer to "+m.Name+".", []string{"jsonrpc", "id", "result"},
			member{"id", id}, member{"result", s.ref(nameOf(m.Result))})
		request.OneOf = append(request.OneOf, s.ref(m.Name+".request"))
		response.AnyOf = append(response.AnyOf, s.ref(m.Name+".response")) // not oneOf: methods share results
	}
	s.defs["ErrorResponse"] = message("The answer to a request that was refused or failed. The id is null when it could not be read.",
		[]string{"jsonrpc", "id", "error"},
		member{"id", id}, member{"error", s.ref("ErrorObject")})
	notification := &jsonschema.Schema{}
	for _, n := range c.Notifications {
		s.defs[n.Name] = message("A notification after the answer to a method that opened a stream.", []string{"jsonrpc", "method", "params"},
			member{"method", constant(n.Name)}, member{"params", s.ref(nameOf(n.Params))})
		notification.OneOf = append(notification.OneOf, s.ref(n.Name))
	}
	request.Description = "A request. A request without an id is executed but not answered."
	response.Description = "The answer to the request with the same id."
	response.AnyOf = append(response.AnyOf, s.ref("ErrorResponse"))
	notification.Description = "A message that the daemon sends without a request."
	s.defs["Request"], s.defs["Response"], s.defs["Notification"] = request, response, notification
	return s
}

func (s *schemas) ref(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: s.prefix + name}
}

type member struct {
	name   string
	schema *jsonschema.Schema
}

// message returns the schema of a JSON-RPC object.
func message(description string, required []string, members ...member) *jsonschema.Schema {
	s := object(append([]member{{"jsonrpc", constant("2.0")}}, members...))
	s.Description, s.Required = description, required
	return s
}

func object(members []member) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, m := range members {
		s.Properties[m.name] = m.schema
		s.PropertyOrder = append(s.PropertyOrder, m.name)
	}
	return s
}

func constant(value string) *jsonschema.Schema {
	return &jsonschema.Schema{Const: jsonschema.Ptr[any](value)}
}

func (s *schemas) ofType(t *Type) *jsonschema.Schema {
	if t.Values != nil {
		return &jsonschema.Schema{Type: "string", Description: t.Doc, Enum: anys(t.Values)}
	}
	var members []member
	var required []string
	for _, f := range t.Fields {
		members = append(members, member{f.Name, s.ofField(f, t.Params)})
		if f.Required {
			required = append(required, f.Name)
		}
	}
	o := object(members)
	o.Description, o.Required = t.Doc, required
	if t.Params && !t.Results {
		o.AdditionalProperties = never()
	}
	if t.Extends != nil {
		o.AllOf = []*jsonschema.Schema{s.ref(t.Extends.objectName())}
	}
	if t.Word == nil {
		return o
	}
	s.defs[t.objectName()] = o
	return &jsonschema.Schema{
		Description: t.Doc,
		AnyOf:       []*jsonschema.Schema{s.ofShape(t.Word, false), s.ref(t.objectName())},
	}
}

func (s *schemas) ofField(f Field, params bool) *jsonschema.Schema {
	of := s.ofShape(f.Shape, params)
	if f.Nullable {
		if of.Type == "" {
			of = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{of, {Type: "null"}}}
		} else {
			of.Types, of.Type = []string{of.Type, "null"}, ""
		}
	}
	of.Description = f.Meaning
	return of
}

func (s *schemas) ofShape(shape *Shape, params bool) *jsonschema.Schema {
	switch shape.Kind {
	case String:
		return &jsonschema.Schema{Type: "string", Enum: anys(shape.Values)}
	case Integer, Number:
		of := &jsonschema.Schema{Type: "integer"}
		if shape.Kind == Number {
			of.Type = "number"
		}
		if params {
			of.Minimum, of.Maximum = shape.Min, shape.Max
			if of.Minimum == nil {
				of.Minimum = jsonschema.Ptr(0.0)
			}
		}
		return of
	case Boolean:
		return &jsonschema.Schema{Type: "boolean"}
	case Time:
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case List:
		return &jsonschema.Schema{Type: "array", Items: s.ofShape(shape.Elem, params)}
	case Map:
		elem := s.ofShape(shape.Elem, params)
		if shape.Nulls {
			elem.Type, elem.Types = "", []string{elem.Type, "null"}
		}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: elem}
	case Named:
		of := s.ref(shape.Name)
		if t := s.byName[shape.Name]; params && t.Results && t.Values == nil {
			of.UnevaluatedProperties = never() // open in results, closed in params
		}
		return of
	default:
		return &jsonschema.Schema{}
	}
}

// never returns the schema that nothing matches, written as false.
func never() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

func (s *schemas) errorObject() *jsonschema.Schema {
	numbers := make([]any, len(s.Codes))
	for i, code := range s.Codes {
		numbers[i] = code.Number
	}
	data := object([]member{
		{"code", s.ref("ErrorCode")},
		{"hint", &jsonschema.Schema{Type: "string", Description: "a sentence for a model: the next call to make"}},
	})
	data.Description, data.Required = "the stable name, the hint, and details, each under its own name", []string{"code"}
	o := object([]member{
		{"code", &jsonschema.Schema{Type: "integer", Description: "the JSON-RPC number", Enum: numbers}},
		{"message", &jsonschema.Schema{Type: "string", Description: "what is wrong; never repeats the value of a parameter"}},
		{"data", data},
	})
	o.Description, o.Required = "The JSON-RPC error object. Switch on data.code.", []string{"code", "message", "data"}
	return o
}

func anys(values []string) []any {
	if len(values) == 0 {
		return nil
	}
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// indented writes a document as indented JSON.
func indented(document any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(document)
	return b.Bytes(), err
}
