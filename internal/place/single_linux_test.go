package place

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// limited is a daemon, and a client that creates sessions in an image.
type limited struct {
	*client.Client
	t       *testing.T
	engine  *engines.Engine
	runtime string
}

// startLimited starts a daemon. At the end it must have left no container.
func startLimited(t *testing.T, engine string) *limited {
	t.Helper()
	e := bothEngines[engine](t)
	e.Image(t, engines.Busybox)
	d, err := trltest.Start(trltest.Config{Env: engines.Env()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	l := &limited{c, t, e, engine + "-image:" + engines.Busybox}
	t.Cleanup(func() {
		_ = c.Close()
		defer d.Kill()   // if it does not get there
		if !t.Failed() { // else a place may be left
			engines.AwaitPodman(t, d.PID)
		}
		if err := d.Stop(); err != nil {
			t.Errorf("stop: %v\n%s", err, d.Log())
		}
		if t.Failed() {
			t.Log(d.Log())
		}
		_ = os.RemoveAll(d.Dir)
		if left := l.containers(); len(left) > 0 {
			t.Error("left:", left)
		}
	})
	return l
}

// containers returns the names of those that places have made.
func (l *limited) containers() []string {
	out, err := l.engine.Try("ps", "-a", "--filter", "label=trl.place", "--format", "{{.Names}}")
	if err != nil {
		l.t.Error(err)
	}
	return strings.Fields(out)
}

func (l *limited) create(params api.SessionCreateParams) *api.Session {
	l.t.Helper()
	params.Runtime = l.runtime
	s, err := l.CreateSession(l.t.Context(), params)
	if err != nil {
		l.t.Fatalf("%+v", api.AsError(err))
	}
	if s.Runtime != l.runtime {
		l.t.Errorf("runtime %q, want %q", s.Runtime, l.runtime)
	}
	return s
}

func (l *limited) destroy(s *api.Session) {
	l.t.Helper()
	if _, err := l.DestroySession(l.t.Context(), api.SessionDestroyParams{SessionID: s.SessionID}); err != nil {
		l.t.Error(err)
	}
}

// run returns the result of a command.
func (l *limited) run(s *api.Session, command string) *api.ExecResult {
	l.t.Helper()
	result, err := l.Run(l.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
	if err != nil {
		l.t.Fatal(err)
	}
	return result
}

// lives checks that the session has kept its shell.
func (l *limited) lives(s *api.Session) {
	l.t.Helper()
	if got := l.run(s, "echo alive=$X."); !strings.Contains(fmt.Sprintf("%+v", got), "alive=42.") {
		l.t.Errorf("the session has lost its shell: %+v", got)
	}
}

// TestImageLimits creates sessions with limits in an image: each has a container of
// its own, which enforces them and ends with it.
func TestImageLimits(t *testing.T) {
	for engine := range bothEngines {
		t.Run(engine, func(t *testing.T) {
			l := startLimited(t, engine)
			const memory = 16 << 20
			asked := api.Limits{MemoryBytes: memory, CPU: 0.5, PIDs: 20, OpenFiles: 100, WallMS: 600_000}
			first := l.create(api.SessionCreateParams{Limits: &asked, Key: "first"})
			want := api.LimitsInForce{Limits: asked, PIDsReserved: PIDsOfTRL}
			want.MemoryBytes += MemoryOfTRL
			if first.Limits == nil || *first.Limits != want {
				t.Errorf("in force: %+v, want %+v", first.Limits, want)
			}
			if again := l.create(api.SessionCreateParams{Limits: &asked, Key: "first"}); again.SessionID != first.SessionID {
				t.Errorf("the same key made %s, first %s", again.SessionID, first.SessionID)
			}
			other := asked
			other.PIDs++
			if _, err := l.CreateSession(t.Context(), api.SessionCreateParams{Runtime: l.runtime, Limits: &other, Key: "first"}); err == nil {
				t.Error("the same key with other limits was accepted")
			}
			if got := l.containers(); len(got) != 1 {
				t.Errorf("containers %v, want 1", got)
			}
			second := l.create(api.SessionCreateParams{Limits: &api.Limits{PIDs: 20}})
			shared := l.create(api.SessionCreateParams{})
			l.create(api.SessionCreateParams{Limits: &api.Limits{OpenFiles: 100}}) // needs no container of its own
			if got := l.containers(); len(got) != 3 {
				t.Errorf("containers %v, want 3", got)
			}
			list, err := l.ListSessions(t.Context(), api.SessionListParams{Runtime: l.runtime})
			if err != nil || len(list.Sessions) != 4 || len(list.Unreachable) != 0 {
				t.Errorf("sessions %+v, %v", list, err)
			}
			places, err := l.Places(t.Context())
			if err != nil || len(places.Places) != 1 {
				t.Errorf("places %+v, %v", places, err)
			}
			l.enforced(first, shared)
			l.destroy(first)
			if got := l.containers(); len(got) != 2 {
				t.Errorf("containers %v after the first was destroyed, want 2", got)
			}
			l.survives(second)
			l.destroy(second)
			if _, err := l.RemovePlace(t.Context(), api.PlaceRemoveParams{Runtime: l.runtime, Force: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// enforced uses more than the limits of a session allow, and as much in one without.
func (l *limited) enforced(s, shared *api.Session) {
	l.t.Helper()
	const hungry = "dd if=/dev/zero of=/dev/null bs=200M count=1"
	const forks = "sh -c 'for i in $(seq 150); do sleep 2 & done; wait'"
	l.run(s, "X=42")
	for _, command := range []string{hungry, forks} {
		if got := l.run(shared, command); got.ExitCode == nil || *got.ExitCode != 0 {
			l.t.Errorf("without limits: %s: %+v", command, got)
		}
		if got := l.run(s, command); got.ExitCode != nil && *got.ExitCode == 0 {
			l.t.Errorf("with limits: %s: %+v", command, got)
		}
		l.lives(s)
	}
}

// survives kills the daemon. The next one finds the session, and destroys it.
func (l *limited) survives(s *api.Session) {
	l.t.Helper()
	l.run(s, "X=42")
	if info, err := l.SystemInfo(l.t.Context()); err != nil || syscall.Kill(info.PID, syscall.SIGKILL) != nil {
		l.t.Fatal(err)
	}
	l.lives(s)
	if info, err := l.SessionInfo(l.t.Context(), api.SessionParams{SessionID: s.SessionID}); err != nil || info.Limits == nil || info.Limits.PIDs != 20 {
		l.t.Errorf("after a restart: %+v, %v", info, err)
	}
}

// TestImageLimitRefusals asks for what can't be: no container is left.
func TestImageLimitRefusals(t *testing.T) {
	l := startLimited(t, "docker")
	for _, c := range []struct {
		name   string
		params api.SessionCreateParams
		code   api.Code
		words  string
	}{
		{"disk", api.SessionCreateParams{Limits: &api.Limits{PIDs: 20, DiskBytes: 1 << 20}}, api.CodeLimitsUnavailable, "disk_bytes"},
		{"range", api.SessionCreateParams{Limits: &api.Limits{MemoryBytes: 1}}, api.CodeInvalidParams, "memory_bytes"},
		{"image", api.SessionCreateParams{Runtime: "docker-image:localhost/nosuch:1", Limits: &api.Limits{PIDs: 20}}, api.CodeRuntimeUnavailable, "no such image"},
		{"processors", api.SessionCreateParams{Limits: &api.Limits{CPU: 8000}}, api.CodeLimitsUnavailable, "cpu"},
		{"parent", api.SessionCreateParams{Limits: &api.Limits{PIDs: 20}, Parent: "s-0000000000"}, api.CodeInvalidParams, "parent"},
	} {
		if c.params.Runtime == "" {
			c.params.Runtime = l.runtime
		}
		_, err := l.CreateSession(t.Context(), c.params)
		if err == nil {
			t.Fatalf("%s was accepted", c.name)
		}
		if refused := api.AsError(err); refused.Code != c.code || !strings.Contains(fmt.Sprintf("%+v %v", refused, refused.Details), c.words) {
			t.Errorf("%s: %+v", c.name, refused)
		}
		if left := l.containers(); len(left) > 0 {
			t.Errorf("%s: left: %v", c.name, left)
		}
	}
}
