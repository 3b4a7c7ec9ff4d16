package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// Users of one machine who do not trust each other. Alice and root run TRL;
// mallory puts files, sockets and processes in their way.
const (
	root    = 0
	alice   = 64001
	mallory = 64002
)

// victims are the users that mallory attacks.
var victims = map[string]int{"root": root, "alice": alice}

// machine is the part of a machine that these users share.
type machine struct {
	t      *testing.T
	dir    string // owned by root, readable by all
	binary string // owned by root
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can run processes as several users"))
	}
	built, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "users-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{t: t, dir: dir, binary: filepath.Join(dir, "trl")}
	if err := errors.Join(os.Chmod(dir, 0o755), trltest.Install(built, m.binary)); err != nil {
		t.Fatal(err)
	}
	return m
}

// mkdir creates a directory owned by a user.
func (m *machine) mkdir(uid int, mode fs.FileMode, names ...string) string {
	m.t.Helper()
	dir := filepath.Join(append([]string{m.dir}, names...)...)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid), os.Chmod(dir, mode)); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// write creates a file owned by a user.
func (m *machine) write(uid int, mode fs.FileMode, path, text string) string {
	m.t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// home returns a user's home directory.
func (m *machine) home(uid int) string {
	m.t.Helper()
	dir := filepath.Join(m.dir, "home-"+strconv.Itoa(uid))
	if _, err := os.Stat(dir); err != nil {
		m.mkdir(uid, 0o755, filepath.Base(dir))
	}
	return dir
}

// as returns a command that runs as a user.
func (m *machine) as(uid int, name string, args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := exec.Command(name, args...)
	home := m.home(uid)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_STATE_HOME=" + home, "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// trl runs a command line as a user to its end, and returns all its output.
func (m *machine) trl(uid int, args ...string) (said string, err error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patient)
	defer cancel()
	cmd := m.as(uid, m.binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	hung := time.AfterFunc(2*patient, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	hung.Stop()
	if !stop() {
		err = nil // it kept running, as a daemon does
	}
	return out.String(), err
}

// mustRefuse runs a command line that must fail with the given words.
func (m *machine) mustRefuse(uid int, words string, args ...string) {
	m.t.Helper()
	if said, err := m.trl(uid, args...); err == nil || !strings.Contains(said, words) {
		m.t.Errorf("uid %d: trl %s: %v\n%s\nwant an error with %q", uid, strings.Join(args, " "), err, said, words)
	}
}

// mustRun runs a command line that must succeed, and returns its output.
func (m *machine) mustRun(uid int, args ...string) string {
	m.t.Helper()
	said, err := m.trl(uid, args...)
	if err != nil {
		m.t.Fatalf("uid %d: trl %s: %v\n%s", uid, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(said)
}

// server is a daemon of a user; the process is its holder.
type server struct {
	*exec.Cmd
	log    bytes.Buffer
	exited chan struct{}
}

// serve starts a daemon and waits until it answers.
func (m *machine) serve(uid int, binary, socket string, args ...string) *server {
	m.t.Helper()
	s := &server{Cmd: m.as(uid, binary, append([]string{"serve", "--socket", socket}, args...)...), exited: make(chan struct{})}
	s.Stderr = &s.log
	if err := s.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(s.exited)
		_ = s.Wait()
	}()
	m.t.Cleanup(func() {
		_ = s.Process.Signal(syscall.SIGTERM) // it may have ended
		<-s.exited
	})
	for deadline := time.Now().Add(patient); ; time.Sleep(10 * time.Millisecond) { // poll: the process is starting
		err := trltest.Ping(m.t.Context(), socket)
		if err == nil {
			return s
		}
		select {
		case <-s.exited:
			m.t.Fatalf("the daemon ended: %s", s.log.String())
		default:
		}
		if time.Now().After(deadline) {
			m.t.Fatal(err)
		}
	}
}

// impostor is mallory's process behind a socket. It reports how many bytes it
// is sent.
type impostor struct {
	*exec.Cmd
	said *bufio.Scanner
	path string
}

const impostorVariable = "TRL_TEST_STRANGER"

// As the impostor this test program listens on descriptor 3, and prints the
// number of bytes that each connection sent.
func init() {
	if os.Getenv(impostorVariable) == "" {
		return
	}
	if err := syscall.Listen(3, 16); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening")
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(0)
		}
		text, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
		conn.Close()
		fmt.Println(len(text))
	}
}

const olderVariable = "TRL_TEST_OLDER"

// As an older daemon this test program serves on descriptor 3, and knows only
// the methods that `trl upgrade` calls before the upgrade.
func init() {
	if os.Getenv(olderVariable) == "" {
		return
	}
	serve := func(conn net.Conn) {
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			var request struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			_ = json.Unmarshal(lines.Bytes(), &request) // invalid requests get an error below
			answer := `"error":{"code":-32601,"message":"no such method","data":{"code":"METHOD_NOT_FOUND"}}`
			switch request.Method {
			case api.MethodSystemInfo:
				answer = fmt.Sprintf(`"result":{"version":"older","pid":%d}`, os.Getpid())
			case api.MethodSystemStats:
				answer = `"result":{"sessions":{"idle":1}}`
			}
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", request.ID, answer)
		}
	}
	err := syscall.Listen(3, 16)
	if l, failed := net.FileListener(os.NewFile(3, "socket")); err == nil && failed == nil {
		fmt.Println("listening")
		for {
			conn, err := l.Accept()
			if err != nil {
				os.Exit(0)
			}
			go serve(conn)
		}
	}
	os.Exit(1)
}

// `trl upgrade` sends an older daemon, which does not know system.upgrade, a
// SIGHUP through its holder: here that is this process. The program named in
// the lock is not run.
func TestUpgradeOfAnOlderDaemon(t *testing.T) {
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	mark, evil := filepath.Join(dir, "ran"), filepath.Join(dir, "evil")
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}),
		os.WriteFile(evil, []byte("#!/bin/sh\n: >"+mark+"\necho trl-can-read 1 99 v9\n"), 0o700),
		os.WriteFile(path+".lock", []byte(lockText(hostOf(os.Getpid()), startOf(t, os.Getpid()), evil)), 0o600)); err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.ExtraFiles = []string{olderVariable + "=1"}, []*os.File{socket}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
			t.Fatalf("the daemon printed %q, %v", line, err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
		return cmd
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	first := start()
	cmd := exec.Command(binary, "--socket", path, "upgrade")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-signals:
	case err := <-ended:
		t.Fatalf("no signal was sent: %v\n%s", err, out.String())
	}
	_ = first.Process.Kill() // as its holder does after checking the program
	start()
	if err := <-ended; err != nil || !strings.Contains(out.String(), "older has taken over from older") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the program named in the lock was run")
	}
}

// impostorAt creates a socket of owner at path, on which mallory listens.
func (m *machine) impostorAt(path string, owner int) *impostor {
	m.t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), os.Chown(path, owner, owner), os.Chmod(path, 0o777)); err != nil {
		m.t.Fatal(err)
	}
	cmd := m.as(mallory, "/proc/self/exe")
	cmd.Env = append(cmd.Env, impostorVariable+"=1")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{socket}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &impostor{Cmd: cmd, said: bufio.NewScanner(out), path: path}
	if !s.said.Scan() || s.said.Text() != "listening" {
		m.t.Fatalf("the impostor printed %q", s.said.Text())
	}
	return s
}

// got returns how many bytes clients have sent to the impostor.
func (s *impostor) got(t *testing.T) (bytes int) {
	t.Helper()
	// It accepts one connection at a time: this is the last.
	const last = 54321
	conn, err := net.Dial("unix", s.path)
	if err == nil {
		_, err = conn.Write(make([]byte, last))
		conn.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for s.said.Scan() {
		n, err := strconv.Atoi(s.said.Text())
		if err != nil {
			t.Fatal(err)
		}
		if n == last {
			return bytes
		}
		bytes += n
	}
	t.Fatal("the impostor has exited")
	return 0
}

// startOf returns when a process was started, in nanoseconds as in a lock.
func startOf(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	ticks, err := strconv.ParseInt(strings.Fields(rest)[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ticks * int64(10*time.Millisecond)
}

// lockText returns the contents of a holder's lock.
func lockText(host string, started int64, program string) string {
	return fmt.Sprintf("trl-holder %s %d 2 1 1\n%s\n", host, started, program)
}

// hostOf returns a host name whose parent is that process.
func hostOf(pid int) string { return fmt.Sprintf("%d-0001-%x", pid, pidNamespace()) }

func pidNamespace() uint64 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// maliciousProgram creates a program that leaves a mark when it is run, and
// claims that it could take over.
func (m *machine) maliciousProgram() (program string, ran func() bool) {
	dir := m.mkdir(mallory, 0o777, "evil")
	program = m.write(mallory, 0o755, filepath.Join(dir, "program"), "#!/bin/sh\n: >"+dir+"/ran.$$\necho trl-can-read 1 99 v9\n")
	return program, func() bool {
		ran, _ := filepath.Glob(dir + "/ran.*")
		return len(ran) > 0
	}
}

// Daemons and clients refuse a socket in a directory that others can write to,
// sticky or not: another user may have created it first.
func TestSocketAmongStrangers(t *testing.T) {
	for name, uid := range victims {
		for kind, mode := range map[string]fs.FileMode{"sticky": 0o777 | fs.ModeSticky, "plain": 0o777} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				m := newMachine(t)
				dir := m.mkdir(root, mode, "shared")
				program, ran := m.maliciousProgram()
				const others = "others may write"

				served := filepath.Join(dir, "served")
				m.write(mallory, 0o666, served+".lock", "")
				m.mustRefuse(uid, others, "serve", "--socket", served)

				socket := filepath.Join(dir, "theirs")
				s := m.impostorAt(socket, uid)
				m.write(mallory, 0o666, socket+".lock", lockText(hostOf(s.Process.Pid), startOf(t, s.Process.Pid), program))
				m.mustRefuse(uid, others, "--socket", socket, "upgrade", "--timeout", "5s")
				m.mustRefuse(uid, others, "--socket", socket, "stop", "--timeout", "5s")
				m.mustRefuse(uid, others, "--socket", socket, "run", "--env", "K=CANARY", "--", "true")
				if n := s.got(t); n > 0 || ran() {
					t.Errorf("mallory was sent %d bytes; the program ran: %t", n, ran())
				}
			})
		}
	}
}

// A client sends nothing to a process of another user, wherever its socket is.
func TestStrangerBehindTheSocket(t *testing.T) {
	for name, uid := range victims {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			socket := filepath.Join(m.mkdir(uid, 0o755, "own"), "s")
			s := m.impostorAt(socket, uid)
			m.mustRefuse(uid, "belongs to another user (uid 64002)", "--socket", socket, "run", "--env", "K=CANARY", "--", "true")
			m.mustRefuse(uid, "belongs to another user (uid 64002)", "--socket", socket, "upgrade")
			if n := s.got(t); n > 0 {
				t.Errorf("mallory was sent %d bytes", n)
			}
		})
	}
}

// Root may use a daemon of another user in that user's own directory; no one
// else may, and root refuses a third user's process there too.
func TestRootUsesADaemonOfAnother(t *testing.T) {
	m := newMachine(t)
	socket := filepath.Join(m.mkdir(alice, 0o755, "own"), "s")
	s := m.serve(alice, m.binary, socket)
	if said := m.mustRun(root, "--socket", socket, "run", "--", "id -u"); said != strconv.Itoa(alice) {
		t.Errorf("the command ran as %s", said)
	}
	id := m.mustRun(root, "--socket", socket, "session", "create")
	m.mustRun(root, "--socket", socket, "run", "-s", id, "--", "n=5")
	if said := m.mustRun(root, "--socket", socket, "upgrade"); !strings.Contains(said, "1 session continues") {
		t.Error(said)
	}
	if said := m.mustRun(root, "--socket", socket, "stop", "--keep"); !strings.Contains(said, fmt.Sprintf("kept by process %d", s.Process.Pid)) {
		t.Error(said)
	}
	m.mustRefuse(root, "belongs to another user", "serve", "--socket", socket)
	m.serve(alice, m.binary, socket)
	if said := m.mustRun(alice, "--socket", socket, "run", "-s", id, "--", "echo $n"); said != "5" {
		t.Errorf("the session printed %q", said)
	}
	m.mustRefuse(mallory, "", "--socket", socket, "run", "--", "true")
	if said := m.mustRun(root, "--socket", socket, "stop"); !strings.Contains(said, "1 session is ended") {
		t.Error(said)
	}
	<-s.exited
	socket = filepath.Join(filepath.Dir(socket), "third")
	third := m.impostorAt(socket, alice)
	m.mustRefuse(root, "belongs to another user (uid 64002)", "--socket", socket, "run", "--", "true")
	if n := third.got(t); n > 0 {
		t.Errorf("mallory was sent %d bytes", n)
	}
}
