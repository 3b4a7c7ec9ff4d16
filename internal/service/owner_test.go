package service

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// ownedSessions records the owner of the session that it was asked to create.
type ownedSessions struct {
	Sessions
	owner  string
	params api.SessionCreateParams
}

func (f *ownedSessions) Create(_ context.Context, p api.SessionCreateParams, owner string) (*api.Session, error) {
	f.params, f.owner = p, owner
	return &api.Session{Owner: owner}, nil
}

// The daemon sets the owner of a session; only the program's name comes from
// the client.
func TestOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		actor         access.Actor
		client        string
		caller, owner string
	}{
		"user":                  {access.Actor{UID: 1001}, "", "alice", "alice"},
		"user and client":       {access.Actor{UID: 1001}, "claude-code", "alice", "alice/claude-code"},
		"user without a name":   {access.Actor{UID: 1002}, "", "uid:1002", "uid:1002"},
		"no user":               {access.Actor{UID: -1}, "", "uid:-1", "uid:-1"},
		"token":                 {access.Actor{UID: -1, TokenID: "t-1", TokenName: "ci"}, "", "token:ci", "token:ci"},
		"token without a name":  {access.Actor{UID: -1, TokenID: "t-1"}, "codex", "token:t-1", "token:t-1/codex"},
		"token named as a user": {access.Actor{UID: -1, TokenID: "t-1", TokenName: "alice"}, "", "token:alice", "token:alice"},
		"token with a slash":    {access.Actor{UID: -1, TokenID: "t-1", TokenName: "a/b"}, "c", "token:a%2Fb", "token:a%2Fb/c"},
		"token of odd letters":  {access.Actor{UID: -1, TokenID: "t-1", TokenName: "my ci\n\u202e%ü"}, "", "token:my%20ci%0A%E2%80%AE%25ü", "token:my%20ci%0A%E2%80%AE%25ü"},
		// A request that is made for a caller on another machine.
		"remote user":                {access.Actor{UID: 1001, User: "bob"}, "codex", "bob", "bob/codex"},
		"remote user without a name": {access.Actor{UID: 1001, User: "uid:1003"}, "", "uid:1003", "uid:1003"},
		"remote user as a token":     {access.Actor{UID: 1001, User: "token:ci"}, "", "token%3Aci", "token%3Aci"},
		"remote user as a number":    {access.Actor{UID: 1001, User: "uid:+1"}, "", "uid%3A+1", "uid%3A+1"},
		"remote user of odd letters": {access.Actor{UID: 1001, User: "a/b\n"}, "", "a%2Fb%0A", "a%2Fb%0A"},
		"remote token":               {access.Actor{UID: 1001, User: "bob", TokenID: "t-1", TokenName: "ci"}, "", "token:ci", "token:ci"},
		"remote caller without name": {access.Actor{UID: 1001}, "", "alice", "alice"},
	} {
		sessions := &ownedSessions{}
		table := New(Config{Sessions: sessions, System: fakeSystem{}, UserName: func(uid int) (string, error) {
			if uid == 1001 {
				return "alice", nil
			}
			return "", errors.New("no such user")
		}})
		tc.actor.Scope = access.ScopeRun
		ctx := access.With(t.Context(), tc.actor)
		params, err := json.Marshal(api.SessionCreateParams{Client: tc.client})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.Call(ctx, api.MethodSessionCreate, params); err != nil || sessions.owner != tc.owner || sessions.params.Client != "" {
			t.Errorf("%s: owner %q, %v", name, sessions.owner, err)
		}
		if account := api.Account(sessions.owner); account != tc.caller {
			t.Errorf("%s: account %q", name, account)
		}
		if ping, err := table.Call(ctx, api.MethodSystemPing, nil); err != nil || ping.(*api.PingResult).Caller != tc.caller {
			t.Errorf("%s: caller %+v, %v", name, ping, err)
		}
	}
}

func TestClientIsOneWord(t *testing.T) {
	table := New(Config{Sessions: &ownedSessions{}, System: fakeSystem{}})
	ctx := access.With(t.Context(), access.Actor{Scope: access.ScopeRun})
	for _, client := range []string{"a b", "a/b", "a\nb", "\u202e", "ü", "a:b", string(make([]byte, 65))} {
		params, err := json.Marshal(api.SessionCreateParams{Client: client})
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Call(ctx, api.MethodSessionCreate, params)
		if !api.IsCode(err, api.CodeInvalidParams) || api.AsError(err).Details["field"] != "client" {
			t.Errorf("%q: %v", client, err)
		}
	}
	// A client cannot set the owner.
	_, err := table.Call(ctx, api.MethodSessionCreate, json.RawMessage(`{"owner":"root"}`))
	if !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("owner: %v", err)
	}
}
