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

// told is how often the story is told with each agent.
func told() int {
	if os.Getenv("TRL_LONG") == "1" {
		return 20 // in a row: luck does not last so long
	}
	return 2 // once for each way to die
}

// server is what an agent starts in the background: it says when it listens,
// answers every connection, and notes it in its log.
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

// counter prints numbered lines, also while nobody looks, and notes in a file how
// far it is. It ends when the file exists that it is told.
const counter = `i=0
while [ ! -e "$1" ]; do i=$((i+1)); echo "line $i"; echo $i >|../progress; sleep 0.01; done
echo "counted to $i"
`

const (
	// unseen is how many lines are written while there is no agent.
	unseen = 50
	// moment is more than they take on a busy machine.
	moment = 20 * time.Second
)

// TestStory is a day of an agent: it works in a directory, starts a server, waits
// for it and reads its log; it is killed with -9 while a command runs, every other
// time with all that is below it. Resumed, it finds the session, reads what came
// meanwhile without a gap, sees the server answer, and ends it. Nothing is left.
func TestStory(t *testing.T) {
	for _, a := range []agent{claude, codex} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			var took time.Duration
			for i := range told() {
				if !t.Run(strconv.Itoa(i+1), func(t *testing.T) {
					began := time.Now()
					tell(t, a, i%2 == 0)
					took += time.Since(began)
				}) {
					return
				}
			}
			t.Logf("told %d times in a row, %s each", told(), (took / time.Duration(told())).Round(10*time.Millisecond))
		})
	}
}

func tell(t *testing.T, a agent, whole bool) {
	r := start(t, a)
	port := freePort(t)
	enough := filepath.Join(r.project, "enough")
	r.write(filepath.Join(r.project, "app", "server.py"), server)
	r.write(filepath.Join(r.project, "app", "count.sh"), counter)
	must := func(about, said string, parts ...string) {
		for _, part := range parts {
			if !strings.Contains(said, part) {
				t.Errorf("%s: the model is not told %q:\n%s", about, part, said)
			}
		}
	}

	var serving string // the id of the server's command
	r.model.expect(
		func(given) reply { return use("run", object{"command": "cd app"}) },
		func(given) reply {
			return use("run", object{"command": fmt.Sprintf("python3 server.py %d & basename \"$PWD\"", port)})
		},
		func(g given) reply {
			must("the next call is where the last one went", g.said(), "exit 0", "\napp")
			serving = execID.FindString(g.said())
			return use("output", object{"exec": serving, "until": "pattern", "pattern": "listening on [0-9]+", "wait_s": 20})
		},
		func(g given) reply {
			must("the server's log line is waited for", g.said(), fmt.Sprint("listening on ", port))
			ask(t, port)
			return use("output", object{"exec": serving, "until": "pattern", "pattern": "answer 1", "wait_s": 20})
		},
		func(g given) reply {
			must("the server's log", g.said(), "answer 1")
			// It lasts until after the death of who asked for it.
			return use("run", object{"command": "sh count.sh ../enough", "wait_s": 50})
		},
	)
	id := r.killAt("Start the server, then count.", whole, func() bool { return r.progress() > 0 })
	r.model.over()

	// Nobody who could have kept it is there; the command goes on alone.
	killed := r.progress()
	r.await(moment, "the command does not go on without the agent", func() bool { return r.progress() >= killed+unseen })
	r.write(enough, "")
	r.model.expect(
		func(given) reply { return use("sessions", nil) },
		func(g given) reply {
			must("what ran is found", g.said(), "main", "sh count.sh ../enough", "server.py")
			return use("output", object{"session": "main", "until": "exit", "wait_s": 20, "from": 0})
		},
		func(g given) reply {
			must("the command ended by itself", g.said(), "exit 0")
			if n := withoutGap(t, g.said()); n < killed+unseen {
				t.Errorf("%d lines are told; there were %d at the death of the agent, and %d came after it", n, killed, unseen)
			}
			ask(t, port)
			return use("output", object{"exec": serving, "from": 0, "until": "pattern", "pattern": "answer 2", "wait_s": 20})
		},
		func(g given) reply {
			must("the server's log goes on", g.said(), "listening on", "\nanswer 1\nanswer 2")
			return use("stop", object{"exec": serving})
		},
		func(g given) reply {
			if conn, err := net.Dial("tcp", address(port)); err == nil {
				conn.Close()
				t.Errorf("the port is not free when stop has answered:\n%s", g.said())
			}
			return use("run", object{"command": "basename \"$PWD\""})
		},
		func(g given) reply {
			must("the session is where it was", g.said(), "exit 0", "\napp")
			return say("All is done.")
		},
	)
	if out := r.run(r.resume(id, "Go on.")); !strings.Contains(out, "All is done.") {
		t.Errorf("the agent does not tell what its model said:\n%s", out)
	}
	if seen := r.model.over(); len(seen) > 0 && !strings.Contains(seen[0].body, "Start the server, then count.") {
		t.Error("what was resumed is not the same conversation")
	}
}

// killAt runs the agent until it is at a point, and then kills it: as a whole, with
// all that is below it, among which the daemon must not be; or all but `trl mcp`,
// which then sees its input end. It returns the id of the conversation.
func (r *rig) killAt(prompt string, whole bool, there func() bool) (id string) {
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
		_, _ = io.Copy(&printed, lines) // for a look when it goes wrong
	}()
	r.await(patience, "the agent does not come so far", func() bool {
		select {
		case <-drained:
			r.t.Fatalf("the agent ended early\n%s\n%s", printed.String(), stderr.String())
		default:
		}
		return there()
	})
	// By the tree of parents, as some agents and supervisors do it.
	below := trltest.Descendants(cmd.Process.Pid)
	if !slices.ContainsFunc(below, isServer) {
		r.t.Errorf("no `trl mcp` is below the agent: %v", below)
	}
	_ = cmd.Process.Kill() // it is there: nobody has waited for it
	for _, p := range below {
		if whole || !isServer(p) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended by itself
		}
	}
	<-drained
	_ = cmd.Wait() // killed, as it should be
	return id
}

// await looks until something is so.
func (r *rig) await(patience time.Duration, otherwise string, so func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			r.t.Fatal(otherwise)
		}
		time.Sleep(5 * time.Millisecond) // poll: between two looks
	}
}

// progress is how far the counter is; 0 before it runs.
func (r *rig) progress() int {
	text, err := os.ReadFile(filepath.Join(r.project, "progress"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // empty while it is written
	return n
}

// isServer tells a process `trl mcp`.
func isServer(p trltest.Process) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	words := strings.Split(string(line), "\x00")
	return err == nil && len(words) > 1 && filepath.Base(words[0]) == "trl" && words[1] == "mcp"
}

// withoutGap sees that every line that was counted is there, once and in order,
// and returns how many there are.
func withoutGap(t *testing.T, said string) int {
	t.Helper()
	next := 1
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if total, ok := strings.CutPrefix(line, "counted to "); ok {
			if total != strconv.Itoa(next-1) {
				t.Errorf("%d lines are told, and %s were written", next-1, total)
			}
			return next - 1
		}
		if number, ok := strings.CutPrefix(line, "line "); ok {
			if number != strconv.Itoa(next) {
				t.Errorf("line %s comes where line %d should:\n%s", number, next, said)
				return next - 1
			}
			next++
		}
	}
	t.Errorf("the end is missing:\n%s", said)
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

// ask connects to the server.
func ask(t *testing.T, port int) {
	t.Helper()
	conn, err := net.Dial("tcp", address(port))
	if err != nil {
		t.Errorf("the server: %v", err)
		return
	}
	defer conn.Close()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "still here\n" {
		t.Errorf("the server says %q, %v", answer, err)
	}
}
