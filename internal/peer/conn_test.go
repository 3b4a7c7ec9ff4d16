package peer

import (
	"bufio"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// A call can be abandoned while the daemon does not read. Those behind it are sent
// when it reads again, whole and in order.
func TestCallsToADaemonThatDoesNotRead(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := NewConn(NewLineWire(ours))
	defer conn.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()

	sent := 0
	for stalled := false; !stalled; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begun := false
		params := map[string]any{"number": sent, "text": strings.Repeat("x", 50000)}
		_, err := conn.Call(ctx, Request{Method: api.MethodSystemPing, Params: params, Sent: func() { begun = true }}, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if stalled = !begun; begun {
			sent++
		}
	}
	in := bufio.NewReader(theirs)
	for number := range sent {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Result struct{ Number int } }
		if err := Decode("", []byte(strings.Replace(line, "params", "result", 1)), &got.Result); err != nil || got.Result.Number != number {
			t.Fatalf("number %d: %+v, %v", number, got, err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Call(t.Context(), Request{Method: api.MethodSystemPing}, nil)
		answered <- err
	}()
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id, _ := quickID([]byte(line))
	answer, _ := Encode(id, Request{Method: "x"})
	if _, err := theirs.Write(append(answer, '\n')); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
