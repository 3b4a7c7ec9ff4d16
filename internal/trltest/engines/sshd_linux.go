package engines

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// SSHServer is an sshd that root, Guest and BashGuest can log in to from root's
// account, which has their key and knows the server.
type SSHServer struct {
	server
	program string
}

// SSHHost is the name of the server for ssh, and SSHAddress its address for Link.
const (
	SSHHost    = "127.0.0.1"
	SSHAddress = SSHHost + ":22" // the network is our own
)

const (
	sshDir     = dir + "/ssh"
	clientDir  = homes + "/root/.ssh"
	knownHosts = clientDir + "/known_hosts"
)

var sshd = SSHServer{server: server{log: dir + "/sshd.log"}}

// firstSSHD makes keys and configuration, and starts sshd for the first time.
var firstSSHD = sync.OnceValue(func() (err error) {
	for _, program := range []string{"ssh", "ssh-keygen", "dash", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	// sshd requires that it is started by its full path.
	if sshd.program, err = exec.LookPath("sshd"); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(sshDir, 0o755), os.MkdirAll(filepath.Join(clientDir, "hosts"), 0o700)); err != nil {
		return err
	}
	hostKey, err1 := makeKey(filepath.Join(sshDir, "host_key"))
	userKey, err2 := makeKey(filepath.Join(clientDir, "id_ed25519"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for path, content := range map[string]string{
		sshDir + "/authorized_keys": userKey,
		sshDir + "/sshd_config": "ListenAddress " + SSHAddress + `
HostKey ` + sshDir + `/host_key
PidFile none
AuthorizedKeysFile ` + sshDir + `/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxSessions 50
MaxStartups 100
LogLevel VERBOSE
`,
		knownHosts: SSHHost + " " + hostKey,
		// ssh would look for a relative path in HOME. Nothing is left to the
		// configuration of the machine.
		clientDir + "/config": "Include " + clientDir + "/hosts/*" + `
Host *
IdentityFile ` + clientDir + `/id_ed25519
IdentityAgent none
UserKnownHostsFile ` + knownHosts + `
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking ask
`,
	} {
		// A guest's session reads authorized_keys.
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, 0o644)); err != nil {
			return err
		}
	}
	return sshd.start()
})

// makeKey makes a key pair and returns the public key.
func makeKey(path string) (string, error) {
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("ssh-keygen: %w: %s", err, out)
	}
	public, err := os.ReadFile(path + ".pub")
	return string(public), err
}

// SSHD returns the SSH server of this test process. It runs.
func SSHD(t testing.TB) *SSHServer {
	t.Helper()
	need(t)
	trltest.Need(t, firstSSHD())
	sshd.Start(t)
	return &sshd
}

func (s *SSHServer) start() error {
	ready := func() error {
		conn, err := net.Dial("tcp", SSHAddress)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return s.server.start(ready, s.program, "-D", "-e", "-f", sshDir+"/sshd_config")
}

// Start starts the server if it does not run.
func (s *SSHServer) Start(t testing.TB) {
	t.Helper()
	if s.running() {
		return
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server and its connections at once. What people have started by ssh
// and detached goes on.
func (s *SSHServer) Kill(t testing.TB) {
	t.Helper()
	if !s.running() {
		return
	}
	connections := trltest.Descendants(s.pid)
	if err := s.end(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, p := range trltest.Remaining(connections) {
		if p.Name == "sshd" {
			_ = unix.Kill(p.PID, unix.SIGKILL) // it may have exited
		}
	}
}

// Restart kills the server and starts it again.
func (s *SSHServer) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	s.Start(t)
}

// Host makes the address of a Link known to ssh until the end of the test, with the
// server's host key, and returns its name for ssh.
func (s *SSHServer) Host(t testing.TB, address string) (name string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	name = "link" + trltest.Token()
	path := filepath.Join(clientDir, "hosts", name)
	if err := os.WriteFile(path, fmt.Appendf(nil, "Host %s\nHostName %s\nPort %s\nHostKeyAlias %s\n", name, host, port, SSHHost), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	return name
}

// ForgetHostKey makes the server's host key unknown to ssh until the end of the test.
func (s *SSHServer) ForgetHostKey(t testing.TB) {
	t.Helper()
	known, err := os.ReadFile(knownHosts)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(knownHosts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(knownHosts, known, 0o600); err != nil {
			t.Error(err)
		}
	})
}

// Try runs a command on the server as an account, with a client that asks nothing,
// and returns its output. An empty host means SSHHost. The error has the client's
// debug messages.
func (s *SSHServer) Try(account, host, command string) (string, error) {
	if host == "" {
		host = SSHHost
	}
	cmd := exec.Command("ssh", "-v", "-o", "BatchMode=yes", account+"@"+host, command)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("ssh %s@%s %s: %w\n%s", account, host, command, err, stderr.String())
	}
	return stdout.String(), nil
}
