package agents

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// storyRuns returns how often the story runs with each agent.
func storyRuns() int {
	if os.Getenv("TRL_LONG") == "1" {
		return 20 // in a row, to find rare failures
	}
	return 2 // once for each way to be killed
}

// server is a server that an agent starts in the background: it prints a line when it
// listens, answers every connection, and logs it.
const server = `import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen()
print("listening on", sys.argv[1], flush=True)
answers = 0
while True:
    connection, _ = listener.accept()
    answers += 1
    print("answer", answers, flush=True)
    connection.sendall(b"still here\n")
    connection.close()
`

// counter prints numbered lines, also without a reader, and writes the number to a
// file. It ends when the file that its first argument names exists. The second is the
// pause after each line in seconds.
const counter = `i=0
while [ ! -e "$1" ]; do i=$((i+1)); echo "line $i"; echo $i >|../progress; sleep "${2:-0.01}"; done
echo "counted to $i"
`

const (
	// unattendedLines is how many lines are written while there is no agent.
	unattendedLines = 50
	// unattendedTime is more time than they take on a busy machine.
	unattendedTime = 20 * time.Second
)

// TestStory is a day of an agent: it works in a directory, starts a server, waits
// for it and reads its log. It is killed with SIGKILL while a command runs, every
// other time with all its descendants. When resumed, it finds the session, reads the
// output written meanwhile without a gap, sees the server answer, and stops it.
// No process is left.
func TestStory(t *testing.T) {
	for _, a := range []agent{claude, codex} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			var took time.Duration
			for i := range storyRuns() {
				if !t.Run(strconv.Itoa(i+1), func(t *testing.T) {
					began := time.Now()
					runStory(t, a, i%2 == 0)
					took += time.Since(began)
				}) {
					return
				}
			}
			t.Logf("ran %d times in a row, %s each", storyRuns(), (took / time.Duration(storyRuns())).Round(10*time.Millisecond))
		})
	}
}

func runStory(t *testing.T, a agent, whole bool) {
	r := start(t, a)
	port := freePort(t)
	enough := filepath.Join(r.project, "enough")
	r.write(filepath.Join(r.project, "app", "server.py"), server)
	r.write(filepath.Join(r.project, "app", "count.sh"), counter)
	contains := func(about, text string, parts ...string) {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the model does not read %q:\n%s", about, part, text)
			}
		}
	}

	var serving string // the id of the server's command
	r.model.expect(
		func(modelInput) reply { return use("run", object{"command": "cd app"}) },
		func(modelInput) reply {
			return use("run", object{"command": fmt.Sprintf("python3 server.py %d & basename \"$PWD\"", port)})
		},
		func(g modelInput) reply {
			contains("the next call is in the directory of the last one", g.toolText(), "exit 0", "\napp")
			serving = execID.FindString(g.toolText())
			return use("output", object{"exec": serving, "until": "pattern", "pattern": "listening on [0-9]+", "wait_s": 20})
		},
		func(g modelInput) reply {
			contains("waiting for the server's log line", g.toolText(), fmt.Sprint("listening on ", port))
			ask(t, port)
			return use("output", object{"exec": serving, "until": "pattern", "pattern": "answer 1", "wait_s": 20})
		},
		func(g modelInput) reply {
			contains("the server's log", g.toolText(), "answer 1")
			// It runs until after the agent is killed.
			return use("run", object{"command": "sh count.sh ../enough", "wait_s": 50})
		},
	)
	id := r.killAt("Start the server, then count.", whole, func() bool { return r.counted() > 0 })
	r.model.checkDone()

	// The agent is gone; the command must keep running.
	killed := r.counted()
	r.waitUntil(unattendedTime, "the command does not keep running without the agent", func() bool { return r.counted() >= killed+unattendedLines })
	r.write(enough, "")
	r.model.expect(
		func(modelInput) reply { return use("sessions", nil) },
		func(g modelInput) reply {
			contains("the commands are found", g.toolText(), "main", "sh count.sh …", "server.py")
			return use("output", object{"session": "main", "until": "exit", "wait_s": 20, "from": 0})
		},
		func(g modelInput) reply {
			contains("the command ended by itself", g.toolText(), "exit 0")
			if n := checkNoGap(t, g.toolText()); n < killed+unattendedLines {
				t.Errorf("read %d lines; there were %d when the agent was killed, and %d more after it", n, killed, unattendedLines)
			}
			ask(t, port)
			return use("output", object{"exec": serving, "from": 0, "until": "pattern", "pattern": "answer 2", "wait_s": 20})
		},
		func(g modelInput) reply {
			contains("the server's log continues", g.toolText(), "listening on", "\nanswer 1\nanswer 2")
			return use("stop", object{"exec": serving})
		},
		func(g modelInput) reply {
			if conn, err := net.Dial("tcp", address(port)); err == nil {
				conn.Close()
				t.Errorf("the port is not free after stop has returned:\n%s", g.toolText())
			}
			return use("run", object{"command": "basename \"$PWD\""})
		},
		func(g modelInput) reply {
			contains("the session has kept its directory", g.toolText(), "exit 0", "\napp")
			return say("All is done.")
		},
	)
	if out := r.run(r.resume(id, "Go on.")); !strings.Contains(out, "All is done.") {
		t.Errorf("the agent does not print its model's last message:\n%s", out)
	}
	if seen := r.model.checkDone(); len(seen) > 0 && !strings.Contains(seen[0].body, "Start the server, then count.") {
		t.Error("the resumed conversation is not the same one")
	}
}

// killAt runs the agent until reached returns true, and then kills it: if whole, with
// all its descendants, which must not include the daemon; or else all of them except
// `trl mcp`, which then reads the end of its input. It returns the id of the
// conversation.
func (r *rig) killAt(prompt string, whole bool, reached func() bool) (id string) {
	r.t.Helper()
	args := r.begin(prompt)
	cmd := r.command(filepath.Join(r.bin, args[0]), args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var printed strings.Builder
	lines := bufio.NewReader(stdout)
	for id == "" {
		line, err := lines.ReadString('\n')
		if printed.WriteString(line); err != nil {
			r.t.Fatalf("the agent ended early: %v\n%s\n%s", err, printed.String(), stderr.String())
		}
		id = r.conversation(line)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(&printed, lines) // for the failure message
	}()
	r.waitUntil(patience, "the agent does not get this far", func() bool {
		select {
		case <-drained:
			r.t.Fatalf("the agent ended early\n%s\n%s", printed.String(), stderr.String())
		default:
		}
		return reached()
	})
	// Find descendants by parent, as some agents and supervisors do.
	below := trltest.Descendants(cmd.Process.Pid)
	if !slices.ContainsFunc(below, isServer) {
		r.t.Errorf("the agent has no descendant `trl mcp`: %v", below)
	}
	_ = cmd.Process.Kill() // can't fail: it was not waited for
	for _, p := range below {
		if whole || !isServer(p) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // fails if it has ended by itself
		}
	}
	<-drained
	_ = cmd.Wait() // reports the kill
	return id
}

// waitUntil polls until the condition is true, and fails with message if it is not in
// time.
func (r *rig) waitUntil(patience time.Duration, message string, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			r.t.Fatal(message)
		}
		time.Sleep(5 * time.Millisecond) // poll: until the condition is true
	}
}

// counted returns the current number of the counter; 0 before it runs.
func (r *rig) counted() int {
	text, err := os.ReadFile(filepath.Join(r.project, "progress"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // empty while it is written
	return n
}

// isServer reports whether a process is `trl mcp`.
func isServer(p trltest.Process) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	words := strings.Split(string(line), "\x00")
	return err == nil && len(words) > 1 && filepath.Base(words[0]) == "trl" && words[1] == "mcp"
}

// checkNoGap checks that every line of the counter is in the text, once and in order,
// and returns how many there are.
func checkNoGap(t *testing.T, text string) int {
	t.Helper()
	next := 1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if total, ok := strings.CutPrefix(line, "counted to "); ok {
			if total != strconv.Itoa(next-1) {
				t.Errorf("read %d lines, but %s were written", next-1, total)
			}
			return next - 1
		}
		if number, ok := strings.CutPrefix(line, "line "); ok {
			if number != strconv.Itoa(next) {
				t.Errorf("got line %s, want line %d:\n%s", number, next, text)
				return next - 1
			}
			next++
		}
	}
	t.Errorf("the end is missing:\n%s", text)
	return next - 1
}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ask connects to the server, and checks its answer.
func ask(t *testing.T, port int) {
	t.Helper()
	conn, err := net.Dial("tcp", address(port))
	if err != nil {
		t.Errorf("the server: %v", err)
		return
	}
	defer conn.Close()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "still here\n" {
		t.Errorf("the server answered %q, %v", answer, err)
	}
}
