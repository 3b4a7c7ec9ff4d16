package engines

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) {
	Enter()
	goleak.VerifyTestMain(m, goleak.Cleanup(trltest.Exit))
}

func TestContainers(t *testing.T) {
	for name, get := range map[string]func(testing.TB) *Engine{
		"docker": func(t testing.TB) *Engine { return &Docker(t).Engine },
		"podman": Podman,
	} {
		t.Run(name, func(t *testing.T) {
			e := get(t)
			for image, want := range map[string]string{Busybox: "0\n", BusyboxUser: "1000\n"} {
				if got := e.Run(t, "exec", e.Container(t, image), "sh", "-c", "true && id -u") + "\n"; got != want {
					t.Errorf("%s: id -u printed %q, want %q", image, got, want)
				}
			}
			scratch := e.Container(t, Scratch)
			e.Run(t, "exec", scratch, "/sleep", "0")
			if out, err := e.Try("exec", scratch, "sh", "-c", "true"); err == nil {
				t.Errorf("an image without a shell has one: %q", out)
			}
			limited := e.Container(t, Busybox, "--read-only", "--memory", "64m", "--pids-limit", "16")
			if out, err := e.Try("exec", limited, "touch", "/file"); err == nil {
				t.Errorf("options have no effect: %q", out)
			}
		})
	}
}

func TestDebianImage(t *testing.T) {
	for _, e := range []*Engine{&Docker(t).Engine, Podman(t)} {
		name := e.Container(t, Debian)
		if out := e.Run(t, "exec", name, "bash", "-c", ". /etc/os-release; echo $ID"); out != "debian" {
			t.Errorf("%s: the system is %q", e.Program, out)
		}
	}
}

// The plain commands that a daemon under test runs reach the same engines.
func TestEnvironment(t *testing.T) {
	d, p := Docker(t), Podman(t)
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, e := range []*Engine{&d.Engine, p} {
		name := e.Container(t, Busybox)
		cmd := exec.Command("sh", "-c", e.Program+" ps --format '{{.Names}}'")
		cmd.Env = append(trltest.Environ(dir), Env()...)
		out, err := cmd.CombinedOutput()
		if err != nil || !slices.Contains(strings.Fields(string(out)), name) {
			t.Errorf("%s ps: %v: %s does not have %s", e.Program, err, out, name)
		}
	}
}

func TestContainersOutliveDockerd(t *testing.T) {
	d := Docker(t)
	name := d.Container(t, Busybox)
	started := d.Run(t, "inspect", "--format", "{{.State.StartedAt}}", name)
	d.Kill(t)
	if _, err := d.Try("ps"); err == nil {
		t.Error("a killed dockerd answers")
	}
	d.Start(t)
	d.Restart(t)
	d.Run(t, "exec", name, "true")
	if now := d.Run(t, "inspect", "--format", "{{.State.StartedAt}}", name); now != started {
		t.Errorf("the container was started again, at %s instead of %s", now, started)
	}
}

func TestSSHAccounts(t *testing.T) {
	s := SSHD(t)
	for account, want := range map[string]string{"root": "0 ", Guest: "59998 /bin/dash\n", BashGuest: "59999 /bin/bash\n"} {
		if out, err := s.Try(account, "", "echo $(id -u) $SHELL"); err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %v: got %q, want %q", account, err, out, want)
		}
	}
	if out, err := s.Try(Guest, "", "ls -A"); err != nil || out != "" {
		t.Errorf("the guest's home: %v: %q, want nothing", err, out)
	}
	s.Restart(t)
	if _, err := s.Try(Guest, "", "true"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	s.Kill(t)
	if _, err := s.Try(Guest, "", "true"); err == nil {
		t.Error("a killed server answers")
	}
}

func TestUnknownHostKey(t *testing.T) {
	s := SSHD(t)
	t.Run("forgotten", func(t *testing.T) {
		s.ForgetHostKey(t)
		if _, err := s.Try(Guest, "", "true"); err == nil || !strings.Contains(err.Error(), "Host key verification failed") {
			t.Errorf("error is %v", err)
		}
	})
	if _, err := s.Try(Guest, "", "true"); err != nil {
		t.Error(err)
	}
}

func TestLink(t *testing.T) {
	s := SSHD(t)
	link := Link(t, SSHAddress)
	host := s.Host(t, link.Addr())
	connect := func() (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
		cmd := exec.Command("ssh", "-o", "BatchMode=yes", Guest+"@"+host, "cat")
		cmd.Stderr = t.Output()
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		return cmd, in, bufio.NewReader(out)
	}
	expect := func(out *bufio.Reader, want string) {
		t.Helper()
		if line, err := out.ReadString('\n'); line != want {
			t.Fatalf("got %q, %v; want %q", line, err, want)
		}
	}
	cmd, in, out := connect()
	io.WriteString(in, "one\n")
	expect(out, "one\n")

	link.Stall()
	io.WriteString(in, "two\n")
	arrived := make(chan string)
	go func() {
		line, _ := out.ReadString('\n')
		arrived <- line
	}()
	// A connection to a stalled link opens, and nothing arrives: sshd would speak first.
	conn, err := net.Dial("tcp", link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	select {
	case line := <-arrived:
		t.Fatalf("%q has passed a stalled link", line)
	default:
	}
	link.Restore()
	if line := <-arrived; line != "two\n" {
		t.Fatalf("after the stall: %q", line)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "SSH-2.0") {
		t.Fatalf("after the stall: %q, %v", line, err)
	}

	link.Cut()
	if err := cmd.Wait(); err == nil {
		t.Error("ssh did not notice the cut")
	}
	if _, err := s.Try(Guest, host, "true"); err == nil {
		t.Error("a cut link passes connections")
	}
	link.Restore()
	cmd, in, out = connect()
	io.WriteString(in, "three\n")
	expect(out, "three\n")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestHostilePlaces(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":7,"method":"session.list","params":{}}` + "\n"
	for kind, want := range map[Hostility][]string{ // a part of each line
		Polite:        {"system.hello", `"id":7`},
		BannerForever: {"Welcome", "Welcome", "Welcome"},
		OtherIDs:      {"system.hello", `"session_id":"s-far-1"`},
		Unasked:       {"system.hello", `"id":0`, `"id":-1`, `"id":1099511627776`, `"id":"unasked"`, `"id":null`, `"id":7`, `"id":7`},
		Events:        {"system.hello", `"session.event"`, `"session.event"`, `"session.event"`, `"session.event"`, `"exec.chunk"`, `"exec.chunk"`, `"id":7`},
		Digest:        {`"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`},
		Deaf:          {"system.hello"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			in, out := startHostile(t, kind)
			if _, err := io.WriteString(in, request); err != nil {
				t.Fatal(err)
			}
			for _, part := range want {
				line, err := out.ReadString('\n')
				if err != nil || !strings.Contains(line, part) {
					t.Fatalf("got %q, %v; want %s", line, err, part)
				}
				if kind != BannerForever && !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
		})
	}
	for kind, lines := range map[Hostility]int{LongHello: 0, LongLine: 1} {
		t.Run(string(kind), func(t *testing.T) {
			in, out := startHostile(t, kind)
			if _, err := io.WriteString(in, request); err != nil {
				t.Fatal(err)
			}
			for range lines {
				if _, err := out.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := io.Copy(io.Discard, out); n != longLine+1 || err != nil {
				t.Errorf("the line has %d bytes, %v", n, err)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		in, out := startHostile(t, Silent)
		in.Close()
		if line, err := out.ReadString('\n'); line != "" || !errors.Is(err, io.EOF) {
			t.Errorf("got %q, %v", line, err)
		}
	})
}

func startHostile(t *testing.T, kind Hostility) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	argv := HostilePlace(t, kind, IDs{Session: "s-far-1"})
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // Deaf does not end by itself
		_ = cmd.Wait()
	})
	return in, bufio.NewReader(out)
}
