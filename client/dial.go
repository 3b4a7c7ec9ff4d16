package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/internal/peer"
)

// dial returns the transport for an address.
func dial(ctx context.Context, addr string, opts Options) (daemonTransport, error) {
	scheme, rest, _ := strings.Cut(addr, ":")
	switch {
	case scheme == "unix" || !strings.Contains(addr, "://") && scheme != "stdio" && scheme != "exec":
		path := strings.TrimPrefix(addr, "unix:")
		return dialLines(ctx, func(ctx context.Context) (peer.Wire, error) { return dialUnix(ctx, path) })
	case scheme == "stdio":
		w, err := startStdio(rest)
		if err != nil {
			return nil, err
		}
		return &lineTransport{conn: peer.NewConn(w)}, nil
	case scheme == "exec":
		var argv []string
		if err := json.Unmarshal([]byte(rest), &argv); err != nil || len(argv) == 0 {
			return nil, fmt.Errorf("address %q: use exec: and a JSON array of words, such as exec:[\"ssh\",\"box\",\"trl\",\"connect\"]", addr)
		}
		return dialCommand(ctx, argv)
	case scheme == "ws" || scheme == "wss":
		return dialLines(ctx, func(ctx context.Context) (peer.Wire, error) { return dialWebSocket(ctx, addr, opts) })
	case scheme == "http" || scheme == "https":
		return newHTTP(addr, opts)
	default:
		return nil, fmt.Errorf("address %q: use unix:PATH, http://, https://, ws://, wss://, exec:[WORDS] or stdio:COMMAND", addr)
	}
}

// dialLines makes the first connection, and keeps connect to make more.
func dialLines(ctx context.Context, connect func(context.Context) (peer.Wire, error)) (daemonTransport, error) {
	l := &lineTransport{dial: func(ctx context.Context) (*peer.Conn, error) {
		w, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		return peer.NewConn(w), nil
	}}
	var err error
	l.conn, err = l.dial(ctx)
	return l, err
}

// dialCommand connects through a command that relays to a daemon, and runs the
// command again for each further connection.
func dialCommand(ctx context.Context, argv []string) (daemonTransport, error) {
	return dialLines(ctx, func(ctx context.Context) (peer.Wire, error) {
		w, _, err := peer.StartCommand(ctx, peer.Command{Argv: argv})
		return w, err
	})
}

func dialUnix(ctx context.Context, path string) (peer.Wire, error) {
	c, err := peer.DialUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	return peer.NewLineWire(c), nil
}

// stdioGrace is how long a daemon started for a client may take to end its
// sessions after the client closes: a little more than the grace period of
// commands.
const stdioGrace = 10 * time.Second

// stdioPipe is the standard input and output of a daemon started for this
// client.
type stdioPipe struct {
	io.Reader
	io.WriteCloser
	cmd *exec.Cmd
}

// startStdio starts a daemon. It splits the command line into words, without a
// shell.
func startStdio(command string) (peer.Wire, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return nil, errors.New("address stdio: missing command, such as stdio:trl serve --stdio")
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return peer.NewLineWire(stdioPipe{out, in, cmd}), nil
}

// Close stops the daemon, which ends its sessions, and waits for it.
func (p stdioPipe) Close() error {
	err := p.WriteCloser.Close()
	kill := time.AfterFunc(stdioGrace, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, p.cmd.Wait())
}
