package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// fakeExecs answers what the protocol tests call; anything else is a nil
// dereference, and so a panic that the table must survive.
type fakeExecs struct {
	Execs
	run func(context.Context, api.ExecRunParams) (*api.ExecResult, error)
}

func (f fakeExecs) Run(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	return f.run(ctx, p)
}

func (f fakeExecs) Cancel(_ context.Context, p api.ExecCancelParams) (*api.ExecCancelResult, error) {
	return &api.ExecCancelResult{ExecID: p.ExecID, Cancelled: true}, nil
}

type fakeSystem struct{}

func (fakeSystem) Ping(context.Context) *api.PingResult {
	return &api.PingResult{Version: "test", Protocol: api.Protocol}
}
func (fakeSystem) SystemInfo(context.Context) *api.SystemInfo { return &api.SystemInfo{} }
func (fakeSystem) Stats(context.Context) *api.SystemStats     { return &api.SystemStats{} }
func (fakeSystem) Upgrade(context.Context) (*api.UpgradeResult, error) {
	return &api.UpgradeResult{}, nil
}

func TestTableServesExactlyTheMethodsOfTheContract(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/doc.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Method") {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
		return true
	})
	var got []string
	for _, m := range New(Config{}).Methods() {
		got = append(got, m.Name)
		if m.Params.Kind() != reflect.Struct || m.Result.Kind() != reflect.Struct {
			t.Errorf("%s: params and result must be structs", m.Name)
		}
		if m.Scope != ScopeRead && m.Scope != ScopeRun && m.Scope != ScopeAdmin {
			t.Errorf("%s: scope %q", m.Name, m.Scope)
		}
		if !strings.HasSuffix(m.Summary, ".") {
			t.Errorf("%s: the summary is not a sentence", m.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("api constants (-) and table (+):\n%s", diff)
	}
}

func TestCall(t *testing.T) {
	table := New(Config{System: fakeSystem{}, Execs: fakeExecs{
		run: func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
			return &api.ExecResult{SessionID: p.SessionID, Stdout: p.Command}, nil
		},
	}})
	got, err := table.Call(asAdmin(t), api.MethodExecRun, json.RawMessage(`{"session_id":"s-1","command":"true"}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(&api.ExecResult{SessionID: "s-1", Stdout: "true"}), got); diff != "" {
		t.Error(diff)
	}
	for _, params := range []string{"", "null", " null ", "{}", " { } "} {
		if got, err := table.Call(asAdmin(t), api.MethodSystemPing, json.RawMessage(params)); err != nil {
			t.Errorf("params %q: %v", params, err)
		} else if got.(*api.PingResult).Protocol != api.Protocol {
			t.Errorf("params %q: %+v", params, got)
		}
	}
}

func TestErrorsOfTheBackend(t *testing.T) {
	cause := errors.New("disk on fire")
	for name, tc := range map[string]struct {
		err  error
		want api.Code
	}{
		"api errors pass":      {api.Errorf(api.CodeSessionBusy, "busy"), api.CodeSessionBusy},
		"others are internal":  {cause, api.CodeInternal},
		"wrapped ones unwrap":  {errors.Join(errors.New("x"), api.Errorf(api.CodeExecNotFound, "gone")), api.CodeExecNotFound},
		"cancelled waits also": {context.Canceled, api.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			table := New(Config{Execs: fakeExecs{
				run: func(context.Context, api.ExecRunParams) (*api.ExecResult, error) { return nil, tc.err },
			}})
			result, err := table.Call(asAdmin(t), api.MethodExecRun, json.RawMessage(`{"session_id":"s-1","command":""}`))
			if got, ok := err.(*api.Error); !ok || got.Code != tc.want || result != nil {
				t.Errorf("got %v, %v; want code %s", result, err, tc.want)
			}
		})
	}
}

func TestPanicIsContained(t *testing.T) {
	const secret = "hunter2"
	for name, value := range map[string]any{"string": secret, "error": errors.New(secret), "nil map": nil} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			table := New(Config{
				Log:    slog.New(slog.NewTextHandler(&log, nil)),
				System: fakeSystem{},
				Execs: fakeExecs{run: func(_ context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
					if value == nil {
						p.Env["x"] = "y"
					}
					panic(value)
				}},
			})
			_, err := table.Call(asAdmin(t), api.MethodExecRun, json.RawMessage(`{"session_id":"s-1","command":"`+secret+`"}`))
			if !api.IsCode(err, api.CodeInternal) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(log.String(), secret) {
				t.Errorf("a secret leaked: error %v, log %s", err, &log)
			}
			if !strings.Contains(log.String(), "service_test.go") || !strings.Contains(log.String(), "method=exec.run") {
				t.Errorf("the log lacks the stack or the method: %s", &log)
			}
			if _, err := table.Call(asAdmin(t), api.MethodSystemPing, nil); err != nil {
				t.Errorf("after the panic: %v", err)
			}
		})
	}
}

func TestUnknownMethods(t *testing.T) {
	table := New(Config{})
	for name, hint := range map[string]string{
		"exec.runn":              "did you mean exec.run?",
		"exec_run":               "did you mean exec.run?",
		"Session/Create":         "did you mean session.create?",
		"session.lst":            "did you mean session.list?",
		"system.pong":            "did you mean system.ping?",
		"session.unknown":        "call one of system.ping, ",
		"":                       "system.info describes",
		"x":                      "system.info describes",
		strings.Repeat("x", 1e6): "system.info describes",
	} {
		_, err := table.Call(asAdmin(t), name, nil)
		if !api.IsCode(err, api.CodeMethodNotFound) {
			t.Errorf("%s: %v", clip(name), err)
			continue
		}
		if e := api.AsError(err); !strings.Contains(e.Hint, hint) || len(e.Error()) > 1000 {
			t.Errorf("%s: hint %q, want %q in it", clip(name), e.Hint, hint)
		}
	}
}

// asAdmin returns the context of a request with every permission.
func asAdmin(t testing.TB) context.Context {
	return access.With(t.Context(), access.Actor{Transport: "test", Scope: access.ScopeAdmin})
}
