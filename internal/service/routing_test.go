package service

import (
	"reflect"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// Every method has marks that fit it, and there are none for others.
func TestEveryMethodIsRouted(t *testing.T) {
	served := New(Config{}).Methods()
	for _, m := range served {
		if m.Routing != marks[m.Name].routing || m.Reads != marks[m.Name].reads || m.misrouted() != "" {
			t.Errorf("%s: %+v %s", m.Name, m.Routing, m.misrouted())
		}
		noun, _, _ := strings.Cut(m.Name, ".")
		if about := noun == "system" || noun == "place" || noun == "stream"; about != (m.Routing.Kind == Local) {
			t.Errorf("%s is routed as %s", m.Name, m.Routing.Kind)
		}
	}
	if len(marks) != len(served) {
		t.Errorf("%d methods are served, and %d have marks", len(served), len(marks))
	}
}

// A method that a router would serve in the wrong place is refused.
func TestMisroutedMethods(t *testing.T) {
	none, session, result := reflect.TypeFor[api.None](), reflect.TypeFor[api.SessionParams](), reflect.TypeFor[api.SessionListResult]()
	for name, m := range map[string]Method{
		"is not in marks":                  {Params: none},
		"is marked as local":               {Params: session, Routing: Routing{Kind: Local}},
		"is routed by id":                  {Params: none, Routing: Routing{Kind: ByID}},
		"is marked as create":              {Params: session, Routing: Routing{Kind: Create}},
		"no list of the marked name":       {Params: none, Result: result, Routing: Routing{Kind: List, Field: "session"}},
		"is marked as watch":               {Params: none, Routing: Routing{Kind: Watch}},
		"is not marked as list":            {Params: session, Routing: Routing{Kind: ByID, Field: "sessions"}},
		"is marked as reading":             {Params: session, Scope: ScopeRun, Routing: Routing{Kind: ByID}, Reads: true},
		"a stream and is marked as readin": {Params: session, Scope: ScopeRead, Sends: "x", Routing: Routing{Kind: ByID}, Reads: true},
	} {
		if got := m.misrouted(); !strings.Contains(got, name) {
			t.Errorf("%q instead of %q", got, name)
		}
	}
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "session.made is not in marks") {
			t.Errorf("a method without marks: %q", said)
		}
	}()
	mustBeRouted(&Method{Name: "session.made", Params: session})
}

func TestRoutingKinds(t *testing.T) {
	for kind, want := range map[RoutingKind]string{0: "invalid", Local: "local", ByID: "by id", Create: "create", List: "list", Watch: "watch", Watch + 1: "invalid"} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q", kind, got)
		}
	}
}
