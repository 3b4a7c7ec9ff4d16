package must

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	orderTrials = 100
	orderSent   = 50
)

// TestMustKeepTheOrder sends commands that wait for their session in one write,
// over one connection and over five at once: commands of a connection must run in
// the order in which they were sent. It was seen to fail when each was served as
// soon as it was read.
func TestMustKeepTheOrder(t *testing.T) {
	r := start(t, "--max-execs", "10")
	began := time.Now()
	outOf := 0
	for _, connections := range []int{1, 5} {
		s := r.create(api.SessionCreateParams{Shell: "dash"})
		var all []*gauge.Lines
		for range connections {
			all = append(all, r.dialLines())
		}
		for trial := range orderTrials {
			file := filepath.Join(t.TempDir(), "order")
			if _, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 0.02", Wait: true}, YieldMS: 1}); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			failed := make([]error, connections)
			for i, l := range all {
				wg.Go(func() { failed[i] = sendInOrder(l, s.SessionID, file, i, orderSent/connections) })
			}
			wg.Wait()
			if err := errors.Join(failed...); err != nil {
				t.Fatal(err)
			}
			if err := inOrder(file, connections, orderSent/connections); err != nil {
				t.Errorf("trial %d with %d connections: %v", trial, connections, err)
				outOf++
			}
		}
	}
	gauge.Figures(t, "%d trials of %d commands in one write, over one connection and over 5: %d out of order; %s", 2*orderTrials, orderSent, outOf, time.Since(began).Round(time.Millisecond))
	r.stop()
}

// sendInOrder sends commands that append their numbers to a file, and reads the
// answers.
func sendInOrder(l *gauge.Lines, session, file string, connection, count int) error {
	var all bytes.Buffer
	for n := range count {
		fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":%d,"method":"exec.run","params":{"session_id":%q,"wait":true,"command":"echo %d %d >>%s"}}`+"\n", n, session, connection, n, file)
	}
	if _, err := l.Conn.Write(all.Bytes()); err != nil {
		return err
	}
	for range count {
		answer, err := l.In.ReadBytes('\n')
		if err != nil || !bytes.Contains(answer, []byte(`"exit_code":0`)) {
			return fmt.Errorf("%s, %w", answer, err)
		}
	}
	return nil
}

// inOrder checks that each connection's numbers are in the file, in order.
func inOrder(file string, connections, count int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	next := make([]int, connections)
	for line := range strings.Lines(string(text)) {
		var connection, n int
		if _, err := fmt.Sscan(line, &connection, &n); err != nil {
			return err
		}
		if n != next[connection] {
			return fmt.Errorf("command %d of connection %d ran as number %d", n, connection, next[connection])
		}
		next[connection]++
	}
	for connection, n := range next {
		if n != count {
			return fmt.Errorf("connection %d has run %d commands of %d", connection, n, count)
		}
	}
	return nil
}

const mergedCommands = 1000

// TestMustMergeInOrder runs commands that write to both streams alternately, with
// builtins and with programs: merged output must be in the order in which it was
// written.
func TestMustMergeInOrder(t *testing.T) {
	r := start(t)
	began := time.Now()
	const turns = 20
	var want strings.Builder
	for i := range turns {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	loop := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo out $i; echo err $i >&2; i=$((i+1)); done", turns)
	commands := []string{loop, "sh -c '" + loop + "'", "(" + loop + ")", "{ " + loop + "; } 2>&1 | cat"}
	outOf, ran := 0, 0
	for _, shell := range shells {
		s := r.create(api.SessionCreateParams{Shell: shell})
		for i := range mergedCommands / len(shells) {
			res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: commands[i%len(commands)], Merge: true}})
			if err != nil {
				t.Fatal(err)
			}
			ran++
			if res.Stdout != want.String() || res.Stderr != "" || !res.Merged {
				t.Errorf("%s, %d: %+v", shell, i, res)
				outOf++
			}
		}
	}
	gauge.Figures(t, "%d merged commands that write to both streams alternately: %d out of order; %s", ran, outOf, time.Since(began).Round(time.Millisecond))
	r.stop()
}
