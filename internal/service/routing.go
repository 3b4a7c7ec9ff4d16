package service

import (
	"reflect"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// Routing says which of several places serves the calls of a method. A router
// works from these marks alone, so it needs no change for a new method.
type Routing struct {
	Kind RoutingKind
	// Field is the JSON name of the list in the result of a method of kind List,
	// or "".
	Field string
}

// RoutingKind is one way to find the place that serves a call. Its zero value
// is invalid.
type RoutingKind uint8

// The ways to find the place.
const (
	Local  RoutingKind = iota + 1 // the daemon that got the call: it is about the daemon or the connection
	ByID                          // the place of the session_id or the exec_id
	Create                        // the place of the runtime
	List                          // all places; the lists in their results are joined
	Watch                         // the place of the session_id; without one all places, whose events are joined
)

var kindNames = [...]string{Local: "local", ByID: "by id", Create: "create", List: "list", Watch: "watch"}

// String returns the kind in words.
func (k RoutingKind) String() string {
	if int(k) >= len(kindNames) || k == 0 {
		return "invalid"
	}
	return kindNames[k]
}

// mark is what a router must know about a method.
type mark struct {
	routing Routing
	reads   bool
}

// marks has an entry for each method.
var marks = map[string]mark{
	api.MethodSystemPing:       {Routing{Kind: Local}, true},
	api.MethodSystemInfo:       {Routing{Kind: Local}, true},
	api.MethodSystemStats:      {Routing{Kind: Local}, true},
	api.MethodSystemUpgrade:    {Routing{Kind: Local}, false},
	api.MethodSystemDelegate:   {Routing{Kind: Local}, false},
	api.MethodSystemDisconnect: {Routing{Kind: Local}, false},

	api.MethodSessionCreate:  {Routing{Kind: Create}, false},
	api.MethodSessionList:    {Routing{Kind: List, Field: "sessions"}, true},
	api.MethodSessionInfo:    {Routing{Kind: ByID}, true},
	api.MethodSessionDestroy: {Routing{Kind: ByID}, false},
	api.MethodSessionWatch:   {Routing{Kind: Watch}, false},
	api.MethodSessionResize:  {Routing{Kind: ByID}, false},
	api.MethodSessionScreen:  {Routing{Kind: ByID}, true},
	api.MethodSessionHold:    {Routing{Kind: ByID}, false},
	api.MethodSessionRelease: {Routing{Kind: ByID}, false},

	api.MethodExecRun:    {Routing{Kind: ByID}, false},
	api.MethodExecStream: {Routing{Kind: ByID}, false},
	api.MethodExecAttach: {Routing{Kind: ByID}, false},
	api.MethodExecOutput: {Routing{Kind: ByID}, true},
	api.MethodExecInput:  {Routing{Kind: ByID}, false},
	api.MethodExecSignal: {Routing{Kind: ByID}, false},
	api.MethodExecCancel: {Routing{Kind: ByID}, false},
	api.MethodExecInfo:   {Routing{Kind: ByID}, true},
	api.MethodExecList:   {Routing{Kind: ByID}, true},

	api.MethodPlaceList:    {Routing{Kind: Local}, true},
	api.MethodPlaceAdd:     {Routing{Kind: Local}, false},
	api.MethodPlaceCheck:   {Routing{Kind: Local}, false},
	api.MethodPlaceRemove:  {Routing{Kind: Local}, false},
	api.MethodPlaceUpgrade: {Routing{Kind: Local}, false},

	api.MethodStreamClose: {Routing{Kind: Local}, false},
}

// mustBeRouted sets the marks of a method. It panics on a method without marks,
// which a router would serve on the wrong machine, and on marks that do not fit
// the method's types.
func mustBeRouted(m *Method) {
	mark := marks[m.Name]
	m.Routing, m.Reads = mark.routing, mark.reads
	if problem := m.misrouted(); problem != "" {
		panic("service: " + m.Name + " " + problem)
	}
}

// misrouted returns what is wrong with the marks of a method, or "".
func (m *Method) misrouted() string {
	named := idsOf(m.Params)
	byID := named.session != nil || named.exec != nil
	switch m.Routing.Kind {
	case Local:
		if byID {
			return "names a session or an exec and is marked as local"
		}
	case ByID:
		if !byID {
			return "names no session or exec and is routed by id"
		}
	case Create:
		if _, ok := m.Params.FieldByName("Runtime"); !ok {
			return "has no runtime and is marked as create"
		}
	case List:
		if !hasList(m.Result, m.Routing.Field) {
			return "has no list of the marked name in its result"
		}
	case Watch:
		if m.Sends == "" {
			return "sends no notifications and is marked as watch"
		}
	default:
		return "is not in marks: a router does not know where to send it"
	}
	switch {
	case m.Routing.Kind != List && m.Routing.Field != "":
		return "has a list field and is not marked as list"
	case m.Reads && (m.Scope != ScopeRead || m.Sends != ""):
		return "changes something or opens a stream and is marked as reading"
	}
	return ""
}

// hasList reports whether the result has a list with this JSON name.
func hasList(result reflect.Type, name string) bool {
	for _, f := range reflect.VisibleFields(result) {
		if json, _, _ := strings.Cut(f.Tag.Get("json"), ","); json == name {
			return f.Type.Kind() == reflect.Slice
		}
	}
	return false
}
