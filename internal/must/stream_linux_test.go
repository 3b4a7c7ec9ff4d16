package must

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// exactlyOnce returns how much is streamed and how often the connection is cut.
func exactlyOnce() (size int64, cuts int) {
	if os.Getenv("TRL_LONG") == "1" {
		return 1 << 30, 1000
	}
	return 24 << 20, 60
}

// plenty is enough quota for all the output of these tests.
var plenty = []string{"--exec-quota-bytes", "4294967296", "--total-quota-bytes", "8589934592"}

// TestMustStreamExactlyOnce was seen to fail: with a client that attached from
// one byte before its position, and with a daemon whose chunks had a wrong next
// offset.
func TestMustStreamExactlyOnce(t *testing.T) {
	size, cuts := exactlyOnce()
	for _, transport := range []string{"unix", "sse", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			rnd := seeded(t)
			r := startWith(t, trltest.Config{HTTP: transport != "unix", Args: plenty})
			file, want := randomFile(t, rnd, size)
			// Base64 turns three bytes into four; a few connections carry no
			// data.
			proxy, c := r.proxied(transport, int(size*4/3)/cuts*8/10, rnd.Uint64())
			s := r.create(api.SessionCreateParams{})
			began := time.Now()
			st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat " + file + "; exit 3"}})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			hash, next, exits := sha256.New(), int64(0), 0
			for chunk, err := range st.Chunks() {
				if err != nil {
					t.Fatal(err)
				}
				data, err := chunk.Content()
				if err != nil || chunk.Offset != next || chunk.Next != next+int64(len(data)) || chunk.Type == api.ChunkGap {
					t.Fatalf("chunk %s at %d of %d bytes, next %d, want it at %d (%v)", chunk.Type, chunk.Offset, len(data), chunk.Next, next, err)
				}
				next = chunk.Next
				hash.Write(data)
				if chunk.Type == api.ChunkExit {
					exits++
				}
			}
			took := time.Since(began)
			proxy.StopCutting()
			if got := hex.EncodeToString(hash.Sum(nil)); got != want || next != size {
				t.Errorf("received %d bytes with hash %s, want %d with %s", next, got, size, want)
			}
			if exits != 1 || st.Result() == nil || *st.Result().ExitCode != 3 {
				t.Errorf("%d exits, result %+v", exits, st.Result())
			}
			if int(proxy.Cuts()) < cuts {
				t.Errorf("%d cuts, want at least %d", proxy.Cuts(), cuts)
			}
			if list, err := r.client.ExecList(r.ctx, api.SessionParams{SessionID: s.SessionID}); err != nil || len(list.Execs) != 1 {
				t.Errorf("the command ran %d times, %v", len(list.Execs), err)
			}
			gauge.Figures(t, "%d MiB of random bytes, %d connections cut: every byte once, in order, one exit; %.0f MiB/s",
				size>>20, proxy.Cuts(), float64(size>>20)/took.Seconds())
			c.Close()
			proxy.Close()
			r.client.Close()
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// randomFile writes a file of seeded random bytes, and returns its hash.
func randomFile(t *testing.T, rnd *rand.Rand, size int64) (path, hash string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "random")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rnd.Uint32())
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), rand.NewChaCha8(seed), size); err != nil {
		t.Fatal(err)
	}
	return path, hex.EncodeToString(sum.Sum(nil))
}

// proxied returns a client over one of the transports, behind a proxy that cuts
// its connections.
func (r *rig) proxied(transport string, cut int, seed uint64) (*trltest.Proxy, *client.Client) {
	r.t.Helper()
	network, address, target := "tcp", "127.0.0.1:0", r.HTTP
	if transport == "unix" {
		network, address, target = "unix", r.Socket+".proxy", r.Socket
	}
	proxy, err := trltest.NewProxy(network, address, target, cut, seed)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(proxy.Close)
	scheme := map[string]string{"unix": "unix:", "sse": "http://", "websocket": "ws://"}[transport]
	for {
		c, err := client.DialWith(r.ctx, scheme+proxy.Addr(), client.Options{Token: r.Token, Patience: time.Minute})
		if err == nil {
			r.t.Cleanup(func() { c.Close() })
			return proxy, c
		}
		if r.ctx.Err() != nil { // the handshake of a WebSocket may be cut too
			r.t.Fatal(err)
		}
	}
}

// The goals of streams, as ratios to baselines measured in the same run.
const (
	streamOfCat    = 0.25 // text over the Unix socket, of the rate into cat
	streamOfCatSSE = 0.15 // the same over HTTP
	streamOfRelay  = 3.0  // latency of a byte to the client, over a bare relay
	streamLive     = 0.9  // rate of live readers next to a stalled one, of that without
)

// textCommand returns a command that writes size bytes of text in typical lines.
func textCommand(size int64) string {
	return fmt.Sprintf("yes 'The quick brown fox jumps over the lazy dog, and then again; 42.' | head -c %d", size)
}

// TestMustStreamFast measures how fast a client receives what a command writes.
func TestMustStreamFast(t *testing.T) {
	for _, transport := range []string{"unix", "sse"} {
		t.Run(transport, func(t *testing.T) {
			gauge.Tries(t, func(t *testing.T) error { return streamRate(t, transport) })
		})
	}
}

func streamRate(t *testing.T, transport string) error {
	size := int64(floodBytes)
	r := startWith(t, trltest.Config{HTTP: transport != "unix", Args: plenty})
	c := r.client
	if transport == "sse" {
		var err error
		if c, err = client.DialWith(r.ctx, "http://"+r.HTTP, client.Options{Token: r.Token}); err != nil {
			t.Fatal(err)
		}
	}
	s := r.create(api.SessionCreateParams{})
	cat := timeCat(t, textCommand(size))
	began := time.Now()
	st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: textCommand(size)}})
	if err != nil {
		t.Fatal(err)
	}
	var got int64
	for chunk, err := range st.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		got += int64(len(chunk.Data))
	}
	took := time.Since(began)
	if got != size {
		t.Errorf("%d bytes, want %d", got, size)
	}
	c.Close()
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	goal, of := streamOfCat, gauge.Ratio(cat, took)
	if transport != "unix" {
		goal = streamOfCatSSE
	}
	gauge.Figures(t, "%d MiB of text streamed in %v, %.0f MiB/s = %.2f × through cat (%v)", size>>20, took, float64(size>>20)/took.Seconds(), of, cat)
	if of < goal {
		return fmt.Errorf("streaming is %.2f × the rate through cat, want at least %.2f", of, goal)
	}
	return nil
}
