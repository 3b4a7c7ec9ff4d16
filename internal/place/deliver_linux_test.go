package place

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// shell is a toolbox for a place on this machine.
type shell []string

func (s shell) command(script string, args ...string) []string {
	return slices.Concat(s, []string{"-c", script, "sh"}, args)
}

func (s shell) explain(err error, stderr string) *refusal { return prefix(s).explain(err, stderr) }

// localPlace returns a place on this machine in a home directory of its own, and the
// place's directory. PATH has only the programs that are named, if any are.
func localPlace(t testing.TB, sh shell, tools ...string) (*delivered, string) {
	t.Helper()
	if _, err := exec.LookPath(sh[0]); err != nil {
		trltest.Need(t, err)
	}
	home, err := os.MkdirTemp("", "home-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	if len(tools) > 0 {
		path = filepath.Join(home, "bin")
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			program, err := exec.LookPath(tool)
			if err == nil {
				err = os.Symlink(program, filepath.Join(path, tool))
			}
			trltest.Need(t, err)
		}
	}
	p := &delivered{testDelivery(t), target{
		name: "k7", id: "T" + trltest.Token(), node: "k7", runtime: "cmd:here", address: "here",
		env: []string{"HOME=" + home, "PATH=" + path, "TRL_MAX_SESSIONS=nonsense", "TMPDIR=" + home},
	}, sh}
	t.Cleanup(func() {
		if err := p.remove(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(home, ".cache")); err == nil {
			t.Error("remove left .cache")
		}
		_ = os.RemoveAll(home)
	})
	return p, filepath.Join(home, ".cache", p.target.directory())
}

var shells = map[string]shell{"dash": {"dash"}, "bash": {"bash"}, "busybox": {"busybox", "sh"}}

func TestDelivery(t *testing.T) {
	for name, sh := range shells {
		t.Run(name, func(t *testing.T) {
			p, dir := localPlace(t, sh)
			_, first := mustConnect(t, p)
			if first.Node != "k7" {
				t.Errorf("hello %+v", first)
			}
			own, _ := p.programs.of(p.arch(p.target))
			if text, err := os.ReadFile(filepath.Join(dir, "digest")); err != nil || strings.TrimSpace(string(text)) != own.digest {
				t.Errorf("digest %q, %v", text, err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info, err)
			}
			if _, again := mustConnect(t, p); again.Boot != first.Boot {
				t.Error("the second connection started another daemon")
			}
			if err := p.remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Error("the directory is still there:", err)
			}
			if _, after := mustConnect(t, p); after.Boot == first.Boot {
				t.Error("remove left the daemon")
			}
		})
	}
}

// TestDeliveryFewTools delivers to a place that has no gzip, and to one that has
// hardly anything.
func TestDeliveryFewTools(t *testing.T) {
	for name, tools := range map[string][]string{
		"no gzip": {"sh", "uname", "cat", "chmod", "mkdir", "mv", "rm", "rmdir", "wc", "env", "sed", "df"},
		"no sed":  {"sh", "uname", "cat", "chmod", "mkdir", "mv", "rm", "rmdir", "wc"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := localPlace(t, shell{"dash"}, tools...)
			if name == "no sed" { // which removes settings from the environment
				p.target.env = p.target.env[:2]
			}
			mustConnect(t, p)
		})
	}
}

// TestDeliveryAtOnce connects at once to a place that has nothing: all reach the same
// daemon.
func TestDeliveryAtOnce(t *testing.T) {
	p, dir := localPlace(t, shell{"dash"})
	connectAtOnce(t, p, 4)
	left, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if !strings.HasPrefix(filepath.Base(name), "s.sock") {
			t.Error("left behind:", name)
		}
	}
}

// TestDeliveryReplaces finds an earlier program in the place: the daemon goes on as
// this one, with its sessions.
func TestDeliveryReplaces(t *testing.T) {
	p, _ := localPlace(t, shell{"busybox", "sh"})
	conn, before := mustConnect(t, p)
	line, err := conn.Call(t.Context(), peer.Request{Method: api.MethodSessionCreate, Params: api.SessionCreateParams{}}, nil)
	if err != nil || peer.Decode(api.MethodSessionCreate, line, nil) != nil {
		t.Fatalf("%s, %v", line, err)
	}
	other, err := trltest.OtherBinary()
	if err != nil {
		t.Fatal(err)
	}
	p.delivery = newDelivery()
	p.programs.executable, p.programs.readable = other, other
	_, after := mustConnect(t, p)
	if after.Version != trltest.OtherVersion || after.Boot != before.Boot || after.Digest == before.Digest {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestDeliveryKeeps has a program that does not run there: the earlier one goes on.
func TestDeliveryKeeps(t *testing.T) {
	p, _ := localPlace(t, shell{"dash"})
	_, before := mustConnect(t, p)
	broken := filepath.Join(t.TempDir(), "trl")
	if err := os.WriteFile(broken, []byte("#!/nonexistent\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.delivery = newDelivery()
	p.programs.executable, p.programs.readable = broken, broken
	if _, after := mustConnect(t, p); after.Boot != before.Boot {
		t.Error("another daemon")
	}
	if err := p.upgrade(t.Context()); err == nil {
		t.Error("an upgrade to a program that does not run succeeded")
	}
	if _, after := mustConnect(t, p); after.Boot != before.Boot {
		t.Error("another daemon after an upgrade that failed")
	}
}

// TestDeliveryRestarts kills the holder and the daemon of a place: the stale socket
// does not count as a daemon.
func TestDeliveryRestarts(t *testing.T) {
	p, dir := localPlace(t, shell{"dash"})
	_, before := mustConnect(t, p)
	text, err := os.ReadFile(filepath.Join(dir, "s.sock.lock"))
	if err != nil {
		t.Fatal(err)
	}
	holder, err := strconv.Atoi(strings.Split(strings.Fields(string(text))[1], "-")[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append([]int{holder}, pids(trltest.Descendants(holder))...) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended with another
	}
	trltest.Eventually(t, "the daemon is dead", func() bool {
		conn, err := net.Dial("unix", filepath.Join(dir, "s.sock"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if _, after := mustConnect(t, p); after.Boot == before.Boot {
		t.Error("the boot is the same")
	}
}

func pids(processes []trltest.Process) []int {
	var all []int
	for _, p := range processes {
		all = append(all, p.PID)
	}
	return all
}

// TestDeliveryNoExec has a cache that forbids programs; the next directory that
// allows them is used. Without one the refusal says so.
func TestDeliveryNoExec(t *testing.T) {
	p, dir := localPlace(t, shell{"dash"})
	cache := filepath.Dir(dir)
	mount := func(at string, flags uintptr, options string) {
		t.Helper()
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", flags, options); err != nil {
			trltest.Need(t, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
			if at == cache {
				_ = os.Remove(at)
			}
		})
	}
	mount(cache, unix.MS_NOEXEC, "")
	mustConnect(t, p)
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("left in a directory without programs: %v, %v", left, err)
	}
	if err := p.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	binary, err := os.Open(p.programs.readable) // which may be in /tmp
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	p.programs.readable = fmt.Sprintf("/proc/self/fd/%d", binary.Fd())
	clear(p.programs.known)
	for _, at := range []string{"/run", "/var/tmp", "/dev/shm", "/tmp"} {
		mount(at, unix.MS_NOEXEC, "")
	}
	wantRefusal(t, p, noExec, "can not run in")
	if err := unix.Mount("", "/tmp", "", unix.MS_REMOUNT|unix.MS_NOEXEC, "size=1m"); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, p, noSpace, "KiB")
}

// TestDeliveryForeignDirectory finds a directory of another user, and a link, in
// place of its own: neither is used.
func TestDeliveryForeignDirectory(t *testing.T) {
	p, dir := localPlace(t, shell{"busybox", "sh"})
	cache := filepath.Dir(dir)
	run := "/run/" + filepath.Base(dir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		trltest.Need(t, err)
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, run); err != nil {
		t.Fatal(err)
	}
	mustConnect(t, p)
	for _, foreign := range []string{dir, elsewhere} {
		if left, err := os.ReadDir(foreign); err != nil || len(left) > 0 {
			t.Errorf("written to %s: %v, %v", foreign, left, err)
		}
	}
	_ = os.Remove(run)
	_ = os.RemoveAll(cache)
}

// TestDeliveryIncomplete ends the transfer early.
func TestDeliveryIncomplete(t *testing.T) {
	for _, packed := range []string{"gzip", "plain"} {
		t.Run(packed, func(t *testing.T) {
			p, dir := localPlace(t, shell{"dash"})
			var text bytes.Buffer
			if packed == "gzip" {
				z := gzip.NewWriter(&text)
				if _, err := z.Write([]byte("half of it")); err != nil || z.Flush() != nil {
					t.Fatal(err)
				}
			} else {
				text.WriteString("half of it")
			}
			argv := p.box.command(commonScript+deliverScript, p.target.directory(), "digest", "1000000", packed)
			said, err := p.tell(t.Context(), p.target, p.box, argv, &text)
			if !because(err, unknown) || said.done != "" || !strings.Contains(err.Error(), "incomplete") {
				t.Errorf("%+v, %v", said, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestDeliveryReadsAll refuses programs, or has them already, and reads them to the end
// nevertheless: a deliverer whose write fails could take that for the reason.
func TestDeliveryReadsAll(t *testing.T) {
	for name, sh := range shells {
		t.Run(name, func(t *testing.T) {
			p, dir := localPlace(t, sh)
			for _, c := range []struct{ digest, size, packed, word string }{
				{"digest", "1000000000000000", "plain", "KiB left"},
				{"digest", "1000000", "gzip", "incomplete"},
				{"delivered", "1000000", "plain", "delivered"},
			} {
				if c.word == "delivered" {
					if err := errors.Join(
						os.MkdirAll(dir, 0o700),
						os.WriteFile(filepath.Join(dir, "trl"), nil, 0o700),
						os.WriteFile(filepath.Join(dir, "digest"), []byte(c.digest+"\n"), 0o600),
					); err != nil {
						t.Fatal(err)
					}
				}
				argv := p.box.command(commonScript+deliverScript, p.target.directory(), c.digest, c.size, c.packed)
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				var said bytes.Buffer
				cmd.Env, cmd.Stdout = p.target.env, &said
				stdin, err := cmd.StdinPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				// More than a pipe holds, so that the end is written when the script has
				// decided.
				n, err := stdin.Write(bytes.Repeat([]byte("no program"), 1e5))
				if err != nil {
					t.Errorf("%v: wrote %d bytes: %v", c, n, err)
				}
				_ = stdin.Close()
				_ = cmd.Wait() // it has refused
				if !strings.Contains(said.String(), c.word) {
					t.Errorf("%v: %q", c, said.String())
				}
			}
			if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeliveryNoStart has a daemon that does not start: its log says why.
func TestDeliveryNoStart(t *testing.T) {
	p, dir := localPlace(t, shell{"dash"})
	mustConnect(t, p)
	if err := exec.Command(filepath.Join(dir, "trl"), "stop", "--socket", filepath.Join(dir, "s.sock")).Run(); err != nil {
		t.Fatal(err)
	}
	p.target.node = "Not A Node"
	wantRefusal(t, p, unknown, "did not start", "node")
	p.target.node = "k7"
}

// TestDeliveryOtherMachine asks for programs that are not installed.
func TestDeliveryOtherMachine(t *testing.T) {
	d := testDelivery(t)
	for _, c := range []struct{ machine, system, word string }{
		{"aarch64", "Linux", "trl-linux-arm64.gz"}, {"x86_64", "Darwin", "Darwin"}, {"../../x", "Linux", "trl-linux-x.gz"},
	} {
		_, why := d.needed(target{}, []string{c.machine, c.system, "gzip"})
		if why == nil || why.reason != noArch || !strings.Contains(why.message+why.hint, c.word) {
			t.Errorf("%v: %+v", c, why)
		}
	}
	// One that is installed beside it.
	root := t.TempDir()
	d.programs.executable = filepath.Join(root, "bin", "trl")
	packed := filepath.Join(root, "libexec", "trl", "trl-linux-arm64.gz")
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	_, err := z.Write([]byte("a program"))
	if err != nil || z.Close() != nil || os.MkdirAll(filepath.Dir(packed), 0o755) != nil || os.WriteFile(packed, text.Bytes(), 0o644) != nil {
		t.Fatal(err)
	}
	p, why := d.needed(target{}, []string{"aarch64", "Linux", "gzip"})
	if why != nil || p.size != 9 {
		t.Fatalf("%+v, %v", p, why)
	}
	for compressed, want := range map[bool]string{false: "a program", true: text.String()} {
		var sent bytes.Buffer
		if err := p.send(&sent, compressed); err != nil || sent.String() != want {
			t.Errorf("%q, %v", sent.String(), err)
		}
	}
}

// TestDeliverCommand reaches a place by a command of the configuration.
func TestDeliverCommand(t *testing.T) {
	home := t.TempDir()
	r := openRegistry(t, []string{"env", "HOME=" + home, "XDG_CACHE_HOME="}, func(c *Config) {
		c.Configured["box"] = Configured{Command: c.Configured["box"].Command, Deliver: true}
	})
	r.delivery.programs = testDelivery(t).programs
	p := getBox(t, r)
	if _, err := p.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Remove(t.Context(), api.PlaceRemoveParams{Runtime: "cmd:box", Force: true}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
