package main_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// patient is how long something immediate may take on a busy machine.
const patient = trltest.Patience

// serviceManager plays systemd: it receives the notifications of a service.
type serviceManager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newServiceManager(t *testing.T, name string) *serviceManager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &serviceManager{t: t, conn: conn}
}

// waitForMessage waits for a message with an assignment that matches the
// pattern.
func (m *serviceManager) waitForMessage(pattern string) string {
	m.t.Helper()
	wanted := regexp.MustCompile("(?m)^" + pattern + "$")
	var others []string
	for deadline := time.Now().Add(patient); ; {
		if err := m.conn.SetReadDeadline(deadline); err != nil {
			m.t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("no message matches %s; got %q: %v", pattern, others, err)
		}
		text := string(buf[:n])
		if wanted.MatchString(text) {
			return text
		}
		others = append(others, text)
	}
}

func dial(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.DialWith(t.Context(), socket, client.Options{Patience: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func daemonPID(t *testing.T, c *client.Client) int {
	t.Helper()
	var info api.SystemInfo
	if err := c.Call(t.Context(), api.MethodSystemInfo, nil, &info); err != nil {
		t.Fatal(err)
	}
	return info.PID
}

// run runs a command in a session and returns its output.
func run(t *testing.T, c *client.Client, session, command string) string {
	t.Helper()
	result, err := c.Run(t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session, Command: command}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Stdout
}

func TestServiceManager(t *testing.T) {
	for _, kind := range []string{"path", "abstract"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			name := filepath.Join(t.TempDir(), "notify")
			if kind == "abstract" {
				name = "@trl-test-" + strconv.Itoa(os.Getpid())
			}
			m := newServiceManager(t, name)
			// The watchdog is for the holder, whose pid is not known before it
			// is started: without WATCHDOG_PID it applies to any process. The
			// daemon must answer itself within a quarter of the watchdog's
			// time: on a busy machine 100 ms are too few.
			d, err := trltest.Start(trltest.Config{Env: []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=8000000"}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Kill(); os.RemoveAll(d.Dir) })
			ready := m.waitForMessage("READY=1")
			for _, want := range []string{"MAINPID=" + strconv.Itoa(d.PID), "STATUS=0 sessions idle, 0 running, on " + d.Socket} {
				if !strings.Contains(ready, want) {
					t.Errorf("%q lacks %q", ready, want)
				}
			}
			c := dial(t, d.Socket)
			s, err := c.CreateSession(t.Context(), api.SessionCreateParams{InheritEnv: api.InheritAll})
			if err != nil {
				t.Fatal(err)
			}
			m.waitForMessage("WATCHDOG=1")
			m.waitForMessage("STATUS=1 sessions idle, 0 running, on .*")
			if env := run(t, c, s.SessionID, "env"); strings.Contains(env, "NOTIFY") || strings.Contains(env, "WATCHDOG") || strings.Contains(env, "LISTEN") {
				t.Errorf("a session can reach the service manager: %s", env)
			}

			if err := syscall.Kill(daemonPID(t, c), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			again := m.waitForMessage("READY=1")
			if !strings.Contains(again, "STATUS=1 sessions idle") || !strings.Contains(again, "MAINPID="+strconv.Itoa(d.PID)) {
				t.Errorf("after a crash: %q", again)
			}
			m.waitForMessage("WATCHDOG=1")
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
			m.waitForMessage("STOPPING=1")
			for _, event := range []string{"ready", "daemon_died", "adopted", "stopping", "stopped"} {
				if !strings.Contains(d.Log(), `"event":"`+event+`"`) {
					t.Errorf("the log has no record of %s:\n%s", event, d.Log())
				}
			}
		})
	}
}

// A daemon that does not answer itself, here because its holder does not, exits
// to be replaced. The sessions stay.
func TestHungDaemonIsReplaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	m := newServiceManager(t, name)
	d, err := trltest.Start(trltest.Config{Env: []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=6000000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Kill(); os.RemoveAll(d.Dir) })
	m.waitForMessage("READY=1")
	c := dial(t, d.Socket)
	s, err := c.CreateSession(t.Context(), api.SessionCreateParams{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, s.SessionID, "x=kept")
	if err := syscall.Kill(d.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the hung daemon logs it", func() bool { return strings.Contains(d.Log(), `"event":"hung"`) })
	if err := syscall.Kill(d.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	m.waitForMessage("READY=1")
	if got := run(t, c, s.SessionID, "echo $x"); got != "kept\n" {
		t.Errorf("after the restart the session prints %q", got)
	}
	if !strings.Contains(d.Log(), "goroutine ") {
		t.Error("the log has no stack traces")
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// A daemon without sessions of its own reports too, and survives a reload.
func TestServiceManagerWithoutLocalPlace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	m := newServiceManager(t, name)
	d, err := trltest.Start(trltest.Config{Env: []string{"NOTIFY_SOCKET=" + name, "TRL_HOST_RUNTIME=off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Kill(); os.RemoveAll(d.Dir) })
	m.waitForMessage("READY=1")
	if err := syscall.Kill(d.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.waitForMessage("READY=1")
	c, err := client.DialWith(t.Context(), d.Socket, client.Options{Patience: -1}) // it would wait for a place
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateSession(t.Context(), api.SessionCreateParams{}); !api.IsCode(err, api.CodeRuntimeUnavailable) {
		t.Errorf("a session on this machine: %v", err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	m.waitForMessage("STOPPING=1")
}

// A watchdog that is set for another process is ignored.
func TestForeignWatchdog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	m := newServiceManager(t, name)
	d, err := trltest.Start(trltest.Config{Env: []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=1000", "WATCHDOG_PID=1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Kill(); os.RemoveAll(d.Dir) })
	m.waitForMessage("READY=1")
	if err := d.Stop(); err != nil { // it takes longer than the watchdog's time
		t.Error(err)
	}
	buf := make([]byte, 4096)
	if n, err := m.conn.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "STOPPING=1") {
		t.Errorf("the next message is %q, %v", buf[:n], err)
	}
}

// activate starts the binary as a service manager does that created its
// sockets: they are passed from descriptor 3 on, and LISTEN_PID is the process
// itself. before is shell code that runs first.
func activate(t *testing.T, dir, before string, files ...*os.File) (cmd *exec.Cmd, log func() string) {
	t.Helper()
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	logFile := filepath.Join(dir, "log")
	out, err := os.Create(logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd = exec.Command("sh", "-c", before+`export LISTEN_PID=$$; exec "$0" serve`, binary)
	cmd.Env = append(trltest.Environ(dir), "LISTEN_FDS="+strconv.Itoa(len(files)))
	cmd.ExtraFiles = files
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, func() string {
		text, _ := os.ReadFile(logFile)
		return string(text)
	}
}

func newDir(t *testing.T) string {
	t.Helper()
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// fileOf returns a duplicate of a listener's or a file's descriptor, to pass
// on.
func fileOf(t *testing.T, of interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	file, err := of.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestSocketActivation(t *testing.T) {
	for name, before := range map[string]string{
		"plain": "",
		// The program then executes itself once more, so that its children
		// don't inherit it.
		"with an ignored signal": "trap '' INT; ",
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			socket := filepath.Join(dir, "made by another")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: socket})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			cmd, log := activate(t, dir, before, fileOf(t, l))
			c := dial(t, socket) // the kernel queues the connection until it is served
			var info api.SystemInfo
			if err := c.Call(t.Context(), api.MethodSystemInfo, nil, &info); err != nil {
				t.Fatalf("%v\n%s", err, log())
			}
			if info.Config["socket"] != socket {
				t.Errorf("it reports the socket %v", info.Config["socket"])
			}
			if _, err := os.Stat(trltest.SocketIn(dir)); err == nil {
				t.Error("it created another socket")
			}
			s, err := c.CreateSession(t.Context(), api.SessionCreateParams{InheritEnv: api.InheritAll})
			if err != nil {
				t.Fatal(err)
			}
			if env := run(t, c, s.SessionID, "env"); strings.Contains(env, "LISTEN_") {
				t.Errorf("a session inherits LISTEN_ variables: %s", env)
			}
			if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got := run(t, c, s.SessionID, "echo on"); got != "on\n" {
				t.Errorf("after a crash: %q", got)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, log())
			}
			if _, err := os.Stat(socket); err != nil {
				t.Errorf("it removed a socket that it did not create: %v", err)
			}
		})
	}
}

// A TCP socket that is passed serves HTTP, which still needs a token.
func TestWebActivation(t *testing.T) {
	dir := newDir(t)
	unixSocket, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	files := []*os.File{fileOf(t, tcp), fileOf(t, unixSocket)}
	cmd, log := activate(t, dir, "", files...)
	if err := cmd.Wait(); err == nil || !strings.Contains(log(), "trl token create") {
		t.Errorf("without a token: %v\n%s", err, log())
	}
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	create := exec.Command(binary, "token", "create", "--scope", "read")
	create.Env = trltest.Environ(dir)
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd, log = activate(t, dir, "", files...)
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+tcp.Addr().String()+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%v\n%s", err, log())
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log())
	}
}

func TestActivationRefused(t *testing.T) {
	dir := newDir(t)
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "d")})
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	listening, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "l")})
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := []*os.File{os.NewFile(uintptr(pair[0]), "one end"), os.NewFile(uintptr(pair[1]), "the other")}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range append(ends, file) {
			f.Close()
		}
	})
	for name, c := range map[string]struct {
		files []*os.File
		want  string
	}{
		"no socket":     {[]*os.File{file}, "descriptor 3, passed by the service manager (LISTEN_FDS), is not a socket"},
		"datagrams":     {[]*os.File{fileOf(t, datagrams)}, "is not a stream socket"},
		"not listening": {ends[:1], "does not listen"},
		"two":           {[]*os.File{fileOf(t, listening), fileOf(t, listening)}, "descriptor 4, passed by the service manager (LISTEN_FDS), is the second socket of its family"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, log := activate(t, newDir(t), "", c.files...)
			if err := cmd.Wait(); err == nil || !strings.Contains(log(), c.want) {
				t.Errorf("%v, want %q:\n%s", err, c.want, log())
			}
		})
	}
}
