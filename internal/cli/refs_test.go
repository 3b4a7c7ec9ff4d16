package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestWholeIDs(t *testing.T) {
	for ref, want := range map[string]bool{
		"s-0123456789": true, "s-node1-0123456789": true, "s-a-b-0123456789": true,
		"": false, "s-": false, "s-012345678": false, "s--0123456789": false, "s-0123456789a": false,
		"e-0123456789": false, "build": false, "s-012345678w": false, "s-012345678A": false,
	} {
		if got := isWholeID(ref, sessionPrefix); got != want {
			t.Errorf("%q is a whole id: %t, want %t", ref, got, want)
		}
	}
}

func TestMatchSession(t *testing.T) {
	session := func(id, name string, state api.State) api.Session {
		return api.Session{SessionID: id, Name: name, State: state, Cwd: "/src"}
	}
	sessions := []api.Session{
		session("s-aaaaaaaaaa", "build", api.StateTerminated),
		session("s-abbbbbbbbb", "build", api.StateIdle),
		session("s-accccccccc", "twin", api.StateIdle),
		session("s-addddddddd", "twin", api.StateRunning),
		session("s-eeeeeeeeee", "s-acc", api.StateIdle),
		session("s-ffffffffff", "old", api.StateTerminated),
		session("s-gggggggggg", "gone", api.StateTerminated),
		session("s-ggghhhhhhh", "gone", api.StateTerminated),
	}
	tests := []struct {
		ref, want string
		fail      string // a part of the error
	}{
		{ref: "build", want: "s-abbbbbbbbb"}, // the living one
		{ref: "s-ab", want: "s-abbbbbbbbb"},
		{ref: "s-acc", want: "s-eeeeeeeeee"}, // a name before the beginning of an id
		{ref: "s-accc", want: "s-accccccccc"},
		{ref: "s-aa", want: "s-aaaaaaaaaa"}, // ended, and the only one
		{ref: "old", want: "s-ffffffffff"},
		{ref: "twin", fail: `"twin" fits 2 sessions: s-accccccccc in /src, s-addddddddd in /src`},
		{ref: "gone", fail: `"gone" fits 2 sessions`},
		{ref: "s-a", fail: `"s-a" fits 3 sessions`},
		{ref: "s-", fail: `no session "s-"`},
		{ref: "s-z", fail: `no session "s-z"`},
		{ref: "buil", fail: `no session "buil"`},
		{ref: "", fail: `no session ""`},
	}
	for _, test := range tests {
		got, err := matchSession(sessions, test.ref)
		if got != test.want || (err == nil) != (test.fail == "") || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%q: %q, %v; want %q, %q", test.ref, got, err, test.want, test.fail)
		}
	}
}

func TestAmbiguousNameListsTen(t *testing.T) {
	var sessions []api.Session
	for range 200 {
		sessions = append(sessions, api.Session{SessionID: "s-aaaaaaaaaa", Name: "x", State: api.StateIdle})
	}
	_, err := matchSession(sessions, "x")
	if err == nil || strings.Count(err.Error(), "s-aaaaaaaaaa") != maxCandidates || !strings.Contains(err.Error(), "190 more") {
		t.Errorf("the error: %v", err)
	}
}

func TestErrorsRepeatTheReference(t *testing.T) {
	daemon := api.Errorf(api.CodeSessionNotFound, "no session with this id")
	if err := repeatSession("s-0123456789", daemon); !strings.Contains(err.Error(), `no session "s-0123456789"`) || !api.IsCode(err, api.CodeSessionNotFound) {
		t.Errorf("a whole id that does not exist: %v", err)
	}
	other := errors.New("other")
	if err := repeatSession("x", other); err != other { //nolint:errorlint // the same error
		t.Errorf("another error became %v", err)
	}
	twin := &referenceError{daemon}
	if err := repeatSession("x", twin); err != error(twin) { //nolint:errorlint // the same error
		t.Errorf("an error that repeats its reference became %v", err)
	}
}
