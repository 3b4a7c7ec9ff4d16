// Package relay carries the messages of a TRL between standard input and output
// and the daemon's socket. It is `trl connect`, the far end of a place.
//
// It passes bytes on as they are, and adds two things to what it writes: a first
// line, the hello, which says which TRL it reaches, and empty lines as heartbeats.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// Config is the configuration of a relay.
type Config struct {
	Socket string // of the daemon
	// Wait is how long to wait for a daemon that does not serve yet.
	Wait          time.Duration
	Stdin, Stdout *os.File

	interval, silence, poll time.Duration // 0: those of the contract; set by tests
}

func (c *Config) setDefaults() {
	if c.interval == 0 {
		c.interval, c.silence, c.poll = peer.HeartbeatInterval, peer.SilenceLimit, beatPoll
	}
}

// relay is the state of one run.
type relay struct {
	cfg  Config
	conn *net.UnixConn

	beating  atomic.Bool  // the caller sends heartbeats
	heardAt  atomic.Int64 // when the caller sent something, in Unix nanoseconds
	inClosed atomic.Bool  // standard input has ended

	mu      sync.Mutex // serializes writes to stdout; guards the fields below
	midLine bool       // the last byte written was not the end of a line
	wroteAt time.Time
}

// errSilent ends a relay whose caller has stopped sending heartbeats.
var errSilent = errors.New("relay: no heartbeat from the caller")

// Run relays until one side ends. It returns nil if the caller or the daemon closed
// the connection.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	conn, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := peer.NewLines(conn, 0)
	hello, err := greet(conn, in)
	if err != nil {
		return fmt.Errorf("ask the daemon at %s what it is: %w", cfg.Socket, err)
	}
	r := &relay{cfg: cfg, conn: conn, wroteAt: time.Now()}
	r.heardAt.Store(time.Now().UnixNano())
	if err := r.write(hello); err != nil {
		return nil // the caller is gone
	}
	ended := make(chan error, 3)
	go func() { ended <- r.fromCaller() }()
	go func() { ended <- r.fromDaemon() }()
	quit := make(chan struct{})
	defer close(quit)
	go func() { ended <- r.beat(quit) }()
	for {
		// The end of standard input alone ends nothing: answers may follow.
		if err := <-ended; !errors.Is(err, errInputEnded) {
			return err
		}
	}
}

// dialPause is the pause between two attempts to reach a daemon that is starting.
const dialPause = 10 * time.Millisecond

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

// greetTimeout is how long a daemon may take to say what it is; one that has just
// started first takes over its sessions.
const greetTimeout = 20 * time.Second

// greet asks the daemon what it is, and returns the hello.
func greet(conn *net.UnixConn, in *peer.Lines) ([]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	question, err := peer.Encode(1, peer.Request{Method: api.MethodSystemInfo})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(question, '\n')); err != nil {
		return nil, err
	}
	line, err := in.Next()
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
	hello := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", api.NotifySystemHello, params)
	return hello, conn.SetDeadline(time.Time{})
}

// copyBytes is the size of the buffers: a chunk of a busy stream fits.
const copyBytes = 256 << 10

var errInputEnded = errors.New("relay: standard input has ended")

// fromCaller passes standard input on to the daemon.
func (r *relay) fromCaller() error {
	buf := make([]byte, copyBytes)
	lineStart := true
	for {
		n, err := r.cfg.Stdin.Read(buf)
		if n > 0 {
			r.heardAt.Store(time.Now().UnixNano())
			if lineStart && buf[0] == '\n' {
				r.beating.Store(true)
			}
			lineStart = buf[n-1] == '\n'
			if _, err := r.conn.Write(buf[:n]); err != nil {
				return nil // fromDaemon reads why
			}
		}
		if err != nil {
			r.inClosed.Store(true)
			_ = r.conn.CloseWrite() // the daemon answers what it has read, and closes
			return errInputEnded
		}
	}
}

// fromDaemon passes on what the daemon sends.
func (r *relay) fromDaemon() error {
	buf := make([]byte, copyBytes)
	for {
		n, err := r.conn.Read(buf)
		if n > 0 && r.write(buf[:n]) != nil {
			return nil // the caller is gone
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *relay) write(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.cfg.Stdout.Write(b)
	r.midLine, r.wroteAt = !bytes.HasSuffix(b, []byte("\n")), time.Now()
	return err
}

// beatPoll is how often the relay looks whether a heartbeat is due. A caller that
// has closed standard input is looked for this often too.
const beatPoll = time.Second

// beat sends heartbeats, and returns when the caller is gone: when it can't be
// written to, or has stopped sending heartbeats. A caller that never sent one, such
// as a person at a terminal, may be silent for as long as it likes.
func (r *relay) beat(quit <-chan struct{}) error {
	ticker := time.NewTicker(r.cfg.poll)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-quit:
			return nil
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > 2*r.cfg.interval { // this process was stopped: the caller may have been too
			r.heardAt.Store(now.UnixNano())
		}
		last = now
		if r.beating.Load() && !r.inClosed.Load() && now.UnixNano()-r.heardAt.Load() > int64(r.cfg.silence) {
			return errSilent
		}
		if err := r.beatOnce(now); err != nil {
			return nil // the caller is gone
		}
	}
}

func (r *relay) beatOnce(now time.Time) error {
	if !r.mu.TryLock() {
		return nil // a write is under way
	}
	defer r.mu.Unlock()
	due := now.Sub(r.wroteAt) >= r.cfg.interval || r.inClosed.Load()
	if r.midLine || !due {
		return nil
	}
	r.wroteAt = now
	_, err := r.cfg.Stdout.WriteString("\n")
	return err
}
