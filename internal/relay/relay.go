// Package relay carries the messages of a TRL between standard input and output
// and the daemon's socket. It is `trl connect`, the far end of a place.
//
// It writes one line, the hello, which says which TRL it reaches. Then it passes
// both files to the daemon, if they are pipes and the daemon can take them, and
// only waits for the end: the daemon serves the caller itself, without a process
// in between that copies every byte. Otherwise it copies between the files and the
// socket. In both forms empty lines are heartbeats; see package stdio.
//
// It ends when the daemon closes the connection, when its output can't be written
// any more, and when heartbeats stop coming in.
package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/stdio"
)

// Config is the configuration of a relay.
type Config struct {
	Socket string // of the daemon
	// Wait is how long to wait for a daemon that does not serve yet.
	Wait          time.Duration
	Stdin, Stdout *os.File

	timing stdio.Timing // set by tests
}

// Run relays until one side ends. It returns nil if the caller or the daemon closed
// the connection.
func Run(ctx context.Context, cfg Config) error {
	conn, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	d := &daemon{conn: conn, in: peer.NewLines(conn, 0)}
	hello, err := d.greet()
	if err != nil {
		return fmt.Errorf("ask the daemon at %s what it is: %w", cfg.Socket, err)
	}
	files := stdio.New(cfg.Stdin, cfg.Stdout, cfg.timing)
	if _, err := files.Write(hello); err != nil {
		return nil // the caller is gone
	}
	passed, err := d.pass(cfg.Stdin, cfg.Stdout)
	switch {
	case err != nil:
		return ended(err)
	case passed:
		_, err = d.in.Next()
		return ended(err)
	}
	return d.copyAll(files)
}

// ended returns the error of a relay whose connection to the daemon has ended.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// dialPause is the pause between two attempts to reach a daemon that is starting.
const dialPause = 2 * time.Millisecond

func dial(ctx context.Context, cfg Config) (*net.UnixConn, error) {
	deadline := time.Now().Add(cfg.Wait)
	for {
		conn, err := peer.DialUnix(ctx, cfg.Socket)
		if err == nil || !errors.Is(err, peer.ErrNoDaemon) || !time.Now().Before(deadline) {
			return conn, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// daemon is the connection to the daemon.
type daemon struct {
	conn *net.UnixConn
	in   *peer.Lines
}

// greetTimeout is how long a daemon may take to answer; one that has just started
// first takes over its sessions.
const greetTimeout = 20 * time.Second

// ask sends a request without params.
func (d *daemon) ask(id uint64, method string) error {
	if err := d.conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return err
	}
	question, err := peer.Encode(id, peer.Request{Method: method})
	if err != nil {
		return err
	}
	_, err = d.conn.Write(append(question, '\n'))
	return err
}

// greet asks the daemon what it is, and returns the hello.
func (d *daemon) greet() ([]byte, error) {
	if err := d.ask(1, api.MethodSystemInfo); err != nil {
		return nil, err
	}
	line, err := d.in.Next()
	if err != nil {
		return nil, err
	}
	var info api.SystemInfo
	if err := peer.Decode(api.MethodSystemInfo, line, &info); err != nil {
		return nil, err
	}
	params, err := json.Marshal(api.HelloFrom(&info))
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", api.NotifySystemHello, params), nil
}

// pass passes both files to the daemon. It returns false if they must be copied:
// they are not pipes, or the daemon can't take them.
func (d *daemon) pass(stdin, stdout *os.File) (bool, error) {
	passed := false
	if stdio.CanPass(stdin, stdout) {
		if err := d.ask(2, stdio.Method); err != nil {
			return false, err
		}
		line, err := d.in.Next()
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			if err := stdio.Pass(d.conn, stdin, stdout); err != nil {
				return false, err
			}
			line, err = d.in.Next()
		}
		if err != nil {
			return false, err
		}
		passed = peer.Decode(stdio.Method, line, nil) == nil // the error is that of a daemon that can't
	}
	return passed, d.conn.SetDeadline(time.Time{})
}

// copyBytes is the size of the buffers: a chunk of a busy stream fits.
const copyBytes = 256 << 10

var errInputEnded = errors.New("relay: standard input has ended")

// copyAll passes on what each side sends, until one of them ends.
func (d *daemon) copyAll(files *stdio.Files) error {
	results := make(chan error, 3)
	go func() { results <- d.fromCaller(files) }()
	go func() { results <- d.fromDaemon(files) }()
	quit := make(chan struct{})
	defer close(quit)
	go func() { results <- beat(files, quit) }()
	for {
		// The end of standard input alone ends nothing: answers may follow.
		if err := <-results; !errors.Is(err, errInputEnded) {
			return err
		}
	}
}

// fromCaller passes standard input on to the daemon.
func (d *daemon) fromCaller(files *stdio.Files) error {
	buf := make([]byte, copyBytes)
	for {
		n, err := files.Read(buf)
		if n > 0 {
			if _, err := d.conn.Write(buf[:n]); err != nil {
				return nil // fromDaemon reads why
			}
		}
		if err != nil {
			_ = d.conn.CloseWrite() // the daemon answers what it has read, and closes
			return errInputEnded
		}
	}
}

// fromDaemon passes on what the daemon sends.
func (d *daemon) fromDaemon(files *stdio.Files) error {
	buf := make([]byte, copyBytes)
	for {
		n, err := d.conn.Read(buf)
		if n > 0 {
			if _, err := files.Write(buf[:n]); err != nil {
				return nil // the caller is gone
			}
		}
		if err != nil {
			return ended(err)
		}
	}
}

// beat sends heartbeats, and returns when the caller is gone.
func beat(files *stdio.Files, quit <-chan struct{}) error {
	err := files.Beat(func(d time.Duration) error {
		select {
		case <-quit:
			return net.ErrClosed
		case <-time.After(d):
			return nil
		}
	})
	if errors.Is(err, stdio.ErrSilent) {
		return err
	}
	return nil
}
