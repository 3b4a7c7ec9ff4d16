package mcp

import (
	"context"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/caller"
)

func TestIsMine(t *testing.T) {
	s := &server{Config: Config{Scope: "/work", Tags: []string{"team"}}}
	own := []string{"team", "mcp:/work"}
	for name, tc := range map[string]struct {
		caller, owner string
		tags          []string
		want          bool
	}{
		"own":                           {"alice", "alice", own, true},
		"of any client":                 {"alice", "alice/claude-code", own, true},
		"with more tags":                {"alice", "alice/x", []string{"mcp:/work", "team", "more"}, true},
		"of another scope":              {"alice", "alice/x", []string{"team", "mcp:/other"}, false},
		"of another user":               {"alice", "mallory/alice", own, false},
		"of a longer name":              {"alice", "alice2", own, false},
		"of a token named as the user":  {"alice", "token:alice", own, false},
		"of another token":              {"token:ci", "token:red/ci", own, false},
		"of the token":                  {"token:ci", "token:ci/x", own, true},
		"without owner":                 {"alice", "", own, true},
		"without owner, another order":  {"alice", "", []string{"mcp:/work", "team"}, false},
		"without owner, of another tag": {"alice", "", []string{"red", "team", "mcp:/work"}, false},
		"without owner, no tag":         {"alice", "", []string{"team"}, false},
		"daemon without owners":         {"", "", []string{"red", "mcp:/work"}, true},
	} {
		if got := s.isMine(&api.Session{Owner: tc.owner, Tags: tc.tags}, tc.caller); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSessionIDForm(t *testing.T) {
	for word, want := range map[string]bool{
		"s-0123456789":        true,
		"s-n7-0123456789":     true,
		"s-eu1-n7-0123456789": true,
		"s-abcdefgh-01234567-abcdefgh-01234567-0123456789": true,
		"s-a-b-c-d-e-0123456789":                           false,
		"s-abcdefghi-0123456789":                           false,
		"s--0123456789":                                    false,
		"s-build":                                          false,
		"s-eu1-n7":                                         false,
		"s-my tests of":                                    false,
		"e-0123456789":                                     false,
		"st-0123456789":                                    false,
		"main":                                             false,
	} {
		if got := sessionIDForm.MatchString(word); got != want {
			t.Errorf("%q: %t", word, got)
		}
	}
}

// A scope can be any directory, and two scopes never share a tag.
func TestTagOfScope(t *testing.T) {
	for scope, want := range map[string]string{
		"/srv/a b":    "mcp:/srv/a b",
		"/srv/größer": "mcp:/srv/größer",
		"/srv/a\nb":   `mcp:"/srv/a\nb"`,
		`/srv/a\nb`:   `mcp:/srv/a\nb`,
		"/srv/\xff":   `mcp:"/srv/\xff"`,
		"/a\u202eb":   `mcp:"/a\u202eb"`,
	} {
		if got := (&server{Config: Config{Scope: scope}}).tag(); got != want {
			t.Errorf("%q: %s, want %s", scope, got, want)
		}
	}
}

// recordingCaller records the parameters of session.create.
type recordingCaller struct {
	caller.Caller
	account string
	created api.SessionCreateParams
}

func (a *recordingCaller) Call(_ context.Context, _ string, params, result any) error {
	switch r := result.(type) {
	case *api.PingResult:
		r.Caller = a.account
	case *api.Session:
		a.created = params.(api.SessionCreateParams)
	}
	return nil
}

// A daemon that predates owners rejects the parameter client. It must be able to
// serve the tools until it is upgraded.
func TestClientIsSentOnlyToDaemonsThatKnowIt(t *testing.T) {
	request := &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{}}
	request.Params.SetMeta(sdk.Meta{sdk.MetaKeyClientInfo: map[string]any{"name": "Claude Code", "version": "1"}})
	for account, want := range map[string]string{"": "", "alice": "Claude-Code"} {
		recorder := &recordingCaller{account: account}
		s := &server{Config: Config{Caller: recorder, Shell: "sh"}}
		if _, err := s.create(t.Context(), &call{request: request}, mainSession, wish{}); err != nil || recorder.created.Client != want {
			t.Errorf("caller %q: client %q, %v", account, recorder.created.Client, err)
		}
	}
}
