package session

import (
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// TestKeysEndWithTheirSession: keys that were used are refused as long as the
// session is known, and are not kept when it is forgotten, also by a daemon that
// takes over.
func TestKeysEndWithTheirSession(t *testing.T) {
	l := endedSessions(t, 1)
	for _, key := range []string{"s-0000000000/known", "s-forgotten/one"} {
		if err := l.Put(spentPrefix+key, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := newPool(t, Config{Ledger: l})
	p.Adopt(nil)(func() {})
	keys := func() (has []string) {
		for key := range l.All() {
			if strings.HasPrefix(key, spentPrefix) {
				has = append(has, key)
			}
		}
		return has
	}
	if has := keys(); len(has) != 1 || has[0] != spentPrefix+"s-0000000000/known" {
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
