package mcp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"image/png"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// Output to both streams is shown in the order in which it was written.
func TestStreamsAreInOrder(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		for range 20 {
			got := r.ask("run", args{"command": "echo out1; echo err1 >&2; echo out2; ls /nope; echo out3"})
			r.contains(got.text, "out1\nerr1\nout2\nls: cannot access '/nope': No such file or directory\nout3")
		}
		apart := r.ask("run", args{"command": "echo out; echo err >&2", "split": true})
		if text := r.ask("output", args{"exec": apart.exec(), "stream": "stderr"}).fields["output"]; text != "err" {
			t.Errorf("stderr alone is %q", text)
		}
		one := r.ask("run", args{"command": "echo out; echo err >&2"})
		r.contains(r.call("output", args{"exec": one.exec(), "stream": "stderr"}).text, "INVALID_PARAMS", "leave stream out")
	})
}

// A client that makes the calls that replies suggest reads everything exactly once.
func TestFollowingReadsOnce(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	got := r.ask("run", args{"command": "i=0; while [ $((i += 1)) -le 40 ]; do echo line $i; sleep 0.05; done", "wait_s": 0.2})
	read := got.fields["output"].(string)
	next := regexp.MustCompile(`it is still running: output \{"exec": "([^"]+)", "from": (\d+), "until": "exit"\}`)
	for range 100 {
		call := next.FindStringSubmatch(got.text)
		if call == nil {
			break
		}
		from, _ := strconv.ParseInt(call[2], 10, 64)
		got = r.ask("output", args{"exec": call[1], "from": from, "until": "exit", "wait_s": 0.2})
		read += "\n" + got.fields["output"].(string)
	}
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("line %d", i+1))
	}
	if lines := strings.Fields(strings.ReplaceAll(read, "line ", "line")); strings.Join(lines, " ") != strings.ReplaceAll(strings.Join(want, " "), "line ", "line") {
		t.Errorf("read %q", lines)
	}
}

// Hints and errors name only arguments that the tools have.
func TestHintsCanBeFollowed(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	r.contains(r.call("run", args{"cmd": "true"}).text, "did you mean command?")
	r.contains(r.call("run", args{"command": "true", "timeout": 3}).text, "did you mean timeout_s?")
	r.ask("run", args{"command": "true"})
	r.contains(r.call("input", args{"session": "main", "text": "y"}).text, "nothing runs", "has ended (exit 0", "open_stdin: true")
	// A program of its own handles the signal by default from its first output on; a
	// copy of the shell that has not executed it yet would ignore it.
	busy := r.ask("run", args{"command": "sh -c 'echo up; exec sleep 100'", "wait_s": 0})
	r.contains(r.ask("output", args{"exec": busy.exec(), "pattern": "up"}).text, "matched")
	r.contains(r.call("input", args{"session": "main", "text": "y"}).text, "without an open stdin", "open_stdin: true")
	r.contains(r.call("screen", args{"session": "main"}).text, "tty: true")
	// The command that runs in a session can be signalled by the session's name.
	r.contains(r.ask("stop", args{"session": "main", "signal": "INT"}).text, "sent INT")
	r.contains(r.ask("output", args{"exec": busy.exec(), "until": "exit"}).text, "exit 130")
}

// The reply says how long a command was queued behind another.
func TestQueueTimeIsReported(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	r.ask("run", args{"command": "sleep 0.6", "wait_s": 0})
	began := time.Now()
	first := r.ask("run", args{"command": "echo second"}).first()
	took := time.Since(began)
	found := regexp.MustCompile(`^exit 0 in [^,]+, after (\d+)ms in the queue · `).FindStringSubmatch(first)
	if found == nil {
		t.Fatal(first)
	}
	if ms, _ := strconv.Atoi(found[1]); ms < 100 || ms > int(took.Milliseconds()) {
		t.Errorf("a call of %s: %s", took, first)
	}
	if at := r.ask("run", args{"command": "seq 1 5000"}); at.first() == "" {
		t.Error(at.text)
	}
	found = regexp.MustCompile(`(?m)^@(\d+): 4900$`).FindStringSubmatch(r.ask("output", args{"session": "main", "search": "^4900$"}).text)
	if found == nil {
		t.Error("the search result has no line with its offset")
	}
}

// A line that is not a message gets an error reply, and the server keeps serving.
func TestALineThatIsNoMessage(t *testing.T) {
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t)
	cmd := exec.CommandContext(t.Context(), binary, "--socket", d.Socket, "mcp")
	cmd.Env = trltest.Environ(d.Dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	ping := `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for _, c := range []struct{ line, want string }{
		{"hello", `"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"id":1`},
		{"", ""},
		{`{"jsonrpc":"2.0","id":1,"meth`, `"code":-32700`},
		{`{"half":`, `"code":-32700`},
		{"42", `"code":-32600`},
		{"{}", `"code":-32600`},
		{"[]", `"code":-32600`},
		{"[" + ping + "]", `"id":7`},
		{strings.Repeat("x", 9<<20), `"code":-32600`},
		{ping, `"id":7`},
	} {
		if _, err := fmt.Fprintln(in, c.line); err != nil {
			t.Fatal(err)
		}
		if c.want == "" {
			continue
		}
		answer, err := out.ReadString('\n')
		if err != nil || !strings.Contains(answer, c.want) {
			t.Fatalf("reply to %.80q: %q, %v", c.line, answer, err)
		}
	}
	in.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server exited with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the server is still running without a client")
	}
}

// With picture, screen returns the screen as a PNG in addition to its text.
func TestScreenAsAnImage(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	r.ask("run", args{"command": `printf '\033[41mred\033[m\n'`, "tty": true})
	plain := r.ask("screen", args{})
	if plain.image != nil {
		t.Error("got an image without asking for one")
	}
	got := r.ask("screen", args{"picture": true})
	r.contains(got.text, "red")
	if got.image == nil || got.image.MIMEType != "image/png" {
		t.Fatalf("no PNG image: %+v", got.image)
	}
	img, err := png.Decode(bytes.NewReader(got.image.Data))
	if err != nil || img.Bounds().Dx() < 80*8 || len(got.image.Data) > 100_000 {
		t.Errorf("%d bytes, %v", len(got.image.Data), err)
	}
}

// Messages of the shell begin with its name, and not with the path of the script that
// TRL makes it read.
func TestMessagesNameTheShell(t *testing.T) {
	d := startDaemon(t)
	for shell, lines := range map[string][]string{
		"bash": {"bash: line 1: nosuchcmd: command not found", "bash: line 2: cd: /nope: No such file or directory"},
		"ash":  {"ash: line 1: nosuchcmd: not found", "ash: cd: line 2: can't cd to /nope: No such file or directory"},
		"dash": {"dash: 1: eval: nosuchcmd: not found", "dash: 2: cd: can't cd to /nope"},
	} {
		r := newRig(t, rigOptions{transport: overStdio, daemon: d, args: []string{"--shell", shell}})
		got := r.ask("run", args{"command": "nosuchcmd\ncd /nope; echo before; nosuchcmd", "session": shell})
		r.contains(got.text, lines...)
		found := r.ask("output", args{"exec": got.exec(), "search": "^" + regexp.QuoteMeta(lines[0]) + "$"})
		r.contains(found.text, lines[0], "1 line matches")
		if strings.Contains(got.text+found.text, "/proc/") {
			t.Errorf("%s: %s", shell, got.text)
		}
	}
}

// The reply to a command that wanted input says that it had none.
func TestEmptyStdinIsReported(t *testing.T) {
	const note = "its stdin was empty: give stdin"
	r := newRig(t, rigOptions{transport: overStdio})
	for command, reported := range map[string]bool{
		"read x; echo got $x":                true,
		"echo name; read -r name":            true,
		"python3 -c 'input()'":               true,
		"echo the input device is not a TTY": true,
		"echo a | while read x; do :; done":  false,
		"echo a | read x":                    false,
		"read x </dev/null":                  false,
		"echo read this":                     false,
	} {
		if got := r.ask("run", args{"command": command}); strings.Contains(got.text, note) != reported {
			t.Errorf("%s: %s", command, got.text)
		}
	}
	if got := r.ask("run", args{"command": "read x; echo got $x", "stdin": "y\n"}); strings.Contains(got.text, note) {
		t.Error(got.text)
	}
}

// The reply says why a command ended its shell.
func TestSetEIsExplained(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	r.ask("run", args{"command": "set -e"})
	r.contains(r.ask("run", args{"command": "false"}).text, "exit 1", "a failure under set -e, which stays on until set +e")
}

// A session that has ended takes little room in the list, below the live ones.
func TestEndedSessionsAreShort(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	for i := range 5 {
		r.ask("run", args{"command": "true", "label": fmt.Sprint("old ", i)})
	}
	r.ask("stop", args{"session": "main"})
	r.ask("run", args{"command": "true", "label": "new"})
	list := r.ask("sessions", args{}).text
	r.contains(list, "main · terminated (destroyed)", "old 4", "new")
	if strings.Contains(list, "old 3") || strings.Index(list, "terminated") < strings.Index(list, "new") {
		t.Error(list)
	}
}
