package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/internal/peer"
)

// sshClient is the system's ssh for one host. It knows the host by its user's
// configuration, keys and agent, which are not changed here.
type sshClient struct {
	program string
	host    string // [USER@]HOST
	env     []string
	dir     string // for the control socket
	name    string // of the control socket in dir
}

// commonOptions are those of the master and of channels. They keep ssh from asking
// anything, and from giving the host access to anything here. ssh must say what goes
// wrong, whatever the user has configured, but there must be no command besides ours.
var commonOptions = []string{
	"-T", "-o", "BatchMode=yes", "-o", "LogLevel=INFO", "-o", "ForwardAgent=no", "-o", "ForwardX11=no",
	"-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none",
}

// masterOptions make a connection for others. One that has lost its host ends itself
// in a minute, before the silence of a channel is noticed.
var masterOptions = []string{
	"-M", "-N", "-o", "ControlPersist=no", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
}

// channelOptions let ssh use its master and nothing else: without one it would open a
// connection of its own, by way of the proxy, which fails.
var channelOptions = []string{"-o", "ControlMaster=no", "-o", "ProxyCommand=false"}

const (
	// loginTimeout is how long a login may take: the time to connect, which is in
	// masterOptions, and as much for slow servers to look up names and keys.
	loginTimeout = 30 * time.Second
	// loginPoll is how often to look for the control socket, which appears when the
	// login is done. A login takes 100 ms and more.
	loginPoll = 3 * time.Millisecond
	// masterGrace is how long a master may take to end and to remove its socket.
	masterGrace = time.Second
)

// sshMaster is a connection to a host that channels share: an ssh without a session
// that listens on a control socket.
type sshMaster struct {
	socket string
	dir    string // made for the socket alone; ""
	cmd    *exec.Cmd
	stderr peer.Tail
	exited chan struct{} // closed when ssh and what it started have ended
}

// startMaster logs in.
func (c *sshClient) startMaster(ctx context.Context) (*sshMaster, error) {
	m := &sshMaster{exited: make(chan struct{})}
	if err := m.makeSocketPath(c.dir, c.name); err != nil {
		return nil, err
	}
	if err := c.endLeftover(ctx, m.socket); err != nil {
		return nil, err
	}
	argv := append(append([]string{"-S", m.socket}, masterOptions...), commonOptions...)
	m.cmd = exec.Command(c.program, append(argv, "--", c.host)...)
	m.cmd.Env, m.cmd.Stderr, m.cmd.WaitDelay = c.env, &m.stderr, masterGrace
	m.cmd.SysProcAttr = masterAttributes()
	started := make(chan error)
	go m.run(started)
	if err := <-started; err != nil {
		m.removeFiles()
		return nil, err
	}
	if err := m.awaitLogin(ctx, c.host); err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

// run starts ssh and waits for it. The thread is its own: the kernel ends the master
// with the thread that started it, so that it can't outlive a daemon that is killed.
func (m *sshMaster) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := m.cmd.Start()
	started <- err
	if err == nil {
		_ = m.cmd.Wait() // its status is always the same
		reapGroup(m.cmd.Process.Pid)
		close(m.exited)
	}
}

// reapGroup reaps what a group of processes has left to us: a daemon gets the
// orphans of its children, such as the proxy of a master, which ends after it.
func reapGroup(pgid int) {
	for deadline := time.Now().Add(masterGrace); time.Now().Before(deadline); {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return // there are none
		}
		if pid == 0 {
			time.Sleep(loginPoll)
		}
	}
}

// awaitLogin waits for the control socket. ssh gives it its name when it listens.
func (m *sshMaster) awaitLogin(ctx context.Context, host string) error {
	timeout := time.NewTimer(loginTimeout)
	defer timeout.Stop()
	poll := time.NewTicker(loginPoll)
	defer poll.Stop()
	for {
		select {
		case <-m.exited:
			return explainLogin(host, m.stderr.Text())
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return &refusal{
				reason: unreachable, message: fmt.Sprintf("ssh did not log in to %s within %s%s", host, loginTimeout, lastLine(m.stderr.Text())),
				hint: fmt.Sprintf("check the network with `ssh %s true`", host),
			}
		case <-poll.C:
			if _, err := os.Lstat(m.socket); err == nil {
				return nil
			}
		}
	}
}

// maxControlPath is how long the path of a control socket can be: a socket's path has
// at most 103 bytes, and ssh binds it with 17 more before it gives it its name.
const maxControlPath = 103 - 17

// makeSocketPath sets the path of the control socket, in a directory of our own. ssh
// expands some characters in it, and a path may be too long: then the directory is a
// new one.
func (m *sshMaster) makeSocketPath(dir, name string) error {
	m.socket = filepath.Join(dir, name)
	if len(m.socket) > maxControlPath || strings.ContainsAny(m.socket, "%$~\"' \t\\") {
		var err error
		if m.dir, err = os.MkdirTemp("/tmp", ".ssh-place-"); err != nil {
			return err
		}
		m.socket = filepath.Join(m.dir, name)
		return nil
	}
	return os.MkdirAll(dir, 0o700)
}

// endLeftover ends the master of a daemon that was killed, and removes its socket. On
// Linux the kernel has ended it.
func (c *sshClient) endLeftover(ctx context.Context, socket string) error {
	if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, masterGrace)
	defer cancel()
	_, _ = run(ctx, c.env, []string{c.program, "-S", socket, "-O", "exit", "--", c.host}, nil) // it may have ended
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// alive reports whether ssh runs. It may have lost its host.
func (m *sshMaster) alive() bool {
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// end ends the connection and its channels, and returns when nothing is left of it.
func (m *sshMaster) end() {
	// The group has the proxy too. Its leader has not been waited for as long as
	// exited is open, or at least not for long: its number is not used again.
	if m.alive() {
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGTERM) // it may have exited
		select {
		case <-m.exited:
		case <-time.After(masterGrace):
			_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
			<-m.exited // in masterGrace: see WaitDelay and reapGroup
		}
	}
	m.removeFiles()
}

func (m *sshMaster) removeFiles() {
	_ = os.Remove(m.socket) // ssh has done it, unless it was killed
	if m.dir != "" {
		_ = os.Remove(m.dir)
	}
}
