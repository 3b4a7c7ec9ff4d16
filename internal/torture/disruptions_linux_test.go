package torture

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// disruption is something that happens between a client and its session.
type disruption struct {
	name    string
	place   func(*testing.T) *rig
	strikes int // how often it happens
	strike  func(*rig)
}

var disruptions = []disruption{
	{"ssh channel killed", overSSH, 4, func(r *rig) {
		r.kill(func(argv []string) bool { return isSSH(argv) && !slices.Contains(argv, "-M") })
	}},
	{"ssh master killed", overSSH, 3, func(r *rig) {
		r.kill(func(argv []string) bool { return isSSH(argv) && slices.Contains(argv, "-M") })
	}},
	{"docker exec killed", inContainer, 4, func(r *rig) {
		r.kill(func(argv []string) bool { return filepath.Base(argv[0]) == "docker" })
	}},
	{"daemon in the place killed", inContainer, 3, killDaemonThere},
	{"local daemon killed", inContainer, 3, func(r *rig) { r.kill(isDaemon) }},
	{"daemon of a chain killed", inChain, 2, killDaemonBetween},
	{"link of a chain cut", inChain, 3, func(r *rig) {
		r.link.Cut()
		r.link.Restore()
	}},
	{"container paused", inContainer, 1, func(r *rig) {
		engine := engines.Docker(r)
		engine.Run(r.T, "pause", r.container)
		r.pass(3*time.Second, 10*time.Second)
		engine.Run(r.T, "unpause", r.container)
	}},
	{"link cut", overSSH, 1, func(r *rig) {
		r.link.Cut()
		r.pass(20*time.Second, time.Minute)
		r.link.Restore()
	}},
	{"link silent", overSSH, 1, func(r *rig) {
		r.link.Stall()
		r.pass(10*time.Second, 90*time.Second)
		r.link.Restore()
	}},
	{"laptop asleep, ssh", overSSH, 1, sleepLocally},
	{"laptop asleep, docker", inContainer, 1, sleepLocally},
	{"local daemon and holder killed", inContainer, 1, loseEverythingLocal},
	{"local daemon and holder killed, ssh", overSSH, 1, loseEverythingLocal},
	{"local daemon and holder killed, podman", inPodman, 1, loseEverythingLocal},
}

// engineDisruptions are of the engines that all tests share.
var engineDisruptions = []disruption{
	{"dockerd killed", inContainer, 1, func(r *rig) {
		engine := engines.Docker(r)
		engine.Kill(r.T)
		engine.Start(r.T)
	}},
	{"sshd killed", overSSH, 2, func(r *rig) { engines.SSHD(r).Restart(r.T) }},
}

// TestDisruptions disrupts streams and commands in places, all at once and each in a
// place of its own: streams are exact, keyed commands run once, and the sessions can
// be used afterwards.
func TestDisruptions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: skipped with -short")
	}
	for _, group := range [][]disruption{disruptions, engineDisruptions} {
		var running sync.WaitGroup
		for _, d := range group {
			// Not t.Parallel, which would run as many as there are cores: most wait.
			running.Go(func() {
				t.Run(d.name, func(t *testing.T) {
					r := d.place(t)
					r.start()
					r.disrupt(d.strikes, d.strike)
				})
			})
		}
		running.Wait()
	}
}

func isSSH(argv []string) bool { return filepath.Base(argv[0]) == "ssh" }

func isDaemon(argv []string) bool { return len(argv) > 1 && argv[1] == "be-daemon" }

// pass lets time pass, which is the disruption itself; longer if the tests may take
// long.
func (r *rig) pass(short, longer time.Duration) {
	if long {
		short = longer
	}
	time.Sleep(short) // pace: how long something is away is what is tested
}

// killDaemonThere kills the daemon in the container, which its holder starts again.
func killDaemonThere(r *rig) {
	killed := 0
	for line := range strings.Lines(engines.Docker(r).Run(r.T, "top", r.container, "-eo", "pid,args")) {
		var pid int
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "be-daemon" {
			if _, err := fmt.Sscan(fields[0], &pid); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed != 1 {
		r.Errorf("%d daemons in the container were killed, want one", killed)
	}
}

// killDaemonBetween kills the daemon on the server of a chain: the sessions are behind
// it. A session of its own tells which it is: its holder is the parent of the shell.
func killDaemonBetween(r *rig) {
	s, err := r.client.NewSession(r.Context(), api.SessionCreateParams{Runtime: r.first(), Shell: "sh"})
	if err != nil {
		r.Fatal(err)
	}
	result, err := s.Run(r.Context(), "echo $PPID")
	var holder int
	if err == nil {
		_, err = fmt.Sscan(result.Stdout, &holder)
	}
	if err != nil {
		r.Fatal(err)
	}
	r.killBelow(holder, isDaemon)
}

// sleepLocally stops everything on this side of the place for a while, as a closed
// laptop does.
func sleepLocally(r *rig) {
	all := append([]trltest.Process{{PID: r.daemon.PID}}, trltest.Descendants(r.daemon.PID)...)
	for _, p := range all {
		_ = unix.Kill(p.PID, unix.SIGSTOP) // it may have exited
	}
	r.pass(5*time.Second, 30*time.Second)
	for _, p := range slices.Backward(all) {
		_ = unix.Kill(p.PID, unix.SIGCONT)
	}
}

// loseEverythingLocal kills the local daemon and its holder, so that only files are
// left, and starts others.
func loseEverythingLocal(r *rig) {
	r.daemon.Kill()
	r.daemon = startDaemon(r.T, r.daemon.Dir)
}

// TestContainerRestart ends all sessions of a place: they are reported as gone and
// never waited for, and the place can be used.
func TestContainerRestart(t *testing.T) {
	r := inContainer(t)
	r.start()
	stream, err := r.streaming.Stream(t.Context(), streamScript)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	streamed := make(chan error, 1)
	go func() { streamed <- r.follow(stream) }()
	r.await(100)
	running, err := r.running.Start(t.Context(), "sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := running.Wait(t.Context())
		waited <- err
	}()
	engines.Docker(t).Run(t, "restart", "--time", "0", r.container)
	for what, result := range map[string]chan error{"the stream": streamed, "the command": waited} {
		select {
		case err := <-result:
			if !gone(err) {
				t.Errorf("%s ended with %v, want that it is gone", what, err)
			}
		case <-time.After(trltest.Patience):
			t.Errorf("%s has not ended", what)
		}
	}
	if _, err := r.running.Run(t.Context(), "true"); !gone(err) {
		t.Errorf("a command in a session that is gone: %v", err)
	}
	list, err := r.client.ListSessions(t.Context(), api.SessionListParams{})
	if err != nil || len(list.Sessions) > 0 {
		t.Errorf("sessions %+v, %v", list, err)
	}
	if result, err := r.session().Run(t.Context(), "echo new"); err != nil || result.Stdout != "new\n" {
		t.Errorf("a new session: %+v, %v", result, err)
	}
}

// gone reports whether an error says that a session or a command does not exist.
func gone(err error) bool {
	return api.IsCode(err, api.CodeSessionNotFound) || api.IsCode(err, api.CodeExecNotFound)
}
