package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// relayed is a client that reaches a real daemon through `trl connect`, and knows
// the relays.
type relayed struct {
	*Client
	daemon *trltest.Daemon
	pids   string // file with the process ids of the relays
}

func dialRelay(t *testing.T) *relayed {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	d, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := &relayed{daemon: d, pids: filepath.Join(t.TempDir(), "pids")}
	argv := []string{"sh", "-c", `echo "welcome to this host"; echo $$ >>"$1"; exec "$2" --socket "$3" connect`, "sh", r.pids, binary, d.Socket}
	r.Client, err = DialCommand(t.Context(), argv, Options{Patience: trltest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// killRelays kills all relays that have been started.
func (r *relayed) killRelays(t *testing.T) (killed int) {
	t.Helper()
	text, err := os.ReadFile(r.pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue // being written
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if filepath.Base(exe) == "trl" && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// TestDisruptedCommand kills relays, and the daemon behind them, while a command
// writes and others run: the stream must have every byte once, and each command
// must run once.
func TestDisruptedCommand(t *testing.T) {
	r := dialRelay(t)
	ctx := t.Context()
	writer, err := r.CreateSession(ctx, api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	counter, err := r.CreateSession(ctx, api.SessionCreateParams{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	const lines = 300
	stream, err := r.Stream(ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{
		SessionID: writer.SessionID, Command: fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; sleep 0.01; done", lines),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	runs := make(chan int)
	var failed error
	go func() {
		n := 0
		for !over.Load() {
			n++
			if _, err := r.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: counter.SessionID, Command: "echo x >>ran"}}); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		runs <- n
	}()
	kills, at := 0, time.Now()
	var text strings.Builder
	for chunk, err := range stream.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		data, _ := chunk.Content()
		text.Write(data)
		if time.Since(at) > 200*time.Millisecond {
			kills, at = kills+r.killRelays(t), time.Now()
			if kills%3 == 0 {
				info, err := r.SystemInfo(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_ = syscall.Kill(info.PID, syscall.SIGKILL) // its holder starts it again
			}
		}
	}
	over.Store(true)
	n := <-runs
	if failed != nil {
		t.Error(failed)
	}
	want := make([]string, lines)
	for i := range want {
		want[i] = fmt.Sprintf("line %d", i+1)
	}
	if got := strings.Split(strings.TrimSpace(text.String()), "\n"); !slices.Equal(got, want) {
		t.Errorf("received %d lines, want %d", len(got), lines)
	}
	res, err := r.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: counter.SessionID, Command: "wc -l <ran"}})
	if err != nil || strings.TrimSpace(res.Stdout) != strconv.Itoa(n) {
		t.Errorf("%d commands ran %q times: %v", n, res.Stdout, err)
	}
	if kills < 3 {
		t.Errorf("only %d relays were killed", kills)
	}
	t.Logf("%d relays killed, %d commands", kills, n)
}

func TestWordsOfACommand(t *testing.T) {
	for _, tc := range []struct {
		name, addr string
		want       []string
	}{
		{"says why", `exec:["sh","-c","echo \"no route \u001b[31mto\" >&2; exit 7"]`, []string{"sh ended before it reached a TRL", "exit status 7", "no route"}},
		{"prints something else", `exec:["sh","-c","echo hello there"]`, []string{`"hello there"`}},
		{"chatters", `exec:["sh","-c","yes chatter"]`, []string{"more than 65536 bytes", "chatter"}},
		{"is missing", `exec:["/nonesuch/relay"]`, []string{"/nonesuch/relay"}},
		{"is no list", `exec:trl connect`, []string{"JSON array"}},
		{"is empty", `exec:[]`, []string{"JSON array"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Dial(t.Context(), tc.addr)
			if err == nil {
				t.Fatal("connected")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q has control characters", err)
			}
		})
	}
}
