package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

const (
	fedKills   = 60
	fedMessage = 400_000 // bytes, like a message that contains a file
)

// TestFeedThroughKills sends messages to Claude Code over its standard input, in a
// session, and kills the daemon during long messages. Half a message would end the
// agent; a duplicate would be answered twice.
func TestFeedThroughKills(t *testing.T) {
	r := start(t, claude)
	r.model.expectAny(func(modelInput) reply { return say("noted") })
	if out, err := r.command(r.trl, "serve", "--detach").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c, err := client.DialWith(t.Context(), filepath.Join(r.dir, "run", "trl", "trl.sock"), client.Options{Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	env := map[string]string{}
	for _, variable := range r.command("true").Env {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	s, err := c.CreateSession(t.Context(), api.SessionCreateParams{
		Argv: []string{filepath.Join(r.bin, "claude"), "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"},
		Cwd:  r.project, Env: env, InheritEnv: api.InheritNone,
	})
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.Attach(t.Context(), api.ExecAttachParams{ExecID: s.ExecID})
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	answers := make(chan error)
	go func() { answers <- answersIn(output, answers) }()

	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kills, messages := 0, 0
	for ; kills < fedKills; messages++ {
		times := 1 + rnd.IntN(3)
		killed := make(chan int)
		go func() { killed <- killDaemon(t.Context(), c, rnd, times) }()
		message, err := json.Marshal(object{"type": "user", "message": object{"role": "user", "content": fmt.Sprint(messages, strings.Repeat(" word", fedMessage/5))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Input(t.Context(), api.ExecInputParams{ExecID: s.ExecID, Data: string(message) + "\n", Key: fmt.Sprint(messages), Whole: true}); err != nil {
			t.Fatalf("message %d: %v", messages, err)
		}
		kills += <-killed
		select {
		case err := <-answers:
			if err != nil {
				t.Fatalf("message %d: %v", messages, err)
			}
		case <-time.After(patience):
			t.Fatalf("message %d: no answer", messages)
		}
	}
	if _, err := c.Input(t.Context(), api.ExecInputParams{ExecID: s.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-answers; err != io.EOF {
		t.Errorf("after the last answer: %v", err)
	}
	t.Logf("%d messages of %d KB, daemon killed %d times with SIGKILL: each message was answered once", messages, fedMessage/1000, kills)
}

// killDaemon kills the daemon the given number of times, at random moments, and
// returns how often it did.
func killDaemon(ctx context.Context, c *client.Client, rnd *rand.Rand, times int) (killed int) {
	for range times {
		info, err := c.SystemInfo(ctx)
		if err != nil {
			return killed
		}
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond) // pace: kill at a random moment
		if syscall.Kill(info.PID, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// answersIn sends nil for every answer in the agent's output, and returns io.EOF when
// the agent has exited with status 0.
func answersIn(output *client.Stream, answers chan<- error) error {
	r, w := io.Pipe()
	go func() {
		for chunk, err := range output.Chunks() {
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if data, err := chunk.Content(); err == nil && chunk.Type == api.ChunkStdout {
				_, _ = w.Write(data) // the reader reads everything
			}
		}
		w.Close()
	}()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var event struct {
			Type    string
			IsError bool `json:"is_error"`
			Result  string
		}
		switch {
		case err == io.EOF:
			if res := output.Result(); res == nil || res.ExitCode == nil || *res.ExitCode != 0 {
				return fmt.Errorf("the agent ended with %+v", res)
			}
			return io.EOF
		case err != nil:
			return err
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("%w: %.200q", err, line)
		}
		if event.Type == "result" && event.IsError {
			return fmt.Errorf("the agent failed: %s", event.Result)
		}
		if event.Type == "result" {
			answers <- nil
		}
	}
}
