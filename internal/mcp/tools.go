package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/spelling"
)

// The names of the tools.
const (
	toolRun      = "run"
	toolOutput   = "output"
	toolInput    = "input"
	toolStop     = "stop"
	toolSessions = "sessions"
	toolScreen   = "screen"
)

// tool is one entry of the table: its description for models, and its function.
type tool struct {
	tool *sdk.Tool
	call func(ctx context.Context, s *server, c *call) (reply, error)
}

// reply is the answer of a tool. Models read its text; programs read the value,
// which is marshalled as structured content.
type reply interface{ text() string }

// call is one call of a tool.
type call struct {
	request   *sdk.CallToolRequest
	arguments json.RawMessage
	room      budget // for output in its reply
}

// tools returns the table, in the order in which the tools are listed. It is built
// on first use: most processes of this program never need it.
var tools = sync.OnceValue(func() []tool {
	return []tool{
		newTool(toolRun, `Run a command in a session. Returns its exit status and output when it ends, or the output so far after wait_s, while it keeps running under its exec id. State (cd, variables, background jobs) persists in the session.`,
			&sdk.ToolAnnotations{Title: "Run a command"}, (*server).run),
		newTool(toolOutput, `Read the output of a running or ended command, and optionally wait first: until it ends, until a pattern appears, or until it is quiet. With search: find lines in the whole output.`,
			&sdk.ToolAnnotations{Title: "Read output, wait", ReadOnlyHint: true, OpenWorldHint: new(bool)}, (*server).output),
		newTool(toolInput, `Type into a running command: text, named keys, or a secret by its name (you never see its value).`,
			&sdk.ToolAnnotations{Title: "Type into a command"}, (*server).input),
		newTool(toolStop, `Stop a command and everything it left running, or end a whole session. Returns when the processes are gone. With signal: only send that signal.`,
			&sdk.ToolAnnotations{Title: "Stop a command or a session", DestructiveHint: ptr(true), IdempotentHint: true, OpenWorldHint: new(bool)}, (*server).stop),
		newTool(toolSessions, `List sessions: what is running, what ran (exec ids, exit statuses), and where. Call it first after a restart.`,
			&sdk.ToolAnnotations{Title: "List sessions", ReadOnlyHint: true, OpenWorldHint: new(bool)}, (*server).sessions),
		newTool(toolScreen, `Show the current terminal screen of a session created with tty: true, as a person sees it.`,
			&sdk.ToolAnnotations{Title: "Show a terminal", ReadOnlyHint: true, OpenWorldHint: new(bool)}, (*server).screen),
	}
})

func ptr[T any](v T) *T { return &v }

// newTool makes a tool from a method with typed arguments and reply.
func newTool[A any, R reply](name, description string, hints *sdk.ToolAnnotations, fn func(*server, context.Context, *call, A) (R, error)) tool {
	in, out := schema(reflect.TypeFor[A]()), schema(reflect.TypeFor[R]())
	out.AdditionalProperties = nil // clients must accept fields that a later version adds
	return tool{
		tool: &sdk.Tool{
			Name: name, Description: description, Annotations: hints, InputSchema: in, OutputSchema: out,
			// By default Claude Code shows its model only the names of tools until
			// it asks for more. These tools are few, and needed all the time.
			Meta: sdk.Meta{"anthropic/alwaysLoad": true},
		},
		call: func(ctx context.Context, s *server, c *call) (reply, error) {
			var args A
			if err := decode(name, in, c.arguments, &args); err != nil {
				return nil, err
			}
			return fn(s, ctx, c, args)
		},
	}
}

// schema returns the JSON Schema of a struct. The tag jsonschema of a field is its
// description. A prefix "a|b: " lists the allowed values, and "1..50: " the
// bounds.
func schema(t reflect.Type) *jsonschema.Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		panic(fmt.Sprintf("mcp: %s: %v", t, err))
	}
	for _, property := range s.Properties {
		// Optional values are left out, not null.
		if i := slices.Index(property.Types, "null"); i >= 0 && len(property.Types) == 2 {
			property.Type, property.Types = property.Types[1-i], nil
		}
		bounds, rest, found := strings.Cut(property.Description, ": ")
		switch low, high, isRange := strings.Cut(bounds, ".."); {
		case !found:
		case isRange:
			property.Minimum, property.Maximum, property.Description = parseBound(low), parseBound(high), rest
		case strings.Contains(bounds, "|") && !strings.Contains(bounds, " "):
			for value := range strings.SplitSeq(bounds, "|") {
				property.Enum = append(property.Enum, value)
			}
			property.Description = rest
		}
	}
	return s
}

func parseBound(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("mcp: invalid bound " + text)
	}
	return &n
}

// decode decodes the arguments of a call into to. Its errors tell a model how to
// correct the call.
func decode(name string, s *jsonschema.Schema, arguments json.RawMessage, to any) error {
	fields := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(arguments)) > 0 {
		if err := json.Unmarshal(arguments, &fields); err != nil {
			return api.Errorf(api.CodeInvalidParams, "%s: the arguments are not an object", name)
		}
	}
	for field, value := range fields {
		property := s.Properties[field]
		switch {
		case property == nil:
			return unknownArgument(name, s, fields, field)
		case string(value) == "null":
			delete(fields, field) // some models send null for an argument they leave out
		}
	}
	for _, field := range s.Required {
		if fields[field] == nil {
			return api.Errorf(api.CodeInvalidParams, "%s: %s is missing", name, field)
		}
	}
	all, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(all, to); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return api.Errorf(api.CodeInvalidParams, "%s: %s must be %s", name, wrong.Field, jsonTypeName(wrong.Type)).With("field", wrong.Field)
		}
		return api.Errorf(api.CodeInvalidParams, "%s: cannot decode the arguments", name)
	}
	return checkBounds(name, s, fields)
}

// unknownArgument returns the error for an argument that the tool does not have. It
// suggests the required argument that is missing, if there is exactly one, or else
// the argument with the closest spelling.
func unknownArgument(name string, s *jsonschema.Schema, fields map[string]json.RawMessage, field string) error {
	known := slices.Sorted(maps.Keys(s.Properties))
	missing := slices.DeleteFunc(slices.Clone(s.Required), func(f string) bool { return fields[f] != nil })
	best, ok := "", len(missing) == 1
	if ok {
		best = missing[0]
	} else {
		best, ok = spelling.Closest(field, known)
	}
	meant := ""
	if ok {
		meant = "did you mean " + best + "? "
	}
	return api.Errorf(api.CodeInvalidParams, "%s has no argument %q", name, field).
		WithHint("%sit takes %s", meant, strings.Join(known, ", "))
}

// checkBounds checks values against the bounds and enums of the schema.
func checkBounds(name string, s *jsonschema.Schema, fields map[string]json.RawMessage) error {
	for field, value := range fields {
		p := s.Properties[field]
		if p.Maximum != nil {
			var n float64
			if json.Unmarshal(value, &n) != nil || n < *p.Minimum || n > *p.Maximum {
				return api.Errorf(api.CodeInvalidParams, "%s: %s must be from %g to %g", name, field, *p.Minimum, *p.Maximum)
			}
		}
		if p.Enum != nil {
			var text string
			if json.Unmarshal(value, &text) != nil || !slices.Contains(p.Enum, any(text)) {
				return api.Errorf(api.CodeInvalidParams, "%s: %s must be one of %v", name, field, p.Enum)
			}
		}
	}
	return nil
}

// jsonTypeName describes a type in the words of JSON.
func jsonTypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array of strings"
	case reflect.Map, reflect.Struct:
		return "an object of strings"
	default:
		return "a number"
	}
}

// handler serves a tool. A failed call returns a result with isError, which the
// model can read. A command that fails is not a failed call.
func (s *server) handler(t tool) sdk.ToolHandler {
	return func(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		c := &call{request: request, arguments: request.Params.Arguments, room: budgetWithStructured}
		if s.textOnly(request) {
			c.room = budgetTextOnly
		}
		answer, err := t.call(ctx, s, c)
		if err != nil {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: s.redact(describe(err))}}}, nil
		}
		structured, err := json.Marshal(answer)
		if err != nil {
			return nil, err
		}
		content := []sdk.Content{&sdk.TextContent{Text: s.redact(answer.text())}}
		if shown, ok := answer.(interface{ image() []byte }); ok && shown.image() != nil {
			content = append(content, &sdk.ImageContent{Data: shown.image(), MIMEType: "image/png"})
		}
		return &sdk.CallToolResult{
			Content:           content,
			StructuredContent: json.RawMessage(printable.JSON(s.redactJSON(structured))),
		}, nil
	}
}

// callTime limits the duration of a whole call. Clients time out after a minute.
const callTime = 57 * time.Second

// describe formats an error for a model: what is wrong, and the next call to make.
func describe(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the call did not finish within %s, and its work may continue\ncall the tool sessions to see what is running", callTime)
	}
	e := api.AsError(err)
	text := string(e.Code) + ": " + printable.Text(e.Message)
	for _, name := range slices.Sorted(maps.Keys(e.Details)) {
		text += "\n" + printable.Text(fmt.Sprintf("%s: %v", name, e.Details[name]))
	}
	if e.Hint != "" {
		text += "\n" + printable.Text(toolWords.Replace(e.Hint))
	}
	return text
}

// toolWords translates a hint of the daemon, which names methods and parameters,
// into tools and their arguments.
var toolWords = strings.NewReplacer(
	"session.hold with force: true takes it over; session.watch tells when it is free; session.screen still shows it",
	"wait until it is released; the tool screen still shows the session",
	api.MethodSessionCreate, "run with a new session name", api.MethodSessionList, "the tool sessions",
	api.MethodSessionInfo, "the tool sessions", api.MethodExecList, "the tool sessions", api.MethodExecInfo, "the tool output",
	api.MethodSessionDestroy, "the tool stop", api.MethodExecCancel, "the tool stop", api.MethodExecSignal, "the tool stop with signal",
	api.MethodPlaceList, "the tool sessions", api.MethodSystemInfo, "the tool sessions",
	api.MethodExecRun, "the tool run", api.MethodExecStream, "the tool run", api.MethodExecOutput, "the tool output",
	api.MethodExecAttach, "the tool output", api.MethodExecInput, "the tool input", api.MethodSessionScreen, "the tool screen",
	"stdin_open: true", "open_stdin: true", `tty: {"rows": 24, "cols": 80}`, "tty: true", "exec_id", "exec", "session_id", "session",
)
