package service

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/printable"
)

// connection is a Delegation.
type connection struct{ delegated bool }

func (c *connection) Delegate() int {
	c.delegated = true
	return 7
}

func (c *connection) Disconnect(string) (ended, ok bool) { return true, c.delegated }

// Only requests over a connection of the daemon's own user can delegate.
func TestDelegateNeedsItsConnection(t *testing.T) {
	table := New(Config{}) // also of a daemon without sessions
	for transport, allowed := range map[string]bool{"unix": true, "stdio": true, "http": false, "websocket": false, "delegated": false, "watchdog": false, "": false} {
		for _, own := range []*connection{nil, {}} {
			ctx := access.With(t.Context(), access.Actor{Transport: transport, Scope: ScopeAdmin})
			if own != nil {
				ctx = WithDelegation(ctx, own)
			}
			want := allowed && own != nil
			result, err := table.Call(ctx, api.MethodSystemDelegate, nil)
			if (err == nil) != want || err != nil && codeOf(err) != api.CodeForbidden {
				t.Errorf("over %q: %v, %v", transport, result, err)
			}
			if err == nil && result.(*api.DelegateResult).MaxConnections != 7 {
				t.Errorf("%+v", result)
			}
			_, err = table.Call(ctx, api.MethodSystemDisconnect, json.RawMessage(`{"connection":"c-1"}`))
			if (err == nil) != want || err != nil && codeOf(err) != api.CodeInvalidRequest {
				t.Errorf("disconnect over %q: %v", transport, err)
			}
			if own != nil && own.delegated != want {
				t.Errorf("over %q: delegated %t", transport, own.delegated)
			}
		}
	}
}

// An actor never has more rights than the connection.
func TestActorDoesNotExceedItsConnection(t *testing.T) {
	for _, own := range append(access.Scopes(), "", "root") {
		for _, scope := range access.Scopes() {
			actor, connection, refusal := ActingFor(access.Actor{UID: 5, PID: 6, Transport: "unix", Scope: own},
				json.RawMessage(`{"scope":"`+string(scope)+`","tag":"red","token":"t-1","name":"ci","user":"al","connection":"c-1"}`))
			if own.Covers(scope) {
				want := access.Actor{UID: 5, PID: 6, Transport: "delegated", TokenID: "t-1", TokenName: "ci", User: "al", Scope: scope, Tag: "red"}
				if refusal != nil || actor != want || connection != "c-1" {
					t.Errorf("%+v %s, %v", actor, connection, refusal)
				}
			} else if refusal == nil || refusal.Code != api.CodeForbidden || actor != (access.Actor{}) {
				t.Errorf("%s over a connection with %q: %+v, %v", scope, own, actor, refusal)
			}
		}
	}
}

// FuzzActor decodes arbitrary text as an actor: what is accepted has no more
// rights than the connection, and names that are bounded and can be shown.
func FuzzActor(f *testing.F) {
	for _, seed := range []string{
		`{"scope":"run","tag":"acme","token":"t-0123456789","name":"ci","user":"alice","connection":"c-1"}`,
		`{"scope":"admin"}`, `{"scope":"read","tag":null}`, `{"scope":"read","scope":"admin"}`, `{"scope":"run","Tag":"x"}`,
		`{"scope":"run","tag":"\ud800"}`, `{"scope":"run","user":"uid:-1"}`, `{"scope":"run","user":"token:x\u0000/%"}`,
		`{"scope":"run","connection":"\u202e"}`, `{}`, `null`, `[]`, `"run"`, `{"scope":{}}`, `{"scope":"run"`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		own := access.Actor{UID: 1, Transport: "unix", Scope: ScopeRun}
		actor, connection, refusal := ActingFor(own, text)
		if refusal != nil {
			if actor != (access.Actor{}) || connection != "" || refusal.Hint == "" ||
				refusal.Code != api.CodeInvalidRequest && refusal.Code != api.CodeForbidden {
				t.Errorf("%+v %q, %+v", actor, connection, refusal)
			}
			return
		}
		if !json.Valid(text) || !own.Scope.Covers(actor.Scope) || actor.Transport != "delegated" || actor.UID != own.UID {
			t.Errorf("%+v", actor)
		}
		for _, name := range []string{actor.Tag, actor.TokenID, actor.TokenName, actor.User, connection} {
			if len(name) > access.MaxLabel {
				t.Errorf("%d bytes", len(name))
			}
		}
		account := newAccounts(nil).caller(access.With(t.Context(), actor))
		if !printable.Line(account) || strings.ContainsAny(account, " /") ||
			actor.TokenID == "" && actor.TokenName == "" && strings.HasPrefix(account, "token:") {
			t.Errorf("account %q", account)
		}
		if !printable.Line(actor.Tag) || !printable.Line(actor.TokenID) || !printable.Line(connection) {
			t.Errorf("%+v %q", actor, connection)
		}
	})
}
