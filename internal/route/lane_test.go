package route

import (
	"context"
	"net"
	"testing"

	"github.com/terminal-runtime/trl/internal/peer"
)

func TestLane(t *testing.T) {
	connect := func() *peer.Conn {
		ours, theirs := net.Pipe()
		c := peer.NewConn(peer.NewLineWire(ours))
		t.Cleanup(func() { c.Close(); theirs.Close() })
		return c
	}
	old, next := connect(), connect()
	var l lane
	a, b, c := l.join(), l.join(), l.join()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	may := func(p *position) bool { return l.await(over, p) == nil }
	if !may(a) || may(b) || may(c) {
		t.Error("the first call may be sent, and no other")
	}
	l.sent(a, old)
	l.sent(b, old)
	if !may(c) {
		t.Error("the earlier calls were sent")
	}
	l.sent(c, old)
	old.Close()
	if !may(a) || may(b) || may(c) {
		t.Error("after the connection ended, the first call may be repeated, and no other")
	}
	l.sent(a, next)
	if !may(b) || may(c) {
		t.Error("then the second")
	}
	waits := make(chan error, 1)
	go func() { waits <- l.await(t.Context(), c) }()
	l.leave(b)
	if err := <-waits; err != nil {
		t.Error(err)
	}
	l.leave(a)
	l.leave(c)
	if len(l.line) != 0 {
		t.Errorf("%d calls are left", len(l.line))
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct{ node, id, want string }{
		{"", "s-0123456789", ""},
		{"", "e-0123456789", ""},
		{"", "s-k7-0123456789", "k7"},
		{"", "e-k7-m2-0123456789", "k7"},
		{"eu1-n7", "s-eu1-n7-0123456789", ""},
		{"eu1-n7", "s-eu1-n7-k7-0123456789", "k7"},
		{"eu1-n7", "s-k7-0123456789", "k7"},
		{"k7", "s-k7-0123456789", ""},
		{"", "st-k7-0123456789", ""},
		{"", "my-k7-name", ""},
		{"", "s-", ""},
		{"", "s--", ""},
		{"", "", ""},
	} {
		if got := newNames(tc.node).placeIn([]byte(tc.id)); string(got) != tc.want {
			t.Errorf("%q on %q: %q", tc.id, tc.node, got)
		}
	}
	n := newNames("")
	for params, want := range map[string]string{
		`{"session_id":"s-k7-1"}`:                      "k7",
		`{"command":"x","exec_id":"e-k7-1"}`:           "k7",
		`{"session_id":"","exec_id":"e-k7-1"}`:         "k7",
		`{"session_id":"\u0073-k7-1"}`:                 "k7",
		`{"session_id":7,"exec_id":"e-k7-1"}`:          "k7",
		`{"a":{"session_id":"s-k7-1"}}`:                "",
		`{"session_id":"s-1","exec_id":"e-k7-1"}`:      "",
		`{"command":"\x","session_id":"s-k7-1"}`:       "",
		`["s-k7-1"]`:                                   "",
		``:                                             "",
		`{"parent":"s-k7-1","a":"session_id","b":"s"}`: "",
	} {
		if got := n.placeInParams([]byte(params)); string(got) != want {
			t.Errorf("%s: %q", params, got)
		}
	}
}
