package session

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func onTTY(t *testing.T, p *Pool, shell string) *api.Session {
	t.Helper()
	return create(t, p, api.SessionCreateParams{Shell: shell, TTY: &api.TTYSize{Rows: 24, Cols: 80}})
}

// typing starts a command and types into it, each text after the awaited answer to
// the one before. $GATE in the command waits for the end of the dialogue.
func typing(t *testing.T, p *Pool, s *api.Session, command string, dialogue ...string) *api.ExecResult {
	t.Helper()
	wait, open := trltest.Gate(t)
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: strings.ReplaceAll(command, "$GATE", wait)}, YieldMS: 1})
	for i := 0; i+1 < len(dialogue); i += 2 {
		awaitText(t, p, r.ExecID, dialogue[i])
		if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: dialogue[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	open()
	_, e, err := p.exec(r.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	res, err := e.ResultWithOutput(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// awaitText waits until a command has shown the text.
func awaitText(t *testing.T, p *Pool, exec, want string) {
	t.Helper()
	var shown strings.Builder
	if want == "" {
		return
	}
	end := time.Now().Add(trltest.Patience)
	for next := int64(0); ; {
		out, err := p.Output(t.Context(), api.ExecOutputParams{ExecID: exec, From: next, WaitMS: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range out.Chunks {
			shown.WriteString(c.Data)
		}
		if strings.Contains(shown.String(), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not in %q", want, shown.String())
		}
		next = out.Next
	}
}

var ttyShells = []string{"dash", "ash", "bash", "zsh", "mksh"}

func TestTTY(t *testing.T) {
	p := newPool(t, Config{})
	for _, shell := range ttyShells {
		t.Run(shell, func(t *testing.T) {
			s := onTTY(t, p, shell)
			for _, tc := range []struct {
				name, command string
				dialogue      []string
				code          int
				says          string
			}{
				{"stdio is a terminal", `test -t 0 && test -t 1 && test -t 2 && echo all of it`, nil, 0, "all of it\r\n"},
				{"it controls", `echo here >/dev/tty; tty`, nil, 0, "here\r\n/dev/pts/"},
				{"its size", `stty size`, nil, 0, "24 80"},
				{"a variable", `x=kept; cd /usr`, nil, 0, ""},
				{"is kept", `echo $x $PWD $TERM`, nil, 0, "kept /usr xterm-256color"},
				{"typed", `printf 'name? '; read n; echo hello $n`, []string{"name? ", "you\n"}, 0, "hello you"},
				{"end of input", `cat; echo after`, []string{"", "x\n\x04"}, 0, "after"},
				{"interrupt of a program", `/bin/sh -c 'echo go; exec sleep 100'; echo "not reach"ed`, []string{"go", "\x03"}, 130, "go"},
				{"interrupt of a loop", `echo go; while :; do :; done`, []string{"go", "\x03"}, 130, "go"},
				{"a program that handles it", `/bin/sh -c 'trap "echo heard; exit 0" INT; echo go; while :; do sleep 0.01; done'; echo goes on`, []string{"go", "\x03"}, 0, "goes on"},
				{"quit", `/bin/sh -c 'echo go; exec sleep 100'`, []string{"go", "\x1c"}, 131, "go"},
				{"no stop", `echo go; $GATE; echo on`, []string{"go", "\x1a"}, 0, "on"},
				{"state after all that", `echo $x $PWD`, nil, 0, "kept /usr"},
				{"settings are restored", `stty raw -echo; true`, nil, 0, ""},
				{"for the next", `stty -a | grep -o ' icanon'`, nil, 0, "icanon"},
				{"unread input is not", `$GATE`, []string{"", "echo left\n"}, 0, ""},
				{"the next one's", `sleep 0.01; echo clean`, nil, 0, "clean"},
				{"exit code", `exit 3`, nil, 3, ""},
				{"after it", `echo here >/dev/tty; echo $x $PWD`, nil, 0, "here\r\nkept /usr"},
				{"interrupt after it", `/bin/sh -c 'echo go; exec sleep 100'`, []string{"go", "\x03"}, 130, "go"},
				{"a dead shell", `kill -9 $(exec sh -c 'echo $PPID')`, nil, 137, ""},
				{"has a successor on it", `test -t 0 && echo here >/dev/tty`, nil, 0, "here\r\n"},
			} {
				res := typing(t, p, s, tc.command, tc.dialogue...)
				if deref(res.ExitCode) != tc.code || !strings.Contains(res.Stdout, tc.says) || strings.Contains(res.Stdout, "not reached") {
					t.Errorf("%s: exit code %d, outcome %s, %q; want %d and %q", tc.name, deref(res.ExitCode), res.Outcome, res.Stdout, tc.code, tc.says)
				}
			}
		})
	}
}

func deref(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

func TestTTYOfADirectSession(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{
		Argv: []string{"sh", "-c", `echo here >/dev/tty; read x; stty size; echo got $x; exit 4`}, TTY: &api.TTYSize{Rows: 10, Cols: 20},
	})
	awaitText(t, p, s.ExecID, "here")
	if _, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: 30, Cols: 90}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: s.ExecID, Data: "it\n"}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, p, s.ExecID, "30 90\r\ngot it\r\n")
	waitFor(t, func() bool {
		i, err := p.Info(t.Context(), api.SessionParams{SessionID: s.SessionID})
		return err == nil && i.Terminated != nil && *i.Terminated.ExitCode == 4
	})
}

func TestTTYRefusals(t *testing.T) {
	p := newPool(t, Config{})
	for _, size := range []api.TTYSize{{}, {Rows: 24}, {Rows: 24, Cols: 2000}} {
		if _, err := p.Create(t.Context(), api.SessionCreateParams{TTY: &size}, "tester"); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%v: %v", size, err)
		}
	}
	plain := create(t, p, api.SessionCreateParams{})
	if _, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: plain.SessionID, Rows: 24, Cols: 80}); !api.IsCode(err, api.CodeInvalidRequest) {
		t.Error(err)
	}
	s := onTTY(t, p, "dash")
	if _, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: 0, Cols: 80}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Error(err)
	}
	text := "x"
	if _, err := p.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat", Stdin: &text}}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Error(err)
	}
	r := sh(t, p, s, "true")
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "x"}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Error(err)
	}
}

// TestTTYWindowAndBackground: a program is notified of a new size, and output
// between commands is not lost.
func TestTTYWindowAndBackground(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "bash")
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `trap 'stty size; exit' WINCH; echo go; while :; do sleep 0.01; done`}, YieldMS: 1})
	awaitText(t, p, r.ExecID, "go")
	if _, err := p.Resize(t.Context(), api.SessionResizeParams{SessionID: s.SessionID, Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, p, r.ExecID, "50 132")
	r = run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Wait: true, Command: `(sleep 0.1; echo later) & echo now`}})
	awaitText(t, p, r.ExecID, "later")
}

// TestScreen: what a person would see, and what the keys of a keyboard send.
func TestScreen(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "dash")
	show := func(format api.ScreenFormat) *api.SessionScreenResult {
		t.Helper()
		r, err := p.Screen(t.Context(), api.SessionScreenParams{SessionID: s.SessionID, Format: format})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := sh(t, p, s, `printf 'one 10%%\rone 99%%\n\033[1;31mred\033[0m\n\033]0;a title\007'`)
	got := show("")
	if got.Text != "one 99%\nred" || got.Title != "a title" || got.ExecID != r.ExecID || got.Offset != r.StdoutBytes || got.Cursor.Row != 2 || got.Rows != 24 {
		t.Errorf("%+v", got)
	}
	lines := show(api.ScreenJSON).Lines
	if len(lines) != 24 || len(lines[1].Runs) != 1 || lines[1].Runs[0].Text != "red" || lines[1].Runs[0].Style == nil || !lines[1].Runs[0].Style.Bold {
		t.Errorf("%+v", lines[:3])
	}
	if ansi := show(api.ScreenANSI).Text; !strings.Contains(ansi, "one 99%") || !strings.Contains(ansi, "\x1b[") {
		t.Errorf("%q", ansi)
	}
	// A query is answered, so that a program which asks does not hang.
	answered := sh(t, p, s, `stty raw -echo min 0 time 50; printf '\033[6n'; dd bs=20 count=1 2>/dev/null | od -c | head -n 1`)
	if !strings.Contains(answered.Stdout, "033   [") {
		t.Errorf("%q", answered.Stdout)
	}
	// Keys by name, and pasted text.
	started := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `stty raw -echo; printf '\033[?2004h\033[?1hready'; dd bs=1 count=17 2>/dev/null | od -c`}, YieldMS: 1})
	awaitText(t, p, started.ExecID, "ready")
	for _, in := range []api.ExecInputParams{{Keys: []string{"up", "ctrl-c"}}, {Data: "p", Paste: true}} {
		in.ExecID = started.ExecID
		if _, err := p.Input(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	awaitText(t, p, started.ExecID, "033   O   A 003 033   [   2   0   0   ~   p 033   [   2   0   1")
	for name, in := range map[string]api.ExecInputParams{
		"no such key": {ExecID: started.ExecID, Keys: []string{"any"}},
	} {
		if _, err := p.Input(t.Context(), in); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := create(t, p, api.SessionCreateParams{})
	if _, err := p.Screen(t.Context(), api.SessionScreenParams{SessionID: plain.SessionID}); !api.IsCode(err, api.CodeInvalidRequest) {
		t.Error(err)
	}
	if _, err := p.Screen(t.Context(), api.SessionScreenParams{SessionID: s.SessionID, Format: "png"}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Error(err)
	}
}

// TestTTYGoesLast: a program on the terminal has its grace and no hangup before
// that; its last screen can still be read.
func TestTTYGoesLast(t *testing.T) {
	p := newPool(t, Config{})
	s := onTTY(t, p, "bash")
	file := t.TempDir() + "/cleaned"
	r := sh(t, p, s, `sh -c 'trap "sleep 0.2; echo up >`+file+`; exit" TERM; echo ready; while :; do sleep 0.01; done' &`)
	awaitText(t, p, r.ExecID, "ready")
	if _, err := p.Destroy(t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "up\n" {
		t.Errorf("it could not clean up: %q, %v", b, err)
	}
	if got, err := p.Screen(t.Context(), api.SessionScreenParams{SessionID: s.SessionID, Scrollback: 10}); err != nil || !strings.HasPrefix(got.Text, "ready") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTTYTwoWriters: when one of two clients that type goes away, the other is not
// cut off.
func TestTTYTwoWriters(t *testing.T) {
	p := newPool(t, Config{Grace: 100 * time.Millisecond})
	s := onTTY(t, p, "dash")
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "stty raw -echo; echo ready; sleep 100"}, YieldMS: 1})
	awaitText(t, p, r.ExecID, "ready")
	full := strings.Repeat("x", 1<<20) // more than a terminal holds: it blocks
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := p.Input(ctx, api.ExecInputParams{ExecID: r.ExecID, Data: full})
		first <- err
	}()
	impatient, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := p.Input(impatient, api.ExecInputParams{ExecID: r.ExecID, Data: full}); err == nil {
		t.Error("a terminal took a megabyte that is not read")
	}
	select {
	case err := <-first:
		t.Errorf("the first was cut off with the second: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	<-first
}
