package peer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

func TestLinesHaveALimit(t *testing.T) {
	const limit = 2 * maxKeptLine
	for length, want := range map[int]bool{
		10: true, BufferBytes: true, BufferBytes + 1: true, maxKeptLine: true, maxKeptLine + 1: true, limit - 1: true, limit: true,
		limit + 1: false, 10 * limit: false,
	} {
		sent := strings.Repeat("0123456789abcdefg", length/17+1)[:length-1] + "\n"
		l := NewLines(strings.NewReader(sent+"next\n"), limit)
		line, err := l.Next()
		if (err == nil) != want || err == nil && string(line) != sent {
			t.Errorf("a line of %d bytes: %d, %v", length, len(line), err)
		}
		if next, err := l.Next(); want && (err != nil || string(next) != "next\n") {
			t.Errorf("after a line of %d bytes: %q, %v", length, next, err)
		}
	}
}

// relayOf returns a relay that says hello, and then runs a script.
func relayOf(script string) Command {
	hello := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"protocol":%d}}`, api.NotifySystemHello, api.Protocol)
	return Command{Argv: []string{"sh", "-c", "echo '" + hello + "'; " + script}, MaxMessage: 1 << 20}
}

// A call may ask for an answer that is longer than others.
func TestALongAnswerIsAskedFor(t *testing.T) {
	const long = `read -r line; printf '{"jsonrpc":"2.0","id":1,"result":{"a":"'; head -c 3000000 /dev/zero | tr '\0' x; echo '"}}'; read -r line`
	for asked, want := range map[int]bool{0: false, 1 << 10: false, 4 << 20: true} {
		wire, _, err := StartCommand(t.Context(), relayOf(long))
		if err != nil {
			t.Fatal(err)
		}
		conn := NewConn(wire)
		line, err := conn.Call(t.Context(), Request{Method: api.MethodSystemPing, MaxAnswer: asked}, nil)
		if (err == nil) != want || err != nil && !errors.Is(err, errLongLine) {
			t.Errorf("asked for %d: %d bytes, %v", asked, len(line), err)
		}
		conn.Close()
	}
}

func TestALongHello(t *testing.T) {
	_, _, err := StartCommand(t.Context(), Command{Argv: []string{"sh", "-c", "tr '\\0' x </dev/zero"}})
	if err == nil || !strings.Contains(err.Error(), "not a TRL's hello") {
		t.Error(err)
	}
}

// A relay may read a line before it says hello.
func TestFirstLineForARelay(t *testing.T) {
	cmd := relayOf("read -r line")
	cmd.Argv[2] = `read -r first; echo "got $first"; ` + cmd.Argv[2]
	cmd.First = func() []byte { return []byte("a line\n") }
	var banner []string
	cmd.Banner = func(line []byte) { banner = append(banner, string(line)) }
	wire, _, err := StartCommand(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	if len(banner) != 1 || banner[0] != "got a line" {
		t.Errorf("%q", banner)
	}
}
