package session

import (
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
)

// TestKeysEndWithTheirSession: used keys are refused as long as the session is
// known, and are dropped when it is forgotten, after a restart too.
func TestKeysEndWithTheirSession(t *testing.T) {
	l := endedSessions(t, 1)
	for _, key := range []string{"s-0000000000/known", "s-forgotten/one"} {
		if err := l.Put(usedKeyPrefix+key, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, Config{Ledger: l})
	p.Adopt(nil)(func() {})
	keys := func() (has []string) {
		for key := range l.All("") {
			if strings.HasPrefix(key, usedKeyPrefix) {
				has = append(has, key)
			}
		}
		return has
	}
	if has := keys(); len(has) != 1 || has[0] != usedKeyPrefix+"s-0000000000/known" {
		t.Errorf("after the takeover the ledger has %v", has)
	}
	s := create(t, p, api.SessionCreateParams{})
	command := api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Key: "used"}}
	run(t, p, command)
	live, err := p.session(s.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	live.forgetExecs(time.Now().Add(time.Hour))
	if _, err := p.Run(t.Context(), command); !api.IsCode(err, api.CodeExecNotFound) || len(keys()) != 2 {
		t.Errorf("%v, and the ledger has %v", err, keys())
	}
	command.Key = "kept"
	run(t, p, command)
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true}); err != nil {
		t.Fatal(err)
	}
	p.forget(map[*Session]bool{live: true})
	if has := keys(); len(has) != 1 {
		t.Errorf("when the session is forgotten the ledger has %v", has)
	}
}

// TestCreateOnce: a session is created once for a key of its owner, however often
// and concurrently it is requested, even when it has ended or is forgotten.
func TestCreateOnce(t *testing.T) {
	l, err := ledger.New(holder.NewLocalKeeper())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := newPool(t, Config{Ledger: l})
	ask := func(owner string, params api.SessionCreateParams) (string, error) {
		params.Key = "key"
		s, err := p.Create(t.Context(), params, owner)
		if err != nil {
			return "", err
		}
		return s.SessionID, nil
	}
	ids := make(chan string, 20)
	for range cap(ids) {
		go func() {
			id, err := ask("alice", api.SessionCreateParams{Name: "once"})
			if err != nil {
				id = err.Error()
			}
			ids <- id
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("%s and %s have one key", first, id)
		}
	}
	if _, err := ask("alice", api.SessionCreateParams{Name: "another"}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("the key with other params: %v", err)
	}
	if id, err := ask("bob", api.SessionCreateParams{Name: "once"}); err != nil || id == first {
		t.Errorf("another owner gets %s, %v", id, err)
	}
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: first, Force: true}); err != nil {
		t.Fatal(err)
	}
	if id, err := ask("alice", api.SessionCreateParams{Name: "once"}); id != first {
		t.Errorf("after its end the key returns %s, %v", id, err)
	}
	ended, err := p.session(first)
	if err != nil {
		t.Fatal(err)
	}
	p.forget(map[*Session]bool{ended: true})
	if _, err := ask("alice", api.SessionCreateParams{Name: "once"}); !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("when it is forgotten: %v", err)
	}
	// A session that could not be created has used no key.
	params := api.SessionCreateParams{Argv: []string{"/no/such/program"}}
	for range 2 {
		if _, err := ask("carol", params); !api.IsCode(err, api.CodeShellNotFound) {
			t.Error(err)
		}
	}
	if _, err := ask("carol", api.SessionCreateParams{}); err != nil {
		t.Error(err)
	}
}

// TestRunOnce: a key with another command is refused.
func TestRunOnce(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	command := func(text string) api.ExecRunParams {
		return api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: text, Key: "key"}}
	}
	first := run(t, p, command("echo one"))
	again := command("echo one")
	again.Wait, again.YieldMS = true, 1
	if r := run(t, p, again); r.ExecID != first.ExecID {
		t.Errorf("%s and %s have one key", first.ExecID, r.ExecID)
	}
	if _, err := p.Run(t.Context(), command("echo two")); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("the key with another command: %v", err)
	}
	long := command("true")
	long.Key = strings.Repeat("k", maxKey+1)
	if _, err := p.Run(t.Context(), long); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("a long key: %v", err)
	}
}
