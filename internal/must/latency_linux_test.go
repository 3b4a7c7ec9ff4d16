package must

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// Roles of this test binary when started as another process.
const (
	tickVariable  = "MUST_TICK"  // write the time repeatedly
	relayVariable = "MUST_RELAY" // only relay the output of such a process to a socket
)

const (
	ticks    = 300
	tickEach = 2 * time.Millisecond
)

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has this clock
	}
	return ts.Nano()
}

// runTicker writes the time of each write, if this process was started for it.
func runTicker() {
	if os.Getenv(tickVariable) == "" {
		return
	}
	for range ticks {
		time.Sleep(tickEach) // pace: it is a clock
		fmt.Fprintf(os.Stdout, "%d\n", monotonic())
	}
	os.Exit(0)
}

// runRelay is the minimum between a command and a client: it copies a pipe to a
// socket.
func runRelay() {
	path := os.Getenv(relayVariable)
	if path == "" {
		return
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		os.Exit(1)
	}
	conn, err := listener.Accept()
	if err != nil {
		os.Exit(1)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), relayVariable+"=", tickVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		os.Exit(1)
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := out.Read(buf)
		if err != nil {
			os.Exit(0)
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			os.Exit(1)
		}
	}
}

// ages returns how long ago the times in some lines were.
func ages(lines string) (ages []time.Duration) {
	now := monotonic()
	for line := range strings.FieldsSeq(lines) {
		if stamp, err := strconv.ParseInt(line, 10, 64); err == nil {
			ages = append(ages, time.Duration(now-stamp))
		}
	}
	return ages
}

// TestMustStreamAtOnce measures how long a byte takes from a command to a client.
func TestMustStreamAtOnce(t *testing.T) {
	gauge.Tries(t, func(t *testing.T) error {
		relayed := relayTicks(t)
		r := start(t)
		s := r.create(api.SessionCreateParams{Env: map[string]string{tickVariable: "1"}})
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		st, err := r.client.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: self}})
		if err != nil {
			t.Fatal(err)
		}
		var streamed []time.Duration
		for chunk, err := range st.Chunks() {
			if err != nil {
				t.Fatal(err)
			}
			streamed = append(streamed, ages(chunk.Data)...)
		}
		r.client.Close()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if len(streamed) != ticks || len(relayed) != ticks {
			t.Fatalf("%d and %d lines, want %d", len(streamed), len(relayed), ticks)
		}
		over := gauge.Ratio(gauge.Median(streamed), gauge.Median(relayed))
		gauge.Figures(t, "from a command's write to the chunk at the client p50 %v p99 %v = %.2f × a bare relay (%v)",
			gauge.Median(streamed), streamed[ticks*99/100], over, gauge.Median(relayed))
		if over > streamOfRelay {
			return fmt.Errorf("a byte takes %.2f × as long as through a bare relay, want at most %.1f", over, streamOfRelay)
		}
		return nil
	})
}

func relayTicks(t *testing.T) (relayed []time.Duration) {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), relayVariable+"="+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	var l *gauge.Lines
	if err := eventually(trltest.Patience, func() (err error) {
		l, err = gauge.DialLines(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Conn.Close()
	for range ticks {
		line, err := l.In.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		relayed = append(relayed, ages(line)...)
	}
	return relayed
}
