package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/caller"
)

// placedCaller is a daemon with places. It records what is created.
type placedCaller struct {
	caller.Caller
	info    api.SystemInfo
	list    api.SessionListResult
	shells  []string // of every place
	created []api.SessionCreateParams
}

func (p *placedCaller) Call(_ context.Context, method string, params, result any) error {
	var answer any
	switch method {
	case api.MethodSystemPing:
		answer = api.PingResult{Caller: "alice"}
	case api.MethodSystemInfo:
		answer = p.info
	case api.MethodSessionList:
		answer = p.list
	case api.MethodSessionCreate:
		wanted := params.(api.SessionCreateParams)
		p.created = append(p.created, wanted)
		if placeOf(&api.Session{Runtime: wanted.Runtime}) != "" && wanted.Shell != "" && !strings.Contains(strings.Join(p.shells, " "), wanted.Shell) {
			return api.Errorf(api.CodeShellNotFound, "no shell %q", wanted.Shell)
		}
		answer = api.Session{SessionID: "s-k7-0123456789", Runtime: wanted.Runtime, Name: wanted.Name}
	default:
		return api.Errorf(api.CodeMethodNotFound, "no method %q", method)
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

func (p *placedCaller) server() *server {
	return &server{Config: Config{
		Caller: p, Scope: "/work", Cwd: "/work", Shell: "zsh",
		Env: map[string]string{"PATH": "/here", "GIVEN": "1"}, PlaceEnv: map[string]string{"GIVEN": "1"},
	}}
}

func aCall() *call { return &call{request: &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{}}} }

// Nothing of this machine is passed to a place: no directory, no PATH, no shell.
func TestCreateInPlace(t *testing.T) {
	tags := []string{"mcp:/work"}
	here := api.SessionCreateParams{Name: "main", Cwd: "/work", Shell: "zsh", Env: api.Env{"PATH": "/here", "GIVEN": "1"}, Tags: tags}
	bash := api.SessionCreateParams{Name: "main", Runtime: "docker:web", Shell: "bash", Env: api.Env{"GIVEN": "1"}, Tags: tags}
	plain := bash
	plain.Shell = ""
	byDefault := bash
	byDefault.Runtime = ""
	named := here
	named.Runtime = "host"
	for name, tc := range map[string]struct {
		place, byDefault string
		shells           []string
		want             []api.SessionCreateParams
	}{
		"here":                       {want: []api.SessionCreateParams{here}},
		"here by name":               {place: "host", byDefault: "docker:web", want: []api.SessionCreateParams{named}},
		"in a place":                 {place: "docker:web", shells: []string{"sh", "bash"}, want: []api.SessionCreateParams{bash}},
		"in a place without bash":    {place: "docker:web", shells: []string{"sh"}, want: []api.SessionCreateParams{bash, plain}},
		"in the default that is one": {byDefault: "docker:web", want: []api.SessionCreateParams{byDefault}},
	} {
		daemon := &placedCaller{shells: tc.shells, info: api.SystemInfo{Config: map[string]any{}}}
		if tc.byDefault != "" {
			daemon.info.Config["default_runtime"] = tc.byDefault
		}
		if _, err := daemon.server().findOrCreate(t.Context(), aCall(), "main", wish{place: tc.place}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, daemon.created); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A session stays in its place, and a command for it never runs elsewhere.
func TestSessionRemembersItsPlace(t *testing.T) {
	session := func(id, runtime string, state api.State) api.Session {
		return api.Session{SessionID: id, Name: "main", Owner: "alice", Tags: []string{"mcp:/work"}, Runtime: runtime, State: state}
	}
	live, ended := session("s-k7-1", "docker:web", api.StateIdle), session("s-k7-2", "docker:web", api.StateTerminated)
	here := session("s-3", "host", api.StateIdle)
	away := []api.Unreachable{{Runtime: "docker:web", Reason: "unreachable", Message: "no route"}}
	for name, tc := range map[string]struct {
		sessions []api.Session
		away     []api.Unreachable
		place    string
		id       string // of an existing session
		created  string // where a session is created
		code     api.Code
	}{
		"by its name":             {sessions: []api.Session{live}, id: "s-k7-1"},
		"by name and place":       {sessions: []api.Session{live}, place: "docker:web", id: "s-k7-1"},
		"another place":           {sessions: []api.Session{live}, place: "ssh:b", code: api.CodeInvalidParams},
		"one of two":              {sessions: []api.Session{live, here}, place: "host", id: "s-3"},
		"it has ended":            {sessions: []api.Session{ended}, created: "docker:web"},
		"ended, now elsewhere":    {sessions: []api.Session{ended}, place: "ssh:b", created: "ssh:b"},
		"out of reach":            {away: away, code: api.CodeRuntimeUnavailable},
		"out of reach, ended":     {sessions: []api.Session{ended}, away: away, code: api.CodeRuntimeUnavailable},
		"out of reach, but meant": {away: away, place: "host", created: "host"},
		"another out of reach":    {sessions: []api.Session{here}, away: away, id: "s-3"},
	} {
		daemon := &placedCaller{list: api.SessionListResult{Sessions: tc.sessions, Unreachable: tc.away}, shells: []string{"bash"}}
		got, err := daemon.server().findOrCreate(t.Context(), aCall(), "main", wish{place: tc.place})
		switch {
		case tc.code != "":
			if !api.IsCode(err, tc.code) || len(daemon.created) > 0 {
				t.Errorf("%s: %v, created %v", name, err, daemon.created)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.id != "" && (got.SessionID != tc.id || len(daemon.created) > 0):
			t.Errorf("%s: %s, created %v", name, got.SessionID, daemon.created)
		case tc.created != "" && (len(daemon.created) != 1 || daemon.created[0].Runtime != tc.created):
			t.Errorf("%s: created %v", name, daemon.created)
		}
	}
	daemon := &placedCaller{list: api.SessionListResult{Unreachable: away}}
	if _, err := daemon.server().findExisting(t.Context(), "main"); !api.IsCode(err, api.CodeRuntimeUnavailable) ||
		!strings.Contains(describe(err), "docker:web") || !strings.Contains(describe(err), "no route") {
		t.Errorf("an existing session: %v", err)
	}
}

func TestSessionsListsPlaces(t *testing.T) {
	daemon := &placedCaller{
		info: api.SystemInfo{
			OS: "linux", Arch: "amd64", Runtimes: []string{"host", "docker:web", "ssh:b"}, Config: map[string]any{"default_runtime": "docker:web"},
			Places: []api.Place{
				{Name: "k7", Runtime: "docker:web", State: api.PlaceConnected, OS: "linux", Arch: "arm64", User: "root", Limits: []string{"memory"}, Isolates: []string{"network"}},
				{Name: "m2", Runtime: "ssh:b", State: api.PlaceIdle, OS: "linux", Arch: "amd64", User: "me"},
			},
		},
		list: api.SessionListResult{Unreachable: []api.Unreachable{{Runtime: "ssh:b", Reason: "auth"}}},
	}
	c := aCall()
	c.room = budgetTextOnly
	got, err := daemon.server().sessions(t.Context(), c, sessionsArguments{})
	if err != nil {
		t.Fatal(err)
	}
	want := "" +
		"place host · connected · linux/amd64\n" +
		"place docker:web · connected · linux/arm64 · user root · enforces memory,network · default\n" +
		"place ssh:b · unreachable (auth), its sessions are not listed and may still run · linux/amd64 · user me\n" +
		"no sessions yet: run creates one"
	if diff := cmp.Diff(want, got.text()); diff != "" {
		t.Error(diff)
	}
	daemon = &placedCaller{info: api.SystemInfo{Runtimes: []string{"host"}}}
	if got, err := daemon.server().sessions(t.Context(), c, sessionsArguments{}); err != nil || got.text() != "no sessions yet: run creates one" {
		t.Errorf("without places: %v, %v", got, err)
	}
}
