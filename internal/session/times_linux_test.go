package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// timedOutput reads output with its times, step bytes at a time.
func timedOutput(t *testing.T, p *Pool, exec string, step int64) []api.Chunk {
	t.Helper()
	var all []api.Chunk
	for from := int64(0); ; {
		out, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: exec, From: from, MaxBytes: &step, Times: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out.Chunks...)
		if out.Next == from {
			return all
		}
		from = out.Next
	}
}

// describeChunks returns chunks in short form, with a bar where time passed.
func describeChunks(t *testing.T, chunks []api.Chunk) string {
	t.Helper()
	var b strings.Builder
	last, next := int64(0), int64(0)
	for _, c := range chunks {
		if c.AtMS == nil || *c.AtMS < last || c.Offset != next || c.Encoding != "" {
			t.Errorf("%+v follows %d ms and offset %d", c, last, next)
			continue
		}
		// The commands pause for 600 ms and are otherwise not this slow.
		if *c.AtMS-last >= 300 {
			b.WriteString("|")
		}
		last, next = *c.AtMS, c.Next
		b.WriteString(c.Data)
		if c.TTY != nil {
			b.WriteString("<" + strings.Repeat("=", c.TTY.Cols) + ">")
		}
	}
	return b.String()
}

func TestTimes(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	for _, test := range []struct{ name, command, want string }{
		{"at once", `printf abc; printf def`, "abcdef"},
		{"nothing", `sleep 0.6`, ""},
		{"late", `sleep 0.6; printf abc`, "|abc"},
		{"pauses", `printf a; sleep 0.6; printf b >&2; sleep 0.6; printf cd`, "a|b|cd"},
		{"a character that comes in pieces", `printf 'a\303'; sleep 0.6; printf '\251b'`, "a|éb"},
		{"one in three", `printf '\342'; sleep 0.6; printf '\202'; sleep 0.6; printf '\254'`, "|€"},
	} {
		t.Run(test.name, func(t *testing.T) {
			trltest.Undisturbed(t, func() error {
				r := sh(t, p, s, test.command)
				if r.TTY != nil {
					t.Error("a command on pipes reports a terminal")
				}
				if got := describeChunks(t, timedOutput(t, p, r.ExecID, 1<<20)); got != test.want {
					return fmt.Errorf("%q, want %q", got, test.want) // pauses of a busy machine show too
				}
				return nil
			})
		})
	}
	r := sh(t, p, s, `printf a`)
	_, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID, View: api.ViewText, Times: true})
	if e := api.AsError(err); e == nil || e.Code != api.CodeInvalidParams || e.Details["field"] != "times" {
		t.Errorf("text with times: %v", err)
	}
	plain, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: r.ExecID})
	if err != nil {
		t.Fatal(err)
	}
	if plain.Chunks[0].AtMS != nil {
		t.Error("times without being requested")
	}
}

// TestTimesOfAQueuedCommand: times count from when a command began, not from when
// it was requested.
func TestTimesOfAQueuedCommand(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{})
	run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "sleep 0.5"}, YieldMS: 1})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "echo turn", Wait: true}})
	if chunks := timedOutput(t, p, r.ExecID, 1<<20); *chunks[0].AtMS > r.DurationMS {
		t.Errorf("it wrote after %d ms, and took %d", *chunks[0].AtMS, r.DurationMS)
	}
}

// TestTimesOfResizes: a resize is reported where it happened, once, however the
// output is read.
func TestTimesOfResizes(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 2, Cols: 9}})
	resize := func(cols int) {
		t.Helper()
		if _, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: 2, Cols: cols}); err != nil {
			t.Fatal(err)
		}
	}
	resize(8) // before the command, which begins with it
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "stty -echo; printf one; read x; printf two; read x; stty size"}, YieldMS: 1})
	awaitText(t, p, r.ExecID, "one")
	resize(5)
	resize(4) // nothing was shown in the size before
	if got := describeChunks(t, timedOutput(t, p, r.ExecID, 1<<20)); strings.Contains(got, "<") {
		t.Errorf("%q has a resize before the output that follows it", got)
	}
	enter := func() {
		if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "\n"}); err != nil {
			t.Fatal(err)
		}
	}
	enter()
	awaitText(t, p, r.ExecID, "two")
	resize(3)
	enter()
	_, e, err := p.exec(r.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	resize(2) // after it has ended
	if diff := cmp.Diff(&api.TTYSize{Rows: 2, Cols: 8}, e.Result().TTY); diff != "" {
		t.Errorf("it began on another terminal: %s", diff)
	}
	for _, step := range []int64{1, 2, 3, 4, 1 << 20} {
		got := strings.ReplaceAll(describeChunks(t, timedOutput(t, p, r.ExecID, step)), "|", "")
		if want := "one<====>two<===>2 3\r\n"; got != want {
			t.Errorf("read %d bytes at a time: %q, want %q", step, got, want)
		}
	}
}
