package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// pausableDaemon is a daemon that the test stops and resumes with signals.
type pausableDaemon struct {
	t      *testing.T
	daemon *trltest.Daemon
	agent  *client.Client
	pid    int // of the daemon, not of its holder
}

func newPausableDaemon(t *testing.T, d *trltest.Daemon) *pausableDaemon {
	t.Helper()
	agent := dial(t, d.Socket)
	p := &pausableDaemon{t: t, daemon: d, agent: agent, pid: daemonPID(t, agent)}
	t.Cleanup(p.resume)
	return p
}

// stop sends SIGSTOP to the daemon and waits until it is stopped.
func (p *pausableDaemon) stop() {
	p.t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; <-time.After(pollInterval) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/stat")
		if err != nil {
			p.t.Fatal(err)
		}
		if _, rest, _ := bytes.Cut(stat, []byte(") ")); bytes.HasPrefix(rest, []byte("T")) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the daemon was not stopped")
		}
	}
}

func (p *pausableDaemon) resume() { _ = syscall.Kill(p.pid, syscall.SIGCONT) }

// clientProcess is a running `trl` process.
type clientProcess struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	ended  chan struct{}
}

func (p *pausableDaemon) trl(args ...string) *clientProcess {
	p.t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		p.t.Fatal(err)
	}
	c := &clientProcess{t: p.t, name: "trl " + strings.Join(args, " "), cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	c.cmd.Env = append(trltest.Environ(p.daemon.Dir), "TRL_SOCKET="+p.daemon.Socket)
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, near, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	c.cmd.Stdout, c.out = near, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	near.Close()
	go func() {
		_ = c.cmd.Wait() // waitForExit checks the status
		close(c.ended)
	}()
	p.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
		out.Close()
	})
	return c
}

// waitForOutput waits for a line that contains want.
func (c *clientProcess) waitForOutput(want string) {
	c.t.Helper()
	if line, err := c.out.ReadString('\n'); err != nil || !strings.Contains(line, want) {
		c.t.Fatalf("%s printed %q, %v", c.name, line, err)
	}
}

func (c *clientProcess) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// waitForExit waits until the process has exited with the status and printed
// why to stderr.
func (c *clientProcess) waitForExit(status int, why string) {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Errorf("%s does not exit", c.name)
		return
	}
	if got := c.cmd.ProcessState.ExitCode(); got != status || !strings.Contains(c.stderr.String(), why) {
		c.t.Errorf("%s exited with %d and printed %q, want %d and %q", c.name, got, c.stderr.String(), status, why)
	}
}

// pollInterval is the pause between two checks of a condition.
const pollInterval = 10 * time.Millisecond

const silentDaemonText = "the daemon does not answer"

// startPausableDaemon starts a daemon that is stopped when the test ends.
func startPausableDaemon(t *testing.T, args ...string) *pausableDaemon {
	t.Helper()
	d, err := trltest.Start(trltest.Config{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the daemon's log:\n" + d.Log())
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(d.Dir)
	})
	return newPausableDaemon(t, d)
}

// awaitRunning waits until n sessions with that name run commands.
func (p *pausableDaemon) awaitRunning(n int, name string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(pollInterval) {
		list, err := p.agent.ListSessions(p.t.Context(), api.SessionListParams{State: api.StateRunning})
		if err != nil {
			p.t.Fatal(err)
		}
		found := 0
		for _, s := range list.Sessions {
			if s.Name == name {
				found++
			}
		}
		if found == n {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%d sessions named %s run commands, want %d", found, name, n)
		}
	}
}

// A client does not wait forever for the first answer of a stopped daemon, and
// needs no second signal to exit.
func TestStoppedDaemonHoldsNoClient(t *testing.T) {
	p := startPausableDaemon(t)
	shared, err := p.agent.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	running := []*clientProcess{
		p.trl("run", "-n", "--", "echo begun; exec sleep 1000"),
		p.trl("run", "-s", shared.SessionID, "--", "echo begun; exec sleep 1000"), // with stdin
	}
	for _, c := range running {
		c.waitForOutput("begun")
	}
	result := p.trl("run", "-n", "--json", "--shell", "sh", "--", "exec sleep 1000")
	p.awaitRunning(2, "trl run")
	agent := p.trl("mcp", "--no-start")
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"command":"sleep 1000"}}}`,
	} {
		fmt.Fprintln(agent.in, line)
	}
	p.awaitRunning(1, "main")
	idle := p.trl("mcp", "--no-start", "--scope", "other")
	fmt.Fprintln(idle.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	idle.waitForOutput(`"id":1`)

	p.stop()
	first := []*clientProcess{p.trl("info"), p.trl("session", "list"), p.trl("exec", "list", shared.SessionID), p.trl("mcp", "--no-start"), p.trl("session", "create")}
	alone := p.trl("run", "--", "true")
	for _, c := range append(running, result, agent) {
		c.signal(syscall.SIGTERM)
		c.waitForExit(128+int(syscall.SIGTERM), silentDaemonText)
	}
	idle.signal(syscall.SIGTERM)
	select {
	case <-idle.ended: // it had nothing to ask the daemon
	case <-time.After(patience):
		t.Errorf("%s does not exit", idle.name)
	}
	for _, c := range first {
		c.waitForExit(1, "has not answered within 10s")
	}
	alone.waitForExit(125, "has not answered within 10s")
	interrupted := p.trl("run", "--", "true")
	interrupted.signal(syscall.SIGINT)
	<-interrupted.ended
}

// A daemon that is stopped while a client waits for a cancelled command to end
// has answered before, and does not answer any more.
func TestDaemonStoppedLaterHoldsNoClient(t *testing.T) {
	p := startPausableDaemon(t, "--log-level", "debug", "--grace-ms", "60000")
	pings := func() int { return strings.Count(p.daemon.Log(), api.MethodSystemPing) }
	// A program, because a loop of the session's shell can be aborted between two
	// sleeps. It ends with the test.
	stubborn := `sh -c 'trap "" TERM; echo begun; i=0; until [ ! -d ` + t.TempDir() + ` ] || [ $((i += 1)) -gt 1200 ]; do sleep 0.1; done'`
	run := p.trl("run", "-n", "--", stubborn)
	run.waitForOutput("begun")
	before := pings()
	run.signal(syscall.SIGTERM)
	for deadline := time.Now().Add(patience); pings() == before; <-time.After(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatal("the client does not ping the daemon")
		}
	}
	select {
	case <-run.ended:
		t.Fatalf("it exited although the daemon answers: %s", run.stderr.String())
	default:
	}
	p.stop()
	run.waitForExit(128+int(syscall.SIGTERM), silentDaemonText)
}

// A daemon that pauses does not end a prompt; only ctrl-c while it does not
// answer does.
func TestPauseLeavesAPromptAlone(t *testing.T) {
	o := newTerminalRig(t)
	p := newPausableDaemon(t, o.daemon)
	alice := o.window("alice", 24, 120)
	alice.line("trl shell --shell bash --cwd /")
	alice.waitFor(`^/ \$$`)
	p.stop()
	alice.line("echo o''ne")
	alice.waitFor(`^/ \$ echo o''ne$`)
	p.resume()
	alice.waitFor(`^one\n/ \$$`) // otherwise the key may interrupt the command that is ending
	alice.keys("C-c")
	alice.waitFor(`^one\n/ \$ \^C\n/ \$$`)
	alice.line("echo tw''o")
	alice.waitFor("^two$")
	alice.line("sleep 1000")
	o.awaitProgram("sleep")
	p.stop()
	alice.keys("x", "C-c") // x is still buffered
	alice.waitFor(silentDaemonText)
	p.resume()
	alice.waitFor(`^% $`)
	alice.line("clear; echo status $?; stty -a | grep -o ' icanon'")
	alice.waitFor("^ icanon$")

	bob := o.window("bob", 24, 120)
	id := o.session(24, 80, "cat")
	bob.attach(id)
	bob.waitFor("you are typing")
	p.stop()
	bob.keys("C-c")
	bob.waitFor(silentDaemonText)
	bob.waitFor(`^% $`)
	p.resume()

	// The key may have ended the first cat.
	id = o.session(24, 80, "cat")
	for _, command := range []string{"trl shell --cwd /", "trl attach --write " + id} {
		bob.line("clear; " + command)
		bob.waitFor(`^/ \$$|you are typing`)
		pid := bob.attached()
		p.stop()
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		o.await(command+" ends", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		p.resume()
		bob.waitFor(`^% $`)
	}
}

// The log says at startup that nothing ends forgotten sessions and commands.
func TestLogSaysThatNothingEndsByItself(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says bool
	}{{nil, true}, {[]string{"--idle-ttl-ms", "3600000"}, false}, {[]string{"--default-timeout-ms", "3600000"}, false}} {
		d, err := trltest.Start(trltest.Config{Args: tc.args})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(d.Dir) })
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if says := strings.Contains(d.Log(), `"event":"no_time_limits"`); says != tc.says {
			t.Errorf("%v:\n%s", tc.args, d.Log())
		}
	}
}
