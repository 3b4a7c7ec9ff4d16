package place

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

var bothEngines = map[string]func(testing.TB) *engines.Engine{
	"docker": func(t testing.TB) *engines.Engine { return &engines.Docker(t).Engine },
	"podman": engines.Podman,
}

// place returns the transport for a runtime such as docker:web.
func placeFor(t testing.TB, runtime string) transport {
	t.Helper()
	at, err := parse(runtime)
	if err != nil {
		t.Fatal(err)
	}
	r := &Registry{cfg: Config{Log: slog.New(slog.DiscardHandler)}, delivery: testDelivery(t)}
	return at.kind.open(r, target{
		name: "k7", id: "T" + trltest.Token(), node: "k7", runtime: runtime, address: at.address,
		env: append(os.Environ(), engines.Env()...),
	})
}

// changes returns the files that a container has and its image does not.
func changes(t testing.TB, e *engines.Engine, name string) string {
	t.Helper()
	var own []string
	for line := range strings.Lines(e.Run(t, "diff", name)) {
		if strings.Contains(line, "trl") || strings.Contains(line, ".cache") {
			own = append(own, strings.TrimSpace(line))
		}
	}
	return strings.Join(own, "\n")
}

// processes returns the processes of a container, one a line, zombies too.
func processes(t testing.TB, e *engines.Engine, name string) []string {
	t.Helper()
	columns := []string{"-eo", "pid,stat,args"}
	if e.Program == "podman" {
		columns = []string{"pid", "state", "args"} // else it needs a ps in the container
	}
	return strings.Split(e.Run(t, append([]string{"top", name}, columns...)...), "\n")[1:]
}

// mustRun runs a command in a new session of the place and compares its output.
func mustRun(t testing.TB, conn *peer.Conn, command, want string) {
	t.Helper()
	var session api.Session
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionCreate, Params: api.SessionCreateParams{}}, nil)
	if err == nil {
		err = peer.Decode(api.MethodSessionCreate, line, &session)
	}
	var result api.ExecResult
	if err == nil {
		line, err = conn.Call(t.Context(), peer.Request{Method: api.MethodExecRun, Params: api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: command}}}, nil)
	}
	if err == nil {
		err = peer.Decode(api.MethodExecRun, line, &result)
	}
	if err != nil || !strings.Contains(string(line), want) {
		t.Fatalf("%s: %s, %v; want %q", command, line, err, want)
	}
}

func TestContainerPlaces(t *testing.T) {
	for engine, of := range bothEngines {
		for _, c := range []struct {
			name, image string
			options     []string
			bare        bool
		}{
			{"root", engines.Busybox, nil, false},
			{"user of the image", engines.BusyboxUser, nil, false},
			{"user", engines.Busybox, []string{"-u", "1000", "--tmpfs", "/run:exec,mode=1777"}, false},
			{"few rights", engines.Busybox, []string{"--cap-drop=ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/run:exec"}, false},
			{"no shell", engines.Scratch, nil, true},
		} {
			t.Run(engine+" "+c.name, func(t *testing.T) {
				e := of(t)
				name := e.Container(t, c.image, c.options...)
				before := processes(t, e, name)
				p := placeFor(t, engine+":"+name)
				conn, hello := mustConnect(t, p)
				if hello.Node != "k7" {
					t.Errorf("hello %+v", hello)
				}
				if !c.bare {
					mustRun(t, conn, "echo $((6*7))", "42")
				}
				if _, again := mustConnect(t, p); again.Boot != hello.Boot {
					t.Error("another daemon")
				}
				if err := p.remove(t.Context()); err != nil {
					t.Fatal(err)
				}
				trltest.Eventually(t, "only the container's own processes are left", func() bool {
					return len(processes(t, e, name)) == len(before)
				})
				if left := changes(t, e, name); left != "" {
					t.Error("left:", left)
				}
				if err := p.remove(t.Context()); err != nil {
					t.Error("removing it again:", err)
				}
			})
		}
	}
}

func TestContainerRefusals(t *testing.T) {
	for engine, of := range bothEngines {
		t.Run(engine, func(t *testing.T) {
			e := of(t)
			wantRefusal(t, placeFor(t, engine+":nosuch"), notRunning, "no such container")
			options := []string{"--read-only", "--stop-timeout", "0"}
			if engine == "podman" {
				options = append(options, "--read-only-tmpfs=false")
			}
			name := e.Container(t, engines.Busybox, options...)
			p := placeFor(t, engine+":"+name)
			wantRefusal(t, p, noExec)
			e.Run(t, "pause", name)
			wantRefusal(t, p, paused)
			e.Run(t, "unpause", name)
			e.Run(t, "stop", name)
			wantRefusal(t, p, notRunning, "not running")
			e.Run(t, "rm", name)
			if err := p.remove(t.Context()); err != nil {
				t.Error("removing the place of a container that is gone:", err)
			}
		})
	}
}

// TestContainerRestart restarts a container: a socket and a program are left of the
// daemon, and the next connection starts another.
func TestContainerRestart(t *testing.T) {
	e := bothEngines["docker"](t)
	name := e.Container(t, engines.Busybox, "--stop-timeout", "0")
	p := placeFor(t, "docker:"+name)
	conn, before := mustConnect(t, p)
	e.Run(t, "restart", name)
	<-conn.Done()
	if _, after := mustConnect(t, p); after.Boot == before.Boot {
		t.Error("the boot is the same")
	}
}

func TestImagePlaces(t *testing.T) {
	for engine, of := range bothEngines {
		for _, image := range []string{engines.Busybox, engines.BusyboxUser, engines.Scratch} {
			t.Run(engine+" "+image, func(t *testing.T) {
				e := of(t)
				e.Image(t, image)
				p := placeFor(t, engine+"-image:"+image).(*imagePlace)
				defer func() { _ = p.remove(t.Context()) }()
				wantRefusal(t, p, ended, "has ended") // before one is wanted
				p.want()
				conn, hello := mustConnect(t, p)
				if image != engines.Scratch {
					// Processes that lose their parent are reaped by the daemon.
					mustRun(t, conn, "(sleep 0.1 &) ; echo $((6*7))", "42")
				}
				again := &imagePlace{bare: p.bare, turn: make(chan struct{}, 1)} // as after a restart of this daemon
				if _, after := mustConnect(t, again); after.Boot != hello.Boot {
					t.Error("the container was not found again")
				}
				if got := e.Run(t, "ps", "--filter", "label=trl.place=k7", "--format", "{{.Names}}"); got != p.container {
					t.Errorf("containers %q, want %q", got, p.container)
				}
				trltest.Eventually(t, "no zombies are left", func() bool {
					for _, line := range processes(t, e, p.container) {
						if strings.HasPrefix(strings.Fields(line)[1], "Z") {
							return false
						}
					}
					return true
				})
				if image == engines.Scratch { // a daemon of another version goes on as it
					other, err := trltest.OtherBinary()
					if err != nil {
						t.Fatal(err)
					}
					again.programs = newPrograms()
					again.programs.executable, again.programs.readable = other, other
					if _, after := mustConnect(t, again); after.Version != trltest.OtherVersion || after.Boot != hello.Boot {
						t.Errorf("after an upgrade: %+v", after)
					}
				}
				begin := time.Now()
				e.Run(t, "kill", "--signal", "TERM", p.container)
				trltest.Eventually(t, "SIGTERM ends the container", func() bool {
					return e.Run(t, "ps", "-a", "--filter", "label=trl.place=k7", "--format", "{{.Names}}") == ""
				})
				t.Log("ended after", time.Since(begin))
				wantRefusal(t, p, ended, "has ended")
				p.want()
				if _, after := mustConnect(t, p); after.Boot == hello.Boot {
					t.Error("the boot is the same")
				}
				if err := p.remove(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := p.remove(t.Context()); err != nil {
					t.Error("removing it again:", err)
				}
				if left := e.Run(t, "ps", "-a", "--filter", "label=trl.place=k7", "--format", "{{.Names}}"); left != "" {
					t.Error("left:", left)
				}
			})
		}
	}
}

// TestImageAtOnce connects at once to an image: all reach the same container.
func TestImageAtOnce(t *testing.T) {
	e := bothEngines["docker"](t)
	e.Image(t, engines.Busybox)
	p := placeFor(t, "docker-image:"+engines.Busybox).(*imagePlace)
	defer func() { _ = p.remove(t.Context()) }()
	p.want()
	connectAtOnce(t, p, 3)
}

// TestImageUnused leaves the container of an image alone: it ends by itself.
func TestImageUnused(t *testing.T) {
	e := bothEngines["docker"](t)
	e.Image(t, engines.Busybox)
	p := placeFor(t, "docker-image:"+engines.Busybox).(*imagePlace)
	defer func() { _ = p.remove(t.Context()) }()
	p.target.ttlMS = 3000 // longer than it takes to connect
	p.want()
	conn, _ := mustConnect(t, p)
	conn.Close()
	trltest.Eventually(t, "the container is gone", func() bool {
		return e.Run(t, "ps", "-a", "--filter", "label=trl.place=k7", "--format", "{{.Names}}") == ""
	})
}

func TestImageRefusals(t *testing.T) {
	for engine, of := range bothEngines {
		t.Run(engine, func(t *testing.T) {
			of(t)
			p := placeFor(t, engine+"-image:localhost/nosuch:1").(*imagePlace)
			p.want()
			wantRefusal(t, p, refused, "no such image")
		})
	}
}

// TestContainerSessions uses a container and an image by a daemon, which delivers
// itself and finds its places again after it was killed.
func TestContainerSessions(t *testing.T) {
	e := bothEngines["docker"](t)
	name := e.Container(t, engines.Busybox)
	e.Image(t, engines.BusyboxUser)
	d, err := trltest.Start(trltest.Config{Env: engines.Env()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(); err != nil {
			t.Errorf("stop: %v\n%s", err, d.Log())
		}
		_ = os.RemoveAll(d.Dir)
	}()
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for runtime, user := range map[string]string{"docker:" + name: "0", "docker-image:" + engines.BusyboxUser: "1000"} {
		session, err := c.CreateSession(t.Context(), api.SessionCreateParams{Runtime: runtime})
		if err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
		if session.Runtime != runtime {
			t.Errorf("runtime %q, want %q", session.Runtime, runtime)
		}
		run := func(command, want string) {
			t.Helper()
			result, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: command}})
			if err != nil || !strings.Contains(fmt.Sprintf("%+v", result), want) {
				t.Errorf("%s: %+v, %v", command, result, err)
			}
		}
		run("X=$(id -u); echo user=$X.", "user="+user+".")
		if runtime == "docker:"+name { // its cgroups are read-only in it, and it is not ours
			_, err = c.CreateSession(t.Context(), api.SessionCreateParams{Runtime: runtime, Limits: &api.Limits{PIDs: 100, OpenFiles: 100}})
			if err == nil {
				t.Fatal("limits in a container that others use were accepted")
			}
			if refused := api.AsError(err); refused.Code != api.CodeLimitsUnavailable || fmt.Sprint(refused.Details["limits"]) != "[pids]" {
				t.Errorf("limits in %s: %+v", runtime, refused)
			}
		}
		limited, err := c.CreateSession(t.Context(), api.SessionCreateParams{Runtime: runtime, Limits: &api.Limits{OpenFiles: 100}})
		if err != nil || limited.Limits == nil || limited.Limits.OpenFiles != 100 {
			t.Errorf("open files in %s: %+v, %v", runtime, limited, err)
		}
		if info, err := c.SystemInfo(t.Context()); err != nil || syscall.Kill(info.PID, syscall.SIGKILL) != nil {
			t.Fatal(err)
		}
		run("echo again=$X.", "again="+user+".")
		if _, err := c.RemovePlace(t.Context(), api.PlaceRemoveParams{Runtime: runtime, Force: true}); err != nil {
			t.Error(err)
		}
	}
	if left := e.Run(t, "ps", "-a", "--filter", "label=trl.place", "--format", "{{.Names}}"); left != "" {
		t.Error("left:", left)
	}
	if left := changes(t, e, name); left != "" {
		t.Error("left:", left)
	}
}

// TestNoEngine asks a docker that does not run, and one that is not installed.
func TestNoEngine(t *testing.T) {
	p := placeFor(t, "docker:web").(*container)
	p.program = "docker"
	p.target.env = append(p.target.env, "DOCKER_HOST=unix:///nonexistent/docker.sock")
	if _, err := exec.LookPath("docker"); err != nil {
		trltest.Need(t, err)
	}
	wantRefusal(t, p, noEngine)
	p.program = "docker-that-is-not-installed"
	wantRefusal(t, p, noEngine)
}

// BenchmarkContainer compares the ways to reach a container with a bare docker exec:
// cold without the program, warm without the daemon, and hot. The ways take turns, since machines have moods; the
// metrics are medians in ms.
func BenchmarkContainer(b *testing.B) {
	e := bothEngines["docker"](b)
	name := e.Container(b, engines.Busybox)
	p := placeFor(b, "docker:"+name).(*container)
	connect := func() {
		wire, _, err := p.connect(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		_ = wire.Close()
	}
	connect()
	dir := strings.TrimSpace(e.Run(b, "exec", name, "sh", "-c", commonScript+"each_base found && echo $dir", "sh", p.target.directory()))
	stop := func() { e.Run(b, "exec", name, dir+"/trl", "stop", "--socket", dir+"/s.sock") }
	ways := []struct {
		name    string
		prepare func()
		do      func()
	}{
		{"exec", func() {}, func() { e.Run(b, "exec", name, "true") }},
		{"hot", func() {}, connect},
		{"warm", stop, connect},
		{"cold", func() {
			if err := p.remove(b.Context()); err != nil {
				b.Fatal(err)
			}
		}, connect},
	}
	times := map[string][]float64{}
	for b.Loop() {
		for _, way := range ways {
			way.prepare()
			begin := time.Now()
			way.do()
			times[way.name] = append(times[way.name], float64(time.Since(begin))/float64(time.Millisecond))
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-ms")
	}
}
