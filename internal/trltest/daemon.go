// Package trltest runs the real binary for tests: it builds it once, starts a
// daemon in its own directory, stops it, and checks what it leaves behind.
//
// Only tests import it. It knows nothing about the daemon's internals, so it sees
// what a user would see.
package trltest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// command is the import path of the binary's package.
const command = "github.com/terminal-runtime/trl/cmd/trl"

// BinaryVariable names a binary to use instead of building one, for example the
// file that is going to be shipped. Its file name must be trl.
const BinaryVariable = "TRL_BINARY"

// RaceVariable set to 1 selects a binary with the race detector. It is slower,
// and exits with status 66 after a race, which Stop reports.
const RaceVariable = "TRL_RACE_BINARY"

// build builds the binary once per test process. Main removes it.
var build = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(BinaryVariable); given != "" {
		return filepath.Abs(given)
	}
	return compile(os.Getenv(RaceVariable) == "1")
})

// buildRace builds the binary with the race detector.
var buildRace = sync.OnceValues(func() (string, error) { return compile(true) })

// OtherVersion is the version of the binary that OtherBinary returns.
const OtherVersion = "v0.0.0-other"

// OtherBinary returns the path of a binary that differs from Binary only in its
// version.
var OtherBinary = sync.OnceValues(func() (string, error) {
	return compile(os.Getenv(RaceVariable) == "1", "-ldflags", "-X github.com/terminal-runtime/trl/internal/cli.version="+OtherVersion)
})

// Install puts a binary at a path atomically, as an upgrade does. Another process
// writes it: a child forked by a concurrent test would hold our descriptor for a
// moment, and a file that is open for writing can't be executed.
func Install(binary, path string) error {
	if out, err := exec.Command("cp", "--", binary, path+".new").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return errors.Join(os.Chmod(path+".new", 0o755), os.Rename(path+".new", path))
}

func compile(race bool, flags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "binary-")
	if err != nil {
		return "", err
	}
	built = append(built, dir)
	binary := filepath.Join(dir, "trl")
	args := append([]string{"build", "-buildvcs=false", "-o", binary}, flags...)
	env := os.Environ()
	if race {
		args = append(args, "-race")
	} else {
		env = append(env, "CGO_ENABLED=0") // static, as it is shipped: it must run in any place
	}
	cmd := exec.Command("go", append(args, command)...)
	cmd.Env = env
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", command, err, output)
	}
	return binary, nil
}

// built are the directories to remove; compile writes it, Main reads it after all
// tests.
var built []string

// Main is the TestMain of a package that uses Binary: it runs the tests and
// removes the binary if one was built.
func Main(m *testing.M) { Exit(m.Run()) }

// Exit is the end of Main, for a TestMain that does more: it removes the binary
// and exits.
func Exit(code int) {
	for _, dir := range built {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// Binary returns the path of the real binary, built from this tree unless
// BinaryVariable is set. The file's name is trl, so its directory can be put on
// PATH.
func Binary() (string, error) { return build() }

// Config configures a daemon. The zero value starts one with defaults.
type Config struct {
	// Args follow `trl serve --socket PATH`.
	Args []string
	// Env is added to PATH and the private HOME, TMPDIR and XDG directories.
	Env []string
	// HTTP also serves HTTP on a free loopback port, with a token of scope admin.
	HTTP bool
	// Race starts a binary with the race detector.
	Race bool
	// Binary is the path of the binary to start. Default: the path that the
	// function Binary returns.
	Binary string
	// Prefix is a command that executes the binary, whose path and arguments follow
	// it: setpriv with its options, for example. It must not fork.
	Prefix []string
	// Attr are attributes of the process, such as new namespaces.
	Attr *syscall.SysProcAttr
	// Dir is the directory of an earlier daemon that this one replaces. Default:
	// a new directory.
	Dir string
}

// Daemon is a running daemon. The test that started it owns it.
type Daemon struct {
	Dir    string // contains everything the daemon can write to by default
	Socket string
	HTTP   string // host:port, if requested
	Token  string // for HTTP
	PID    int

	log    syncBuffer
	exited chan struct{} // closed when Wait has returned
	err    error         // result of Wait; read it only after exited is closed
}

// How long things may take on a machine that is busy with other tests.
const (
	startPatience = Patience
	// A daemon gives its sessions a grace of 5 s, some of it twice.
	stopPatience = Patience + 10*time.Second
)

// Layout of a daemon's directory.
const (
	runDir  = "run"
	homeDir = "home"
	tmpDir  = "tmp"
)

// NewDir creates a directory for a daemon. Its path is short, because a socket
// path is limited to about a hundred bytes, and does not begin with /tmp/trl,
// which the torture table removes.
func NewDir() (string, error) {
	dir, err := os.MkdirTemp("", "daemon-")
	if err != nil {
		return "", err
	}
	for _, sub := range []string{runDir, homeDir, tmpDir} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// SocketIn returns the socket path of a daemon in dir.
func SocketIn(dir string) string { return filepath.Join(dir, runDir, "trl.sock") }

// Environ returns the environment for a daemon that uses only dir, and for
// commands that talk to it.
func Environ(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(dir, homeDir),
		"TMPDIR=" + filepath.Join(dir, tmpDir),
		"XDG_RUNTIME_DIR=" + filepath.Join(dir, runDir),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, homeDir, ".config"),
		"XDG_STATE_HOME=" + filepath.Join(dir, homeDir, ".local", "state"),
		"XDG_CACHE_HOME=" + filepath.Join(dir, homeDir, ".cache"),
		"XDG_DATA_HOME=" + filepath.Join(dir, homeDir, ".local", "share"),
	}
}

// Start starts a daemon and waits until it answers. The caller must call Stop or
// Kill, and then remove Dir.
func Start(cfg Config) (*Daemon, error) {
	find := Binary
	if cfg.Race {
		find = buildRace
	}
	binary, err := cfg.Binary, error(nil)
	if binary == "" {
		binary, err = find()
	}
	if err != nil {
		return nil, err
	}
	d := &Daemon{Dir: cfg.Dir, exited: make(chan struct{})}
	if d.Dir == "" {
		if d.Dir, err = NewDir(); err != nil {
			return nil, err
		}
	}
	d.Socket = SocketIn(d.Dir)
	args := []string{"serve", "--socket", d.Socket}
	if cfg.HTTP {
		if err := d.openHTTP(binary, cfg.Env); err != nil {
			return nil, err
		}
		args = append(args, "--http", d.HTTP)
	}
	argv := slices.Concat(cfg.Prefix, []string{binary}, args, cfg.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(d.Dir, homeDir)
	cmd.Env = append(Environ(d.Dir), cfg.Env...)
	cmd.SysProcAttr = cfg.Attr
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	// A process that outlives the daemon and holds its stderr open must not block
	// Wait.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.PID = cmd.Process.Pid
	go func() {
		d.err = cmd.Wait()
		close(d.exited)
	}()
	if err := d.awaitAnswer(); err != nil {
		d.Kill()
		return nil, fmt.Errorf("%w\n%s", err, d.Log())
	}
	return d, nil
}

// openHTTP creates a token and finds a free port.
func (d *Daemon) openHTTP(binary string, env []string) error {
	cmd := exec.Command(binary, "token", "create", "--scope", "admin")
	cmd.Env = append(Environ(d.Dir), env...)
	token, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("create a token: %w", err)
	}
	d.Token = strings.TrimSpace(string(token))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.HTTP = l.Addr().String()
	return l.Close()
}

func (d *Daemon) awaitAnswer() error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	for {
		err := Ping(ctx, d.Socket)
		if err == nil && !orphaned(d.Socket) {
			return nil
		}
		select {
		case <-d.exited:
			return fmt.Errorf("the daemon exited while starting: %w", errors.Join(d.err, err))
		case <-ctx.Done():
			return fmt.Errorf("no answer from the daemon after %s: %w", startPatience, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Ping calls system.ping on a socket.
func Ping(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"system.ping","params":{}}` + "\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return err
	}
	if !bytes.Contains(answer, []byte(`"protocol"`)) {
		return fmt.Errorf("system.ping: %s", answer)
	}
	return nil
}

// Log returns what the daemon has written so far.
func (d *Daemon) Log() string { return d.log.String() }

// Stop sends SIGTERM to the daemon and reports everything wrong with its exit: a
// status other than 0, files left in its runtime directory, processes left
// running.
func (d *Daemon) Stop() error {
	if !d.Running() {
		return fmt.Errorf("the daemon has already exited (%v)\n%s", d.err, d.Log())
	}
	before := Descendants(d.PID)
	if err := syscall.Kill(d.PID, syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.exited:
	case <-time.After(stopPatience):
		d.Kill()
		return fmt.Errorf("the daemon did not exit within %s of SIGTERM\n%s", stopPatience, d.Log())
	}
	var wrong []error
	if d.err != nil {
		wrong = append(wrong, fmt.Errorf("the daemon exited with an error: %w", d.err))
	}
	if left := Remaining(before); len(left) > 0 {
		wrong = append(wrong, fmt.Errorf("processes left by the daemon: %v", left))
	}
	files, err := os.ReadDir(filepath.Join(d.Dir, runDir))
	if err != nil {
		wrong = append(wrong, err)
	}
	for _, file := range files {
		wrong = append(wrong, fmt.Errorf("file left by the daemon: %s", file.Name()))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w\n%s", errors.Join(wrong...), d.Log())
}

// AwaitExit waits for a daemon that something else has asked to exit.
func (d *Daemon) AwaitExit() error {
	select {
	case <-d.exited:
		return d.err
	case <-time.After(stopPatience):
		return fmt.Errorf("the daemon has not exited within %s\n%s", stopPatience, d.Log())
	}
}

// Kill ends the daemon at once, as a crash of the machine would: the process that
// was started, and the processes that would restart it or clean up after it. It
// waits for the first. It may be called repeatedly, and after Stop.
func (d *Daemon) Kill() {
	select {
	case <-d.exited:
		return // the pid may have been reused
	default:
	}
	// Errors mean that they are gone already. A stopped process starts no other.
	_ = syscall.Kill(d.PID, syscall.SIGSTOP)
	for _, pid := range append(helpers(d.PID), d.PID) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-d.exited
}

// Running reports whether the daemon's process is still running.
func (d *Daemon) Running() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// syncBuffer is written to by the daemon's output copier and read by the test.
type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
