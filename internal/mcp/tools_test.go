package mcp_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestToolsAreListedAndCanBeCalled(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		list, err := r.ListTools(r.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			r.resolve(tool.InputSchema)
			r.resolve(tool.OutputSchema)
			if len(tool.Description) > 300 {
				t.Errorf("%s: the description has %d bytes, which a model pays for each time", tool.Name, len(tool.Description))
			}
		}
		slices.Sort(names)
		if want := []string{"input", "output", "run", "screen", "sessions", "stop"}; !slices.Equal(names, want) {
			t.Fatalf("tools %q, want %q", names, want)
		}
		ran := r.ask("run", args{"command": "cat; echo done >&2; exit 3", "open_stdin": true, "wait_s": 0})
		r.contains(ran.first(), "running", ran.exec(), "session main")
		typed := r.untilExit(r.ask("input", args{"exec": ran.exec(), "text": "typed\n", "eof": true}))
		r.contains(typed.first(), "exit 3")
		r.contains(typed.text, "typed\n", "done")
		read := r.ask("output", args{"exec": ran.exec()})
		r.contains(read.text, "typed", "done", "ended its shell")
		r.ask("run", args{"command": "true", "tty": true})
		r.contains(r.ask("screen", args{}).first(), "session terminal", "120×40")
		r.contains(r.ask("sessions", args{}).text, "main · idle", ran.exec(), "exit 3", "cat …", "terminal · idle")
		r.contains(r.ask("stop", args{"session": "terminal"}).text, "has ended")
		r.contains(r.ask("stop", args{"exec": ran.exec()}).text, "had ended by itself (exit 3")
	})
}

func TestASessionKeepsItsState(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		dir := t.TempDir()
		r.ask("run", args{"command": "cd " + dir + "; x=42; f() { echo f$x; }"})
		got := r.ask("run", args{"command": "pwd; f; exit 7"})
		r.contains(got.text, dir, "f42")
		r.contains(r.ask("run", args{"command": "f; echo $?"}).text, "f42") // exit did not end the session
		// Another session has its own state, and starts in the agent's directory.
		other := r.ask("run", args{"command": "pwd; type f || true", "session": "other"})
		if strings.Contains(other.text, "f42") {
			t.Error(other.text)
		}
		if r.transport == overStdio {
			r.contains(other.text, r.work)
		}
		r.contains(r.ask("run", args{"command": "pwd; echo $A", "cwd": "/usr", "env": args{"A": "b c"}}).text, "/usr", "b c")
		r.contains(r.ask("run", args{"command": "pwd; echo .$A."}).text, dir, "..")
	})
}

func TestACommandGoesOnAfterItsCall(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		wait, open := trltest.Gate(t)
		began := time.Now()
		got := r.ask("run", args{"command": "echo first; " + wait + "; echo second; exit 5", "wait_s": 0.5}) // the gate is shut
		answered := time.Now()
		r.contains(got.first(), "running")
		r.contains(got.text, "first", `output {"exec": "`+got.exec()+`", "from": 6, "until": "exit"}`)
		// Another command in the same session is queued, and the reply says so.
		queued := r.ask("run", args{"command": "echo third", "wait_s": 0.1})
		r.contains(queued.text, "queued", got.exec())
		lasts := time.Since(answered)
		open()
		ended := r.ask("output", args{"exec": got.exec(), "until": "exit"})
		in, _, _ := strings.Cut(ended.first(), " · ")
		reported, err := time.ParseDuration(strings.TrimPrefix(in, "exit 5 in "))
		const rounded = 100 * time.Millisecond
		if most := time.Since(began); err != nil || reported < lasts-rounded || reported > most+rounded {
			t.Errorf("%s, want between %s and %s (%v)", in, lasts, most, err)
		}
		r.contains(ended.text, "first\nsecond")
		r.contains(r.ask("output", args{"exec": queued.exec(), "until": "exit"}).text, "exit 0", "third")
	})
}

func TestWaiting(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		got := r.ask("run", args{"command": `sleep 0.3; printf '\033[32mlistening\033[0m on 8080\n'; sleep 100`, "wait_s": 0})
		matched := r.ask("output", args{"exec": got.exec(), "pattern": `^listening on (\d+)`})
		r.contains(matched.text, "matched at offset 0: listening on 8080")
		// Earlier output matches too, and so does a prompt without a newline.
		r.contains(r.ask("output", args{"exec": got.exec(), "until": "pattern", "pattern": "listening"}).text, "matched")
		trltest.Undisturbed(t, func() error {
			began := time.Now()
			r.contains(r.ask("output", args{"exec": got.exec(), "pattern": "nothing like it", "wait_s": 0.3}).text, "nothing has matched", "running")
			r.contains(r.ask("output", args{"session": "main", "until": "idle", "idle_s": 0.2}).text, "quiet for 200ms")
			if took := time.Since(began); took > 5*time.Second {
				return fmt.Errorf("it took %s", took)
			}
			return nil
		})
		r.ask("stop", args{"exec": got.exec()})
		prompt := r.ask("run", args{"command": `printf 'name? '; sleep 100`, "session": "prompt", "wait_s": 0})
		r.contains(r.ask("output", args{"exec": prompt.exec(), "pattern": `name\? $`}).text, "matched")
		over := r.ask("run", args{"command": "echo a; exit 4", "session": "over"})
		r.contains(r.ask("output", args{"exec": over.exec(), "pattern": "never"}).text, "exit 4", "it has ended, and nothing matched")
	})
}

func TestReadingByOffset(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		// The order of writes to two pipes is unknown, so the command writes to the
		// second only after the first was read.
		wait, open := trltest.Gate(t)
		got := r.ask("run", args{"command": "seq 1 20000; " + wait + "; echo oops >&2", "wait_s": 0, "split": true})
		r.contains(r.ask("output", args{"exec": got.exec(), "pattern": "^20000$"}).text, "matched")
		open()
		got = r.ask("output", args{"exec": got.exec(), "until": "exit"})
		r.contains(got.text, "left out, from offset", `"from": `, "oops")
		// The pages together contain everything once.
		var all strings.Builder
		size := int64(got.fields["size"].(float64))
		for from := int64(0); from < size; {
			page := r.ask("output", args{"exec": got.exec(), "from": from, "stream": "stdout"})
			next := int64(page.fields["next"].(float64))
			if next <= from {
				t.Fatalf("from %d to %d", from, next)
			}
			all.WriteString(page.fields["output"].(string) + "\n")
			from = next
		}
		if lines := strings.Fields(all.String()); len(lines) != 20000 || lines[0] != "1" || lines[19999] != "20000" {
			t.Errorf("%d lines", len(lines))
		}
		r.contains(r.ask("output", args{"exec": got.exec(), "from": -40}).text, "20000", "oops")
		r.contains(r.ask("output", args{"exec": got.exec(), "stream": "stderr"}).text, "oops")
		if wrong := r.call("output", args{"exec": got.exec(), "from": size + 1}); !wrong.failed {
			t.Error(wrong.text)
		}
		found := r.ask("output", args{"exec": got.exec(), "search": "^1999[0-9]$", "context": 1})
		r.contains(found.text, "19989", "19990", "19999", "20000", "10 lines match")
		r.contains(r.ask("output", args{"exec": got.exec(), "search": "7"}).text, "lines match; the first", "continue with")
		r.contains(r.ask("output", args{"exec": got.exec(), "search": "(?i)OOPS"}).text, "1 line matches")
		r.contains(r.ask("output", args{"exec": got.exec(), "search": "none"}).text, "no line matches")
		wrong := r.call("output", args{"exec": got.exec(), "search": "("})
		r.contains(wrong.text, "not a valid regular expression", "RE2")
	})
}

// A search continues where the last one stopped, and finds each line once.
func TestSearchInPieces(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	got := r.ask("run", args{"command": "seq -f 'needle %.0f' 1 3000"})
	found := 0
	for from := int64(0); ; {
		part := r.ask("output", args{"exec": got.exec(), "search": "needle", "from": from})
		found += len(part.fields["found"].([]any))
		if part.bytes > 16<<10 {
			t.Errorf("%d bytes", part.bytes)
		}
		if !strings.Contains(part.text, "continue with") {
			break
		}
		next := int64(part.fields["next"].(float64))
		if next <= from {
			t.Fatalf("from %d to %d", from, next)
		}
		from = next
	}
	if found != 3000 {
		t.Errorf("found %d lines", found)
	}
}

func TestATerminal(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		got := r.ask("run", args{"command": `read -p 'Go on? [y/N] ' x; echo "got $x"; tty`, "tty": true})
		r.contains(got.first(), "running", "session terminal")
		r.contains(got.text, "Go on? [y/N]", "waits for input", `input {"exec": "`+got.exec()+`"`)
		r.contains(r.ask("sessions", args{}).text, "waits for input")
		y := args{"exec": got.exec(), "text": "y", "keys": []string{"enter"}}
		r.contains(r.untilExit(r.ask("input", y)).text, "exit 0", "got y", "/dev/pts/")
		r.eventuallyReplies(func() string { // and the reply of input has it all
			y["exec"] = r.ask("run", args{"command": `read -p 'Go on? [y/N] ' x; echo "got $x"; tty`, "tty": true}).exec()
			return r.ask("input", y).text
		}, "exit 0", "got y", "/dev/pts/")
		repl := r.ask("run", args{"command": "python3 -q", "tty": true})
		r.contains(repl.text, ">>>", "waits for input")
		r.eventuallyReplies(func() string { return r.ask("input", args{"session": "terminal", "text": "6*7\n"}).text }, "42", ">>>")
		r.eventually("the program waits again", func() bool { return strings.Contains(r.ask("screen", args{}).text, "waits for input") })
		r.contains(r.ask("screen", args{}).text, "42", ">>>", "waits for input")
		r.contains(r.untilExit(r.ask("input", args{"session": "terminal", "keys": []string{"ctrl-d"}})).first(), "exit 0")
		if wrong := r.call("run", args{"command": "true", "session": "main", "tty": true}); wrong.failed {
			t.Error("a new session was refused a terminal:", wrong.text)
		}
		r.ask("run", args{"command": "true", "session": "pipes"})
		r.contains(r.call("run", args{"command": "true", "session": "pipes", "tty": true}).text, "has no terminal", "another session name")
	})
}

func TestStop(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		l.Close()
		got := r.ask("run", args{"command": "python3 -u -m http.server --bind 127.0.0.1 " + port + " & trap '' TERM; (trap '' TERM; sleep 1000) & echo started"})
		r.contains(got.text, "exit 0", "started", "left running")
		r.contains(r.ask("output", args{"exec": got.exec(), "pattern": "Serving HTTP"}).text, "matched")
		r.contains(r.ask("sessions", args{}).text, "left running", "http.server")
		r.contains(r.ask("stop", args{"exec": got.exec()}).text, "have ended")
		if again, err := net.Listen("tcp", "127.0.0.1:"+port); err != nil {
			t.Error("the port is still in use:", err)
		} else {
			again.Close()
		}
		running := r.ask("run", args{"command": "trap 'echo hup' HUP; while :; do sleep 0.1; done", "session": "loop", "wait_s": 0.3})
		r.contains(r.ask("stop", args{"exec": running.exec(), "signal": "int"}).text, "sent INT")
		r.contains(r.ask("stop", args{"session": "loop"}).text, "session loop has ended")
		r.contains(r.ask("output", args{"exec": running.exec()}).first(), "cancelled")
		r.contains(r.ask("stop", args{"session": "loop"}).text, "had ended already")
		r.contains(r.call("stop", args{}).text, "either exec")
		r.contains(r.call("stop", args{"session": "missing"}).text, "no session", "sessions lists")
	})
}

func TestATimeoutIsReported(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		got := r.ask("run", args{"command": "echo begun; sleep 1000", "timeout_s": 1})
		r.contains(got.first(), "timed out")
		r.contains(got.text, "begun")
	})
}

func TestArgumentsThatAreWrong(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio})
	for _, c := range []struct {
		tool string
		args args
		want []string
	}{
		{"output", args{}, []string{`no session "main"`}},
		{"run", args{}, []string{"command is missing"}},
		{"run", args{"comand": "x"}, []string{`no argument "comand"`, "did you mean command?", "it takes command, cwd"}},
		{"run", args{"command": 5}, []string{"command must be a string"}},
		{"run", args{"command": "x", "wait_s": 51}, []string{"wait_s must be from 0 to 50"}},
		{"run", args{"command": "x", "wait_s": "long"}, []string{"wait_s must be a number"}},
		{"run", args{"command": "x", "env": args{"A": 1}}, []string{"must be"}},
		{"run", args{"command": "x", "cwd": "/nowhere"}, []string{"CWD_NOT_FOUND"}},
		{"run", args{"command": "x", "secrets": []string{"NONE"}}, []string{`no secret "NONE"`, "TRL_SECRET_NONE"}},
		{"output", args{"until": "later"}, []string{"until must be one of"}},
		{"output", args{"until": "pattern"}, []string{"needs a pattern"}},
		{"output", args{"exec": "e-nosuchexec"}, []string{"EXEC_NOT_FOUND", "the tool sessions"}},
		{"output", args{"exec": "e-x", "session": "main"}, []string{"give one of them"}},
		{"input", args{"session": "main"}, []string{"nothing to type"}},
		{"screen", args{"session": "s-nosuchone1"}, []string{"SESSION_NOT_FOUND"}},
	} {
		got := r.call(c.tool, c.args)
		if !got.failed {
			t.Errorf("%s %v did not fail: %s", c.tool, c.args, got.text)
		}
		r.contains(got.text, c.want...)
	}
	// Some models send null for an argument they leave out.
	r.contains(r.ask("run", args{"command": "echo fine", "cwd": nil, "env": nil, "timeout_s": nil}).text, "fine")
}

func TestResources(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		got := r.ask("run", args{"command": `printf '\033[31mred\033[0m\n'`})
		list, err := r.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "trl://sessions"})
		if err != nil {
			t.Fatal(err)
		}
		r.contains(list.Contents[0].Text, got.exec(), `"session": "main"`)
		output, err := r.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "trl://execs/" + got.exec() + "/output"})
		if err != nil {
			t.Fatal(err)
		}
		if text := output.Contents[0].Text; text != "red" {
			t.Errorf("%q", text)
		}
		if _, err := r.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "trl://execs/e-nosuchexec/output"}); err == nil {
			t.Error("reading the output of an unknown exec succeeded")
		}
	})
}

// Text-only replies contain more text, within the limit.
func TestTextAlone(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio, name: "claude-code"})
	for _, command := range []string{"seq 1 100000", "seq -f '<a href=\"%g\">' 1 10000", "head -c 1000000 /dev/zero | tr '\\0' x"} {
		got := r.ask("run", args{"command": command})
		if got.fields != nil || got.bytes > maxReply || got.bytes < maxReply/2 {
			t.Errorf("%s: %d bytes, structured %v", command, got.bytes, got.fields != nil)
		}
	}
}

// No reply exceeds the limit, however much there is to show.
func TestNoReplyIsTooLong(t *testing.T) {
	overBoth(t, func(t *testing.T, r *rig) {
		long := strings.Repeat("a very long name ", 20)
		for i := range 16 {
			r.ask("run", args{"command": "sleep 1000 " + strings.Repeat("1000 ", 300) + "& : " + long, "session": strconv.Itoa(i) + long, "wait_s": 5})
		}
		for range 30 {
			r.ask("run", args{"command": "true " + long})
		}
		for tool, a := range map[string]args{"sessions": {}, "output": {}} {
			if got := r.ask(tool, a); got.bytes > maxReply {
				t.Errorf("%s: %d bytes", tool, got.bytes)
			}
		}
		if got := r.ask("sessions", args{"session": "main"}); got.bytes > maxReply {
			t.Errorf("%d bytes", got.bytes)
		}
		full := r.ask("run", args{"command": "for i in $(seq 100); do printf '<%0118d>\\n' $i; done", "tty": true})
		if got := r.ask("screen", args{"session": "terminal", "scrollback": 40}); got.bytes > maxReply {
			t.Errorf("%d bytes after %s", got.bytes, full.first())
		}
	})
}

// The reply says which output was dropped because of a quota.
func TestOutputPastItsQuota(t *testing.T) {
	daemon := startDaemon(t, "--exec-quota-bytes", "1048576")
	r := newRig(t, rigOptions{transport: overStdio, daemon: daemon})
	got := r.ask("run", args{"command": "seq -f 'line %.0f' 1 1000000"})
	r.contains(got.text, "line 1\n", "line 1000000", "bytes left out", "were dropped because of a quota")
	cut := got.fields["left_out"].([]any)[0].(map[string]any)
	r.contains(r.ask("output", args{"exec": got.exec(), "from": cut["from"]}).text, "line ")
	r.contains(r.ask("output", args{"exec": got.exec(), "from": 700_000}).text, "were dropped")
	r.contains(r.ask("output", args{"exec": got.exec(), "search": "^line (1|1000000)$"}).text, "line 1\n", "line 1000000", "2 lines match")
}

// A session of a named node is found by its id, also after it ended.
func TestSessionOfANode(t *testing.T) {
	r := newRig(t, rigOptions{transport: overStdio, daemon: startDaemon(t, "--node", "eu1-n7")})
	made, err := r.direct().CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	got := r.ask("run", args{"command": "echo at home", "session": made.SessionID})
	r.contains(got.text, "at home")
	r.contains(r.ask("output", args{"exec": got.exec()}).text, "at home")
	r.ask("stop", args{"session": made.SessionID})
	if got := r.call("run", args{"command": "echo again", "session": made.SessionID}); !got.failed {
		t.Errorf("a session with the id of an ended one was created: %s", got.text)
	}
}
