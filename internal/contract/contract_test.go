package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
	"github.com/terminal-runtime/trl/internal/trltest"
)

var update = flag.Bool("update", false, "write the generated files")

const (
	root           = "../.."
	page           = "docs/protocol.md"
	schemaFile     = "docs/schema.json"
	openAPIFile    = "docs/openapi.json"
	pythonFile     = "sdk/python/src/trl_client/_types.py"
	typescriptFile = "sdk/typescript/src/types.ts"
	encoderFile    = "api/execjson_fields.go"
)

// backend implements the methods that the table needs, but none of them works:
// a call that reaches one panics and is answered with INTERNAL.
type backend struct {
	service.Sessions
	service.Execs
	service.System
}

func table() *service.Table {
	return service.New(service.Config{Sessions: backend{}, Execs: backend{}, System: backend{}})
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T) *Contract {
	t.Helper()
	vocabulary, err := ReadVocabulary(filepath.Join(root, "api"))
	if err != nil {
		t.Fatal(err)
	}
	var methods []Method
	for _, m := range table().Methods() {
		methods = append(methods, Method{
			Name: m.Name, Scope: string(m.Scope), Summary: m.Summary, Params: m.Params, Result: m.Result, Sends: m.Sends,
		})
	}
	c, err := New(methods, vocabulary, string(file(t, page)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFresh compares the files in the repository with newly generated ones.
func TestFresh(t *testing.T) {
	c := read(t)
	schema, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	openapi, err := c.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := ExecResultEncoder()
	if err != nil {
		t.Fatal(err)
	}
	for name, fresh := range map[string][]byte{
		encoderFile:    encoder,
		schemaFile:     schema,
		openAPIFile:    openapi,
		pythonFile:     c.Python(),
		typescriptFile: c.TypeScript(),
	} {
		path := filepath.Join(root, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, fresh) {
			continue
		}
		if !*update {
			t.Errorf("%s is stale: run go test ./internal/contract -run Fresh -update and review the changes", name)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingIsLeftOut checks that everything is described, and that every word
// is in every file.
func TestNothingIsLeftOut(t *testing.T) {
	c := read(t)
	for _, typ := range c.Types {
		if typ.Doc == typ.Name {
			t.Errorf("%s has no doc comment", typ.Name)
		}
		for _, f := range typ.Fields {
			if f.Meaning == "" {
				t.Errorf("%s.%s has no meaning in %s", typ.Name, f.Name, page)
			}
		}
		for _, value := range typ.Values {
			if typ.Means[value] == "" {
				t.Errorf("%s %s has no meaning in %s", typ.Name, value, page)
			}
		}
	}
	for _, name := range []string{schemaFile, openAPIFile, pythonFile, typescriptFile} {
		text := string(file(t, name))
		for _, m := range c.Methods {
			if !strings.Contains(text, `"`+m.Name+`"`) {
				t.Errorf("%s does not have the method %s", name, m.Name)
			}
		}
		for _, n := range c.Notifications {
			if !strings.Contains(text, `"`+n.Name+`"`) {
				t.Errorf("%s does not have the notification %s", name, n.Name)
			}
		}
		for code := range api.Codes() {
			if !strings.Contains(text, `"`+string(code)+`"`) {
				t.Errorf("%s does not have the error code %s", name, code)
			}
		}
		if !strings.Contains(text, "go test ./internal/contract -run Fresh -update") {
			t.Errorf("%s does not say how it is generated", name)
		}
	}
	for _, m := range c.Methods {
		if m.Sends != "" && !slices.ContainsFunc(c.Notifications, func(n Notification) bool { return n.Name == m.Sends }) {
			t.Errorf("%s sends the unknown notification %s", m.Name, m.Sends)
		}
	}
}

// judge validates messages against the definitions of the stored schema.
type judge struct {
	t    *testing.T
	text []byte
	defs map[string]*jsonschema.Resolved
}

func newJudge(t *testing.T) *judge {
	return &judge{t: t, text: file(t, schemaFile), defs: map[string]*jsonschema.Resolved{}}
}

// refuses returns why a JSON value does not match the definition, or nil.
func (j *judge) refuses(definition string, value any) error {
	j.t.Helper()
	resolved := j.defs[definition]
	if resolved == nil {
		var s jsonschema.Schema
		if err := json.Unmarshal(j.text, &s); err != nil {
			j.t.Fatal(err)
		}
		if s.Defs[definition] == nil {
			j.t.Fatalf("the schema has no %s", definition)
		}
		s.AnyOf = []*jsonschema.Schema{{Ref: "#/$defs/" + definition}}
		var err error
		if resolved, err = s.Resolve(nil); err != nil {
			j.t.Fatal(err)
		}
		j.defs[definition] = resolved
	}
	return resolved.Validate(value)
}

// asJSON returns a value as it is on the wire.
func asJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// filled returns a value of a type with every member set.
func (c *Contract) filled(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.String:
		v.SetString("text")
		if values := c.vocabulary.ofType(typ.Name()); len(values) > 0 {
			v.SetString(values[0])
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf("anything"))
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(c.filled(typ.Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(v, c.filled(typ.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(typ))
		v.SetMapIndex(c.filled(typ.Key()), c.filled(typ.Elem()))
	case reflect.Struct:
		if typ == timeType {
			break
		}
		if typ == errorType {
			v.Set(reflect.ValueOf(*api.Errorf(api.CodeInternal, "it failed").With("field", "x").WithHint("try again")))
			break
		}
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" {
				continue // what stands instead of the object
			}
			v.FieldByIndex(field.Index).Set(c.filled(field.Type))
			if least, err := strconv.ParseFloat(field.Tag.Get("min"), 64); err == nil && field.Type.Kind() == reflect.Int64 {
				v.FieldByIndex(field.Index).SetInt(int64(max(least, 7)))
			}
			if words := field.Tag.Get("enum"); words != "" {
				v.FieldByIndex(field.Index).SetString(strings.Split(words, ",")[0])
			}
			if prefix, ok := closedFields[name]; ok {
				v.FieldByIndex(field.Index).SetString(c.vocabulary.named(prefix)[0])
			}
		}
	}
	return v
}

// TestSchemaAndDaemonAgree sends valid and invalid params of every method to
// the schema and to the method table. Both accept and reject the same.
func TestSchemaAndDaemonAgree(t *testing.T) {
	c, j, served := read(t), newJudge(t), table()
	ctx := access.With(t.Context(), access.Actor{Transport: "test", Scope: access.ScopeAdmin})
	for _, m := range c.Methods {
		try := func(what string, params map[string]any, good bool) {
			t.Helper()
			text, err := json.Marshal(params)
			if err != nil {
				t.Fatal(err)
			}
			_, failure := served.Call(ctx, m.Name, text)
			if daemon := !api.IsCode(failure, api.CodeInvalidParams); daemon != good {
				t.Errorf("%s with %s: the daemon says %v", m.Name, what, failure)
			}
			refusal := j.refuses(m.Name+".request", map[string]any{"jsonrpc": "2.0", "id": 1.0, "method": m.Name, "params": params})
			if (refusal == nil) != good {
				t.Errorf("%s with %s: the schema says %v", m.Name, what, refusal)
			}
		}
		whole := func() map[string]any { return asJSON(t, c.filled(m.Params).Interface()) }
		try("everything", whole(), true)
		params := whole()
		params["unheard_of"] = 1
		try("an unknown member", params, false)
		for name, value := range whole() {
			params := whole()
			switch value := value.(type) {
			case float64:
				params[name] = -1
				try("a negative "+name, params, false)
				params[name] = "7"
			case map[string]any:
				if value["rows"] != nil {
					value["unheard_of"] = 1
					params[name] = value
					try("an unknown member in "+name, params, false)
					params[name] = map[string]any{"rows": 1}
					try("half of "+name, params, false)
				}
				params[name] = "{}"
			default:
				params[name] = 7
			}
			try("another type of "+name, params, false)
		}
		for _, f := range c.byName[nameOf(m.Params)].Fields {
			params := whole()
			delete(params, f.Name)
			try("no "+f.Name, params, !f.Required)
		}
	}
}

// TestSchemaAndDaemonAgreeOnRanges does the same for ranges, and for words that may
// stand instead of an object.
func TestSchemaAndDaemonAgreeOnRanges(t *testing.T) {
	j, served := newJudge(t), table()
	ctx := access.With(t.Context(), access.Actor{Transport: "test", Scope: access.ScopeAdmin})
	for params, good := range map[string]bool{
		`{"limits":{}}`: true, `{"limits":{"cpu":0.5,"pids":1}}`: true, `{"limits":{"cpu":0.001}}`: false, `{"limits":{"cpu":1e30}}`: false,
		`{"limits":{"pids":0}}`: false, `{"limits":{"memory_bytes":1048576}}`: true, `{"limits":{"memory_bytes":1048575}}`: false,
		`{"limits":{"unheard_of":1}}`: false, `{"limits":"all"}`: false,
		`{"isolation":"offline"}`: true, `{"isolation":"unheard_of"}`: false, `{"isolation":{}}`: true, `{"isolation":{"profile":"offline"}}`: true,
		`{"isolation":{"unheard_of":1}}`: false, `{"isolation":{"network":"none"}}`: true, `{"isolation":{"network":"unheard_of"}}`: false,
		`{"isolation":{"network":{"allow":[]}}}`: true, `{"isolation":{"network":{}}}`: false, `{"isolation":{"network":{"allow":[],"unheard_of":1}}}`: false,
		`{"isolation":{"landlock_abi":3}}`: false, `{"isolation":{"seccomp":"off"}}`: false, `{"isolation":7}`: false,
	} {
		_, failure := served.Call(ctx, api.MethodSessionCreate, json.RawMessage(params))
		if daemon := !api.IsCode(failure, api.CodeInvalidParams); daemon != good {
			t.Errorf("%s: the daemon says %v", params, failure)
		}
		var value any
		if err := json.Unmarshal([]byte(params), &value); err != nil {
			t.Fatal(err)
		}
		refusal := j.refuses("session.create.request", map[string]any{"jsonrpc": "2.0", "id": 1.0, "method": "session.create", "params": value})
		if (refusal == nil) != good {
			t.Errorf("%s: the schema says %v", params, refusal)
		}
	}
}

// TestSchemaTakesWhatIsSent validates every result and notification: complete,
// with only the required members, and with an unknown member.
func TestSchemaTakesWhatIsSent(t *testing.T) {
	c, j := read(t), newJudge(t)
	check := func(definition string, typ reflect.Type, message func(any) map[string]any) {
		t.Helper()
		whole := c.filled(typ)
		grown := asJSON(t, whole.Interface())
		grown["unheard_of"] = "new"
		for _, value := range []any{asJSON(t, whole.Interface()), grown} {
			if err := j.refuses(definition, message(value)); err != nil {
				t.Errorf("%s: %v", definition, err)
			}
		}
		for _, f := range c.byName[nameOf(typ)].Fields {
			less := asJSON(t, whole.Interface())
			delete(less, f.Name)
			if err := j.refuses(definition, message(less)); (err == nil) == f.Required {
				t.Errorf("%s without %s: %v", definition, f.Name, err)
			}
		}
	}
	for _, m := range c.Methods {
		check(m.Name+".response", m.Result, func(result any) map[string]any {
			return map[string]any{"jsonrpc": "2.0", "id": "a", "result": result}
		})
	}
	for _, n := range c.Notifications {
		check(n.Name, n.Params, func(params any) map[string]any {
			return map[string]any{"jsonrpc": "2.0", "method": n.Name, "params": params}
		})
	}
	for code := range api.Codes() {
		failure := asJSON(t, api.Errorf(code, "it failed").With("field", "x").WithHint("try again"))
		if err := j.refuses("ErrorResponse", map[string]any{"jsonrpc": "2.0", "id": nil, "error": failure}); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := j.refuses("ErrorObject", map[string]any{"code": -1.0, "message": "", "data": map[string]any{"code": "NO_SUCH"}}); err == nil {
		t.Error("an unknown error code is accepted")
	}
}

// TestExamplesOfThePage validates each line of JSON-RPC in the protocol page as
// a message of the right kind.
func TestExamplesOfThePage(t *testing.T) {
	j := newJudge(t)
	methods := map[float64]string{} // by id
	n := 0
	for line := range strings.Lines(string(file(t, page))) {
		if !strings.HasPrefix(line, `{"jsonrpc"`) {
			continue
		}
		var message map[string]any
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		id, _ := message["id"].(float64)
		definition := methods[id] + ".response"
		if method, ok := message["method"].(string); ok {
			definition = method
			if message["id"] != nil {
				methods[id], definition = method, method+".request"
			}
		} else if message["error"] != nil {
			definition = "ErrorResponse"
		}
		n++
		if err := j.refuses(definition, message); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n == 0 {
		t.Error("the page has no examples")
	}
}

// TestPythonTypes lets Python import the file and list the keys of each type,
// and checks that keyword arguments set every optional param.
func TestPythonTypes(t *testing.T) {
	interpreter, err := exec.LookPath("python3")
	trltest.Need(t, err)
	const script = `
import json, runpy, sys
types = runpy.run_path(sys.argv[1])
keys = lambda t: [sorted(t.__required_keys__), sorted(t.__optional_keys__)]
print(json.dumps({n: keys(t) for n, t in types.items() if hasattr(t, "__required_keys__") and n[0] != "_"}))
for params, result, scope in types["METHODS"].values():
    assert params in types and result in types and scope
print(json.dumps(types["OPTIONS"]))
`
	cmd := exec.Command(interpreter, "-c", script, filepath.Join(root, pythonFile))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string][2][]string
	var options map[string]map[string][2]string // by function and keyword argument: param, conversion
	decoder := json.NewDecoder(bytes.NewReader(out))
	if err := errors.Join(decoder.Decode(&got), decoder.Decode(&options)); err != nil {
		t.Fatal(err)
	}
	delete(got, "ErrorData")
	delete(got, "ErrorObject")
	c := read(t)
	want := map[string][2][]string{}
	for _, typ := range c.Types {
		if typ.Values != nil {
			continue
		}
		keys := [2][]string{{}, {}}
		for of := typ; of != nil; of = of.Extends {
			for _, f := range of.Fields {
				i := 1
				if f.Required {
					i = 0
				}
				keys[i] = append(keys[i], f.Name)
			}
		}
		slices.Sort(keys[0])
		slices.Sort(keys[1])
		want[typ.objectName()] = keys
	}
	for _, f := range pythonFunctions {
		arguments, params := []string{"call_timeout"}, []string{}
		for argument, to := range options[f.name] {
			arguments, params = append(arguments, argument), append(params, to[0])
			if to[1] == "bytes" {
				params = append(params, to[0]+"_encoding")
			}
		}
		slices.Sort(arguments)
		slices.Sort(params)
		i := slices.IndexFunc(c.Methods, func(m Method) bool { return m.Name == f.method })
		if diff := cmp.Diff(want[nameOf(c.Methods[i].Params)][1], params); diff != "" {
			t.Errorf("optional params of %s (-) and those that %s() sets (+):\n%s", f.method, f.name, diff)
		}
		want[f.options] = [2][]string{{}, arguments}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types of the contract (-) and of Python (+):\n%s", diff)
	}
}

func TestPlainTextOfMarkdown(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"as in [State](#state)":           "as in State",
		"[A](#a) and [B](b.md#c), `x[0]`": "A and B, `x[0]`",
		"an [open bracket":                "an [open bracket",
		"f](x":                            "f](x",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}
