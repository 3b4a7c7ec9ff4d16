package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// enginesVariable is set in the processes that run one test in the namespaces of
// package engines.
const enginesVariable = "TRL_AGENTS_ENGINES"

// runWithEngines runs the calling test again in a process that can use engines, and
// reports its result. There it returns false, and the test goes on. The other tests
// stay outside: they need no namespaces of processes and mounts.
func runWithEngines(t *testing.T) bool {
	t.Helper()
	if os.Getenv(enginesVariable) != "" {
		return false
	}
	if user := os.Getenv(isolatedVariable); user != "0" {
		t.Skip("only root can run engines")
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout="+(2*patience).String())
	cmd.Env = append(os.Environ(), enginesVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The death of this thread would count as that of the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip(string(out))
	default:
		t.Logf("%s", out)
	}
	return true
}

const (
	// pausedTime is how long the container is paused: longer than `trl mcp` looks for
	// a daemon that went away.
	pausedTime = 5 * time.Second
	// disturbedLines is how many lines a command writes after a disturbance.
	disturbedLines = 20
	// lineTime is the pause after each line in seconds.
	lineTime = "0.05"
	// earlyLine is written while the call that starts the command is in progress,
	// lateLine when another call waits for its end.
	earlyLine, lateLine = 1, 40
)

// TestStoryInAContainer is an agent that works in a container. While a command runs,
// the local daemon is killed with SIGKILL; while another one runs, the container is
// paused; while others run, both happen at once. The agent does not notice: every command runs once, its
// model reads the whole output of each, and the session keeps its variables and its
// directory.
func TestStoryInAContainer(t *testing.T) {
	t.Parallel()
	_, err := installed()
	trltest.Need(t, err)
	if runWithEngines(t) {
		return
	}
	began := time.Now()
	docker := engines.Docker(t)
	r := start(t, claude)
	r.write(filepath.Join(r.project, "app", "count.sh"), counter)
	name := docker.Container(t, engines.Busybox, "--volume", r.project+":/project")
	s := &containerStory{rig: r, docker: docker, container: name}
	both := func() error { return s.pause(s.killDaemon) }
	disturbances := []disturbance{
		{"kill", earlyLine, s.killDaemon},
		{"pause", lateLine, func() error { return s.pause(func() error { return nil }) }},
		{"both-early", earlyLine, both},
		{"both-late", lateLine, both},
	}

	want := []string{"begin"}
	script := []turn{func(modelInput) reply {
		return use("run", object{"place": "docker:" + name, "command": "echo begin >>/ran; cd /project/app; kept=$$; readlink /proc/$$/ns/pid"})
	}}
	for i, d := range disturbances {
		want = append(want, d.name)
		script = append(script, func(g modelInput) reply {
			if i == 0 {
				s.checkBegun(g.toolText())
			} else {
				s.checkCounted(disturbances[i-1].name, g.toolText())
			}
			s.duringCount(d)
			return use("run", object{"command": "echo " + d.name + " >>/ran; sh count.sh ../enough " + lineTime, "wait_s": 50})
		})
	}
	want = append(want, "end")
	script = append(script,
		func(g modelInput) reply {
			s.checkCounted(disturbances[len(disturbances)-1].name, g.toolText())
			return use("run", object{"command": "echo end >>/ran; [ $kept = $$ ] && pwd"})
		},
		func(g modelInput) reply {
			if text := g.toolText(); !strings.HasPrefix(text, "exit 0") || !strings.Contains(text, "\n/project/app") {
				t.Errorf("the session has not kept its shell, its variable and its directory:\n%s", text)
			}
			return use("sessions", nil)
		},
		func(g modelInput) reply {
			if text := g.toolText(); strings.Count(text, "main") != 1 || !strings.Contains(text, "docker:"+name) {
				t.Errorf("there must be one session, in the container:\n%s", text)
			}
			return say("All is done.")
		},
	)
	r.model.expect(script...)
	if out := r.run(r.begin("Count in the container.")); !strings.Contains(out, "All is done.") {
		t.Errorf("the agent does not print its model's last message:\n%s", out)
	}
	s.disturbing.Wait()
	for i, g := range r.model.checkDone() {
		for _, result := range g.results {
			if result.failed {
				t.Errorf("turn %d: the call has failed:\n%s", i, result.text)
			}
		}
	}
	if ran := strings.Fields(docker.Run(t, "exec", name, "cat", "/ran")); strings.Join(ran, " ") != strings.Join(want, " ") {
		t.Errorf("the container ran the commands %v, want %v", ran, want)
	}
	if out, err := r.command(r.trl, "place", "remove", "--force", "docker:"+name).CombinedOutput(); err != nil {
		t.Errorf("trl place remove: %v\n%s", err, out)
	}
	t.Logf("took %s", time.Since(began).Round(10*time.Millisecond))
}

// containerStory is a rig whose agent works in a container, in which the project
// directory is /project.
type containerStory struct {
	*rig
	docker     *engines.DockerEngine
	container  string
	disturbing sync.WaitGroup
}

// disturbance is what happens when a command has written a line.
type disturbance struct {
	name string
	line int
	do   func() error
}

// checkBegun checks the result of the first command.
func (s *containerStory) checkBegun(text string) {
	outside, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		s.t.Error(err)
	}
	if !strings.HasPrefix(text, "exit 0") || strings.Contains(text, outside) {
		s.t.Errorf("the first command did not run in the container:\n%s", text)
	}
}

// checkCounted checks that the model reads every line of the counter.
func (s *containerStory) checkCounted(name, text string) {
	if !strings.HasPrefix(text, "exit 0") {
		s.t.Errorf("%s: the command has not ended by itself:\n%s", name, text)
	}
	if n := checkNoGap(s.t, text); n <= disturbedLines {
		s.t.Errorf("%s: read only %d lines", name, n)
	}
}

// duringCount lets the next counter begin, disturbs it, lets it write more lines, and
// ends it. It returns at once.
func (s *containerStory) duringCount(d disturbance) {
	progress, enough := filepath.Join(s.project, "progress"), filepath.Join(s.project, "enough")
	for _, file := range []string{progress, enough} { // of the last counter, which has ended
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Error(err)
		}
	}
	s.disturbing.Go(func() {
		err := s.awaitCount(d.line)
		if err == nil {
			err = d.do()
		}
		if err == nil {
			err = s.awaitCount(s.counted() + disturbedLines)
		}
		if err := errors.Join(err, os.WriteFile(enough, nil, 0o600)); err != nil {
			s.t.Errorf("%s: %v", d.name, err)
		}
	})
}

func (s *containerStory) awaitCount(n int) error {
	for deadline := time.Now().Add(unattendedTime); s.counted() < n; time.Sleep(5 * time.Millisecond) { // poll: until it has counted that far
		if time.Now().After(deadline) {
			return fmt.Errorf("the command has written %d lines, want %d", s.counted(), n)
		}
	}
	return nil
}

// killDaemon kills the local daemon, which its holder starts again.
func (s *containerStory) killDaemon() error {
	out, err := s.command(s.trl, "info", "--json").Output()
	if err != nil {
		return fmt.Errorf("trl info: %w", err)
	}
	var info api.SystemInfo
	if err := json.Unmarshal(out, &info); err != nil {
		return err
	}
	return syscall.Kill(info.PID, syscall.SIGKILL)
}

// pause pauses the container for a while, and calls meanwhile at the beginning.
func (s *containerStory) pause(meanwhile func() error) error {
	if _, err := s.docker.Try("pause", s.container); err != nil {
		return err
	}
	err := meanwhile()
	time.Sleep(pausedTime) // pace: how long it is paused is what is tested
	_, resumeErr := s.docker.Try("unpause", s.container)
	return errors.Join(err, resumeErr)
}
