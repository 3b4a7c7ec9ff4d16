package must

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os/exec"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// relayOverSocket is how much longer a command may take over `trl connect` than
// over the daemon's socket: the relay is not in between, so nearly nothing.
const relayOverSocket = 1.5

// TestMustRelayCheaply compares commands over `trl connect` with commands over the
// socket.
func TestMustRelayCheaply(t *testing.T) {
	r := start(t)
	direct, relayed := r.dialLines(), r.dialRelay()
	directLine := gauge.RunLine(r.create(api.SessionCreateParams{Shell: "dash"}).SessionID)
	relayedLine := gauge.RunLine(r.create(api.SessionCreateParams{Shell: "dash"}).SessionID)
	socket := &gauge.Series{N: 100, Do: func() error { return gauge.AskTrue(direct, directLine) }}
	relay := &gauge.Series{N: 100, Do: func() error { return gauge.AskTrue(relayed, relayedLine) }}
	var over float64
	for i := range gauge.Rounds {
		if err := errors.Join(socket.Round(), relay.Round()); err != nil {
			t.Fatal(err)
		}
		if over = gauge.Ratio(relay.Best, socket.Best); i >= gauge.RoundsLeast && over <= relayOverSocket {
			break
		}
	}
	gauge.Figures(t, "exec.run true over trl connect p50 %v = %.2f × over the socket (%v)", relay.Best, over, socket.Best)
	if over > relayOverSocket {
		t.Errorf("exec.run true over a relay takes %.2f × as long as over the socket, want at most %.1f", over, relayOverSocket)
	}
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// dialRelay starts `trl connect`, and reads its hello.
func (r *rig) dialRelay() *gauge.Lines {
	r.t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.ctx, binary, "--socket", r.Socket, "connect")
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	l := &gauge.Lines{Conn: relayPipes{WriteCloser: in}, In: bufio.NewReaderSize(out, 64<<10)}
	if _, err := l.In.ReadBytes('\n'); err != nil {
		r.t.Fatal(err)
	}
	return l
}

// relayPipes is the connection to a relay as far as lines uses it.
type relayPipes struct {
	net.Conn
	io.WriteCloser
}

func (p relayPipes) Write(b []byte) (int, error) { return p.WriteCloser.Write(b) }
func (p relayPipes) Close() error                { return p.WriteCloser.Close() }
