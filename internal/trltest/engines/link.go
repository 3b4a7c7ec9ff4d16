package engines

import (
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// Link returns a TCP proxy to target (host:port) that the test can cut, stall and
// restore.
func Link(t testing.TB, target string) *trltest.Proxy {
	t.Helper()
	link, err := trltest.NewProxy("tcp", "127.0.0.1:0", target, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	return link
}
