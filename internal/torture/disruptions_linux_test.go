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
	strikes int // how often it happens; 0: once, and it ends the sessions
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
	{"container restarted", inContainer, 0, func(r *rig) { engines.Docker(r).Run(r.T, "restart", "--time", "0", r.container) }},
	{"holder in the place killed", inContainer, 0, func(r *rig) { r.killThere("serve") }},
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
// be used afterwards. Those that must end are reported as gone.
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
					if d.strikes > 0 {
						r.disrupt(d.strikes, d.strike)
					} else {
						r.end(d.strike)
					}
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
func killDaemonThere(r *rig) { r.killThere("be-daemon") }

// killThere kills the process of TRL in the container with this first argument, and a
// copy of it that is about to become another program.
func (r *rig) killThere(word string) {
	r.Helper()
	killed := 0
	for _, line := range processes(r.T, r.container) {
		var pid int
		if fields := strings.Fields(line); len(fields) > 3 && fields[3] == word {
			if _, err := fmt.Sscan(fields[0], &pid); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		r.Errorf("there is no process %s in the container to kill", word)
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
