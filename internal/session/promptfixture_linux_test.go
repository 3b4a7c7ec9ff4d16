package session

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// promptFixture has the files and services that prompting programs work with. They
// are in a temporary directory, except for a user, who is removed after the test.
type promptFixture struct {
	dir      string
	env      map[string]string
	guest    string // "" unless a user could be created
	password string
}

// needsOfSSH is what is needed to be asked for a password over the network.
const needsOfSSH = "root ssh sshd ssh-keygen useradd userdel chpasswd"

func newPromptFixture(t *testing.T) *promptFixture {
	t.Helper()
	fixture := &promptFixture{dir: t.TempDir()}
	silent := listen(t)
	fixture.env = map[string]string{
		"ROOM": fixture.dir, "HOME": fixture.dir,
		"SILENT": strconv.Itoa(silent.Addr().(*net.TCPAddr).Port), // never sends anything
		// The settings of the user and of the machine must not change what is
		// asked.
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
		"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e",
		"npm_config_update_notifier": "false", "npm_config_cache": filepath.Join(fixture.dir, "npm"),
		"APT_CONFIG": filepath.Join(fixture.dir, "apt", "config"), "LESS": "", "LC_ALL": "C.UTF-8",
	}
	fixture.write(t, "large.c", largeProgram())
	fixture.writeAptConfig(t)
	fixture.do(t, "", "git", "init", "-q", filepath.Join(fixture.dir, "repo"))
	for _, message := range []string{"one", "two", "three"} {
		fixture.do(t, "", "git", "-C", filepath.Join(fixture.dir, "repo"), "commit", "-q", "--allow-empty", "-m", message)
	}
	if missing(needsOfSSH) == nil {
		fixture.addGuest(t)
	}
	return fixture
}

// largeProgram returns a program that takes a compiler about a second.
func largeProgram() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "int f%d(int *a, int n) { int s = %d; for (int i = 0; i < n; i++) s += a[i] * a[(i * %d) %% n]; return s; }\n", i, i, i+1)
	}
	return b.String()
}

// writeAptConfig makes a separate root for apt: nothing is installed there, and
// what is requested has a dependency, so that apt asks.
func (fixture *promptFixture) writeAptConfig(t *testing.T) {
	t.Helper()
	const fields = "Architecture: all\nVersion: 1\nMaintainer: tester <tester@example.org>\nFilename: %s.deb\nSize: 1\nSHA256: %064d\nDescription: nothing\n"
	fixture.write(t, "apt/Packages", fmt.Sprintf("Package: wanted\nDepends: needed\n"+fields+"\nPackage: needed\n"+fields, "wanted", 1, "needed", 2))
	fixture.write(t, "apt/status", "")
	for _, dir := range []string{"etc", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(fixture.dir, "apt", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fixture.write(t, "apt/config", strings.ReplaceAll(`Dir::Etc "ROOM/apt/etc";
Dir::State "ROOM/apt/state";
Dir::State::status "ROOM/apt/status";
Dir::Cache "ROOM/apt/cache";
Dir::Log "ROOM/apt";
APT::Sources::With { "ROOM/apt/Packages"; };
Debug::NoLocking "true";
`, "ROOM", fixture.dir))
}

// addGuest creates a user with a password and no rights.
func (fixture *promptFixture) addGuest(t *testing.T) {
	t.Helper()
	name := "trl-guest-" + strconv.Itoa(os.Getpid())
	fixture.do(t, "", "useradd", "--no-create-home", "--home-dir", "/", "--shell", "/bin/sh", name)
	t.Cleanup(func() {
		if out, err := exec.Command("userdel", name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	fixture.guest, fixture.password = name, rand.Text()
	fixture.env["GUEST"] = name
	fixture.do(t, name+":"+fixture.password+"\n", "chpasswd")
}

// runAsGuest runs the test that calls it in another process as the guest, and sets
// a variable there.
func (fixture *promptFixture) runAsGuest(t *testing.T, variable string) {
	t.Helper()
	who, err := user.Lookup(fixture.guest)
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(who.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(who.Gid, 10, 32)
	self, err3 := os.ReadFile("/proc/self/exe")
	// The guest can't read the directory of the test.
	dir, err4 := os.MkdirTemp("", "guest-")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	if err := errors.Join(os.WriteFile(binary, self, 0o600), os.Chmod(binary, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), variable+"=1", "HOME=/", "XDG_RUNTIME_DIR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as %s: %v: %s", fixture.guest, err, out)
	}
}

// startSSH starts a server that the guest can log in to.
func (fixture *promptFixture) startSSH(t *testing.T, p *Pool) {
	t.Helper()
	if fixture.guest == "" {
		return
	}
	server, err := exec.LookPath("sshd")
	if err != nil {
		t.Fatal(err)
	}
	// The server chroots into this empty directory, which the package creates at
	// boot.
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(fixture.dir, "host_key")
	fixture.do(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	free := listen(t)
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	fixture.write(t, "sshd_config", fmt.Sprintf(`ListenAddress 127.0.0.1:%d
HostKey %s
PidFile none
AllowUsers %s
PasswordAuthentication yes
KbdInteractiveAuthentication no
UsePAM no
`, port, key, fixture.guest))
	fixture.write(t, "ssh_config", fmt.Sprintf(`Host guest
HostName 127.0.0.1
Port %d
User %s
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
PreferredAuthentications password
`, port, fixture.guest))
	create(t, p, api.SessionCreateParams{Argv: []string{server, "-D", "-e", "-f", filepath.Join(fixture.dir, "sshd_config")}})
	waitFor(t, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// listen opens a port that accepts connections until the test is over and never
// serves them.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (fixture *promptFixture) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(fixture.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (fixture *promptFixture) do(t *testing.T, stdin, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = os.Environ()
	for k, v := range fixture.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
