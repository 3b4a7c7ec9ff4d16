package session

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// paramTests names a test of each param of a command that its result does not
// repeat. The test must use the param.
var paramTests = map[string]string{
	"SessionID": "TestExecEnvCwdStdin", "Command": "TestExecEnvCwdStdin", "Env": "TestExecEnvCwdStdin", "Cwd": "TestExecEnvCwdStdin",
	"Stdin": "TestExecEnvCwdStdin", "StdinEncoding": "TestStdinEncoding", "StdinOpen": "TestInput", "Merge": "TestMerge",
	"TimeoutMS": "TestTimeoutKeepsStateAndPartialOutput", "IdleTimeoutMS": "TestIdleTimeout", "Wait": "TestBusyWaitAndCancel",
	"Key": "TestKeyRunsOnce", "Lease": "TestHold",
	"YieldMS": "TestYieldThenOutput", "YieldOnInput": "TestYieldOnInput", "MaxOutputBytes": "TestTruncation",
}

// onlyRun are the params of exec.run that exec.stream does not have, each with the
// reason.
var onlyRun = map[string]string{
	"YieldMS":        "exec.stream answers at once",
	"YieldOnInput":   "exec.stream answers at once",
	"MaxOutputBytes": "a stream has all of the output",
}

// echoed returns the fields that both a command and its result have: the result
// repeats what the caller gave.
func echoed() (fields []reflect.StructField) {
	for f := range reflect.TypeFor[api.ExecCommand]().Fields() {
		if _, ok := reflect.TypeFor[api.ExecResult]().FieldByName(f.Name); ok && paramTests[f.Name] == "" {
			fields = append(fields, f)
		}
	}
	return fields
}

// TestEveryParamHasAnEffect: a param of a command is repeated in its result, which
// TestEcho checks, or has a test of its effect; and exec.stream takes what exec.run
// takes. So no param is accepted and ignored.
func TestEveryParamHasAnEffect(t *testing.T) {
	repeated := map[string]bool{}
	for _, f := range echoed() {
		repeated[f.Name] = true
	}
	uses := usesOfTests(t)
	seen := map[string]bool{}
	for f := range reflect.TypeFor[api.ExecRunParams]().Fields() {
		if !f.Anonymous && onlyRun[f.Name] == "" {
			t.Errorf("exec.stream does not take api.ExecRunParams.%s: move it to api.ExecCommand, or add it to onlyRun with the reason, internal/session/params_linux_test.go", f.Name)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[api.ExecRunParams]()) {
		test := paramTests[f.Name]
		seen[f.Name] = true
		switch {
		case f.Anonymous || repeated[f.Name]:
		case test == "":
			t.Errorf("api.%s.%s may be accepted and ignored: add a field of this name to api.ExecResult if the result repeats it, "+
				"or write a test of its effect and name it in paramTests, internal/session/params_linux_test.go", typeOf(f), f.Name)
		case uses[test] == nil:
			t.Errorf("paramTests names %s for %s, which does not exist", test, f.Name)
		case !uses[test][f.Name]:
			t.Errorf("%s does not set %s: name a test in paramTests that does", test, f.Name)
		}
	}
	for f := range reflect.TypeFor[api.ExecStreamParams]().Fields() {
		if !f.Anonymous {
			t.Errorf("exec.run does not take api.ExecStreamParams.%s: move it to api.ExecCommand", f.Name)
		}
	}
	for name := range paramTests {
		if !seen[name] {
			t.Errorf("paramTests names the param %s, which does not exist", name)
		}
	}
}

// typeOf returns the name of the struct that declares a param.
func typeOf(f reflect.StructField) string {
	if len(f.Index) > 1 {
		return "ExecCommand"
	}
	return "ExecRunParams"
}

// usesOfTests returns the names that each test of this package uses.
func usesOfTests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			used := map[string]bool{}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					used[id.Name] = true
				}
				return true
			})
			uses[fn.Name.Name] = used
		}
	}
	return uses
}

// TestEcho: what a caller gives is in the result, however the command is started
// and the result is asked for, and a text of any length is not kept with the exec.
func TestEcho(t *testing.T) {
	const file = "internal/exec/state_linux.go"
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	if len(echoed()) == 0 {
		t.Fatal("the result repeats nothing")
	}
	for _, f := range echoed() {
		params := api.ExecCommand{SessionID: s.SessionID, Command: "sleep 0.1"}
		field := reflect.ValueOf(&params).Elem().FieldByIndex(f.Index)
		n := int64(0)
		fill(field, &n)
		want := fmt.Sprint(reflect.Indirect(field))
		check := func(how string, r *api.ExecResult, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if got := fmt.Sprint(reflect.Indirect(reflect.ValueOf(r).Elem().FieldByName(f.Name))); got != want {
				t.Errorf("%s with %s %s has %q in its result: api.ExecCommand.%s is accepted and ignored; copy it in echo, %s", how, f.Name, want, got, f.Name, file)
			}
		}
		r, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: params, YieldMS: 1})
		check("exec.run of a running command", r, err)
		params.Wait = true
		r, err = p.Run(t.Context(), api.ExecRunParams{ExecCommand: params})
		check("exec.run", r, err)
		r, err = p.ExecInfo(t.Context(), api.ExecParams{ExecID: r.ExecID})
		check("exec.info", r, err)
		_, feed, err := p.Stream(t.Context(), api.ExecStreamParams{ExecCommand: params})
		if err != nil {
			t.Fatal(err)
		}
		check("exec.stream", take(t, feed, nil).exit, nil)

		if f.Type.Kind() != reflect.String {
			continue
		}
		wire, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for what, text := range map[string]string{"a megabyte": strings.Repeat("x", 1<<20), "two lines": "one\ntwo"} {
			field.SetString(text)
			_, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: params})
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != api.CodeInvalidParams || refused.Details["field"] != wire {
				t.Errorf("%s as %s: %v: api.ExecCommand.%s must be refused with its name; add it to CheckEcho, %s", what, wire, err, f.Name, file)
			}
		}
	}
}

// TestStdinEncoding: input that is not text comes as base64.
func TestStdinEncoding(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	in := "AP9hCg=="
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "od -An -tx1", Stdin: &in, StdinEncoding: api.Base64}})
	if got := strings.Fields(r.Stdout); strings.Join(got, "") != "00ff610a" {
		t.Errorf("the command read %q", r.Stdout)
	}
}
