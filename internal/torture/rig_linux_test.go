package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// rig is a place of its own, a local daemon of its own that reaches it, and sessions
// in the place.
type rig struct {
	*testing.T
	daemon    *trltest.Daemon
	client    *client.Client
	runtime   string
	container string         // if the place is one
	link      *trltest.Proxy // if the place is reached by one
	file      string         // in the place, for the keyed commands

	streaming, running, typing *client.Session
	lines                      atomic.Int64 // received of the stream
	longestPause               time.Duration
}

// inContainer makes a rig whose place is a container.
func inContainer(t *testing.T) *rig {
	r := &rig{T: t, container: engines.Docker(t).Container(t, engines.Busybox)}
	r.runtime, r.file = "docker:"+r.container, "/tmp/keyed"
	return r
}

// inPodman makes a rig whose place is a container of podman.
func inPodman(t *testing.T) *rig {
	return &rig{T: t, runtime: "podman:" + engines.Podman(t).Container(t, engines.Busybox), file: "/tmp/keyed"}
}

// overSSH makes a rig whose place is an account of an SSH server.
func overSSH(t *testing.T) *rig {
	link := engines.Link(t, engines.SSHAddress)
	r := &rig{T: t, link: link, runtime: "ssh:" + engines.Guest + "@" + engines.SSHD(t).Host(t, link.Addr())}
	r.file = engines.Home(engines.Guest) + "/keyed-" + trltest.Token()
	return r
}

// inChain makes a rig whose place is a container of an SSH server.
func inChain(t *testing.T) *rig {
	r, server := inContainer(t), overSSH(t)
	r.link, r.runtime = server.link, strings.Replace(server.runtime, engines.Guest, "root", 1)+"/"+r.runtime
	return r
}

// start starts the daemon and the sessions.
func (r *rig) start() {
	r.Helper()
	r.daemon = startDaemon(r.T, "")
	r.client = dial(r.T, r.daemon)
	r.streaming, r.running, r.typing = r.session(), r.session(), r.session()
}

func (r *rig) session() *client.Session {
	r.Helper()
	s, err := r.client.NewSession(r.Context(), api.SessionCreateParams{Runtime: r.runtime, Shell: "sh"})
	if err != nil {
		r.Fatalf("%v\n%s", err, r.daemon.Log())
	}
	return s
}

// The stream: numbered lines over eight seconds.
const (
	streamLines  = 800
	streamScript = `i=0; while [ $i -lt 800 ]; do i=$((i+1)); echo "line $i"; [ $((i%5)) -ne 0 ] || sleep 0.05; done`
)

// streamText returns the output of the stream.
func streamText() string {
	var b strings.Builder
	for i := range streamLines {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// outage is how long anything may be out of reach: the longest of the disruptions,
// and the pause before the next attempt to connect.
const outage = 4 * time.Minute

// disrupt runs a stream, keyed commands, and a command with input, strikes meanwhile,
// and checks that nothing was lost, doubled or reordered, and that the sessions can be
// used.
func (r *rig) disrupt(strikes int, strike func(*rig)) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), outage)
	defer cancel()
	stream, err := r.streaming.Stream(ctx, streamScript)
	if err != nil {
		r.Fatal(err)
	}
	defer stream.Close()
	cat, err := r.typing.StartWith(ctx, api.ExecCommand{Command: "cat", StdinOpen: true})
	if err != nil {
		r.Fatal(err)
	}
	streamed, stop, ran, typed := make(chan error, 1), make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { typed <- r.typeTo(ctx, cat, stop) }()
	go func() { streamed <- r.follow(stream) }()
	var commands int
	go func() {
		var err error
		commands, err = r.runKeyed(ctx, stop)
		ran <- err
	}()
	for i := range strikes {
		r.await(100 + i*600/strikes)
		strike(r)
	}
	if err := <-streamed; err != nil {
		r.Errorf("the stream: %v", err)
	}
	close(stop)
	if err := <-ran; err != nil {
		r.Errorf("keyed commands: %v", err)
	}
	if err := <-typed; err != nil {
		r.Errorf("input: %v", err)
	}
	r.check(ctx, commands)
	r.remove()
	r.Logf("the longest pause of the stream took %v; %d keyed commands", r.longestPause.Round(10*time.Millisecond), commands)
}

// await waits until so many lines of the stream were received.
func (r *rig) await(lines int) {
	r.Helper()
	trltest.Eventually(r, fmt.Sprintf("line %d was received", lines), func() bool { return int(r.lines.Load()) >= lines })
}

// follow receives the stream.
func (r *rig) follow(stream *client.Stream) error {
	var got strings.Builder
	last := time.Now()
	for {
		chunk, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d lines: %w", r.lines.Load(), err)
		}
		r.longestPause, last = max(r.longestPause, time.Since(last)), time.Now()
		data, err := chunk.Content()
		if err != nil {
			return err
		}
		got.Write(data)
		r.lines.Store(int64(strings.Count(got.String(), "\n")))
	}
	if want := streamText(); got.String() != want {
		same := 0
		for same < min(got.Len(), len(want)) && got.String()[same] == want[same] {
			same++
		}
		return fmt.Errorf("%d bytes, want %d; different from byte %d on: %.100q", got.Len(), len(want), same, got.String()[same:])
	}
	if result := stream.Result(); result.ExitCode == nil || *result.ExitCode != 0 {
		return fmt.Errorf("result %+v", result)
	}
	return nil
}

// pace is the pause between two calls, so that these do not slow down the others.
const pace = 50 * time.Millisecond

// persist makes a call as a caller does that repeats it until there is an answer.
func persist[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for {
		result, err := call()
		if !api.IsCode(err, api.CodeRuntimeUnavailable) && !errors.Is(err, client.ErrNoDaemon) {
			return result, err
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return result, fmt.Errorf("still out of reach: %w", err)
		}
	}
}

// runKeyed runs commands that must each run once, and returns how many there were.
func (r *rig) runKeyed(ctx context.Context, stop <-chan struct{}) (commands int, err error) {
	for ; ; commands++ {
		select {
		case <-stop:
			return commands, nil
		case <-time.After(pace):
		}
		p := api.ExecRunParams{ExecCommand: api.ExecCommand{
			Command: fmt.Sprintf("echo %d >>%s; echo did %d", commands, r.file, commands), Key: fmt.Sprintf("key-%d", commands),
		}}
		result, err := persist(ctx, func() (*api.ExecResult, error) { return r.running.RunWith(ctx, p) })
		if err != nil {
			return commands, fmt.Errorf("command %d: %w", commands, err)
		}
		if want := fmt.Sprintf("did %d\n", commands); result.Stdout != want {
			return commands, fmt.Errorf("command %d printed %q, want %q", commands, result.Stdout, want)
		}
	}
}

// typeTo writes to the standard input of cat, and checks what it has read.
func (r *rig) typeTo(ctx context.Context, cat *client.Exec, stop <-chan struct{}) error {
	var want strings.Builder
	for i := 0; ; i++ {
		p := api.ExecInputParams{Data: fmt.Sprintln("typed", i)}
		select {
		case <-stop:
			p.Data, p.EOF = "", true
		case <-time.After(pace):
		}
		at := int64(want.Len())
		want.WriteString(p.Data)
		if i%2 == 0 { // the others have a key
			p.At = &at
		} else {
			p.Key = fmt.Sprintf("typed-%d", i)
		}
		if _, err := persist(ctx, func() (*api.ExecInputResult, error) { return cat.Input(ctx, p) }); err != nil {
			return fmt.Errorf("line %d: %w", i, err)
		}
		if p.EOF {
			break
		}
	}
	result, err := persist(ctx, func() (*api.ExecResult, error) { return cat.Wait(ctx) })
	if err == nil && result.Stdout != want.String() {
		err = fmt.Errorf("read %q, want %q", result.Stdout, want.String())
	}
	return err
}

// check checks that each keyed command ran once and that the sessions still have
// their state.
func (r *rig) check(ctx context.Context, commands int) {
	r.Helper()
	var want strings.Builder
	for i := range commands {
		fmt.Fprintln(&want, i)
	}
	for _, c := range []struct {
		session       *client.Session
		command, want string
	}{
		{r.running, "cat " + r.file + "; rm " + r.file, want.String()},
		{r.streaming, "echo $i", fmt.Sprintln(streamLines)},
	} {
		result, err := c.session.Run(ctx, c.command)
		if err != nil {
			r.Errorf("afterwards: %s: %v", c.command, err)
		} else if result.Stdout != c.want {
			r.Errorf("afterwards: %s printed %q, want %q", c.command, result.Stdout, c.want)
		}
	}
	list, err := r.client.ListSessions(ctx, api.SessionListParams{})
	if err != nil {
		r.Errorf("afterwards: %v", err)
		return
	}
	for _, s := range []*client.Session{r.streaming, r.running} {
		if !slices.ContainsFunc(list.Sessions, func(l api.Session) bool { return l.SessionID == s.ID() && l.Runtime == r.runtime }) {
			r.Errorf("afterwards: session %s is not in the list: %+v", s.ID(), list)
		}
	}
}

// remove removes the place, and checks that no process of it is left in its container.
func (r *rig) remove() {
	r.Helper()
	removePlace(r.T, r.client, r.first())
	if r.container == "" || r.first() != r.runtime { // the daemons behind a chain end by themselves, later
		return
	}
	var left []string
	defer func() {
		if r.Failed() {
			r.Log("left in the container:", left)
		}
	}()
	trltest.Eventually(r, "the container has no process of the place", func() bool {
		left = processes(r.T, r.container)
		return len(left) == 0
	})
}

// first returns the place of this daemon, without the parts of a chain behind it.
func (r *rig) first() string {
	first, _, _ := strings.Cut(r.runtime, "/")
	return first
}

// kill kills those processes below the local daemon for whose command line match
// returns true. There must be one.
func (r *rig) kill(match func(argv []string) bool) {
	r.Helper()
	r.killBelow(r.daemon.PID, match)
}

// killBelow is kill for the processes below any process.
func (r *rig) killBelow(pid int, match func(argv []string) bool) {
	r.Helper()
	killed := 0
	for _, p := range trltest.Descendants(pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err == nil && match(strings.Split(string(line), "\x00")) && unix.Kill(p.PID, unix.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		r.Errorf("there is no process to kill among %v", trltest.Descendants(pid))
	}
}

// end ends all sessions of the place by a strike: they are reported as gone and never
// waited for, and the place can be used.
func (r *rig) end(strike func(*rig)) {
	r.Helper()
	r.start()
	stream, err := r.streaming.Stream(r.Context(), streamScript)
	if err != nil {
		r.Fatal(err)
	}
	defer stream.Close()
	streamed := make(chan error, 1)
	go func() {
		_ = r.follow(stream) // it is incomplete
		_, err := stream.Receive()
		streamed <- ended(stream.Result(), err)
	}()
	r.await(100)
	running, err := r.running.Start(r.Context(), "sleep 600")
	if err != nil {
		r.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- ended(running.Wait(r.Context())) }()
	strike(r)
	for what, result := range map[string]chan error{"the stream": streamed, "the command": waited} {
		select {
		case err := <-result:
			if err != nil {
				r.Errorf("%s: %v", what, err)
			}
		case <-time.After(trltest.Patience):
			r.Errorf("%s has not ended", what)
		}
	}
	if err := ended(r.running.Run(r.Context(), "true")); err != nil {
		r.Errorf("a command in a session that is gone: %v", err)
	}
	list, err := r.client.ListSessions(r.Context(), api.SessionListParams{})
	if err != nil || slices.ContainsFunc(list.Sessions, func(s api.Session) bool { return s.State != api.StateTerminated }) {
		r.Errorf("sessions %+v, %v", list, err)
	}
	if result, err := r.session().Run(r.Context(), "echo new"); err != nil || result.Stdout != "new\n" {
		r.Errorf("a new session: %+v, %v", result, err)
	}
	r.remove()
}

// ended returns nil if a command was ended with its session, or does not exist any
// more.
func ended(result *api.ExecResult, err error) error {
	switch {
	case api.IsCode(err, api.CodeSessionNotFound), api.IsCode(err, api.CodeExecNotFound), api.IsCode(err, api.CodeSessionTerminated):
		return nil
	case result != nil && result.Cancelled:
		return nil
	}
	return fmt.Errorf("result %+v, error %w, want that it is gone", result, err)
}
