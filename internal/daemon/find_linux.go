package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/front"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trust"
)

// format is the version of the state that one daemon leaves to the next: the ledger
// and everything it refers to, and what a holder leaves to the program it executes.
// oldestFormat is the oldest that this program can read.
const (
	format       = 3
	oldestFormat = 2
)

// lockInfo is the contents of the lock next to a socket: it describes the holder
// that has the lock.
type lockInfo struct {
	host          process.HostName // its parent is the holder
	started       time.Duration    // of the holder, since boot: its pid may have been reused
	format        int              // of the state it holds
	daemon        int              // pid of its daemon; 0: the holder has sessions and waits for a daemon
	daemonStarted time.Duration    // of the daemon, since boot
	program       string           // the path of its program
}

const lockInfoPrefix = "trl-holder"

func (c lockInfo) String() string {
	return fmt.Sprintf("%s %s %d %d %d %d\n%s\n", lockInfoPrefix, c.host, c.started, c.format, c.daemon, c.daemonStarted, c.program)
}

func parseLockInfo(text string) (c lockInfo, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	var word, host string
	var started, since int64
	_, err := fmt.Sscan(first, &word, &host, &started, &c.format, &c.daemon, &since)
	if err != nil || word != lockInfoPrefix {
		return c, false
	}
	c.started, c.daemonStarted = time.Duration(started), time.Duration(since)
	c.program, _, ok = strings.Cut(rest, "\n")
	c.host, err = process.ParseHostName(host)
	return c, ok && err == nil
}

// checkDead returns an error if the holder is alive.
func (c lockInfo) checkDead() error {
	if c.host.Namespace != process.NameHost(0, 0).Namespace {
		return nil // a pid of another namespace means nothing here
	}
	other, err := process.OpenHandle(c.host.Parent, c.started)
	if err != nil {
		return nil
	}
	defer other.Close()
	if other.WaitExit(process.ExitGrace) {
		return nil
	}
	return process.ErrHostAlive
}

// lockInfo describes this daemon's holder, as waiting for a daemon.
func (d *daemon) lockInfo() (lockInfo, error) {
	host := d.host.Name()
	started, err := process.StartTime(host.Parent)
	return lockInfo{host: host, started: started, format: format, program: d.opts.Args[0]}, err
}

// stopOrphanedDaemon stops the daemon of a socket if its holder has died. It would
// report the loss for some more seconds, but a new daemon is about to start.
func stopOrphanedDaemon(socket string) error {
	text, owner, err := transport.ReadLock(socket)
	c, ok := parseLockInfo(text)
	if err != nil || !ok || c.daemon == 0 {
		return nil // no daemon has it, or not one of ours
	}
	if holder, err := process.OpenHandle(c.host.Parent, c.started); err == nil {
		holder.Close()
		return nil
	}
	daemon, err := process.OpenHandle(c.daemon, c.daemonStarted)
	if err != nil {
		return nil // it has died too
	}
	defer daemon.Close()
	if uid, err := process.UserOf(c.daemon); err != nil || uid != owner {
		return nil // not the daemon, which runs as the owner of its lock
	}
	// Signal only the process that listens on the socket. A daemon that has stopped
	// listening is about to exit.
	if peer, err := transport.PeerAt(socket); err == nil && peer.PID == c.daemon {
		_ = daemon.Signal(unix.SIGTERM) // it only fails if the daemon has exited
	} else if err == nil {
		return nil
	}
	if !daemon.WaitExit(lostNoticeTime + lostKillTime) {
		return fmt.Errorf("the daemon (process %d) lost its holder and does not exit", c.daemon)
	}
	return nil
}

// Holder is the process that holds the sessions of a socket, seen from a process
// that is not its child.
type Holder struct {
	*process.Handle
	socket string
	info   lockInfo
}

// ErrNoHolder is returned if no process holds sessions for a socket.
var ErrNoHolder = errors.New("no holder")

// ErrNotHolder is returned if the process that the lock names does not hold the
// sessions of its socket. It must not be signalled.
var ErrNotHolder = errors.New("it does not hold the sessions of this socket")

// FindHolder finds the holder of a socket's sessions by the lock next to it. It
// trusts the lock only if no other user could have written it, and the process it
// names only if the kernel confirms that it is the holder; see verify.
func FindHolder(socket string) (*Holder, error) {
	text, owner, err := transport.ReadLock(socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, errors.Join(ErrNoHolder, err)
	}
	if err != nil {
		return nil, err
	}
	c, ok := parseLockInfo(text)
	if !ok {
		return nil, ErrNoHolder
	}
	other, err := process.OpenHandle(c.host.Parent, c.started)
	if err != nil {
		return nil, errors.Join(ErrNoHolder, err)
	}
	h := &Holder{Handle: other, socket: socket, info: c}
	if err := h.verify(owner); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// verify returns an error if the process is not the holder. Its pid and start time
// have been checked. It must run as the owner of the lock, and be the parent of the
// daemon that listens on the socket. Without such a daemon (after `trl stop --keep`,
// while one starts, or if another process made the socket listen) it must hold the
// lock.
func (h *Holder) verify(owner int) error {
	uid, err := process.UserOf(h.PID())
	if err != nil {
		return errors.Join(ErrNoHolder, err)
	}
	if uid != owner {
		return fmt.Errorf("process %d, which the lock of %s names, runs as uid %d and not %d: %w", h.PID(), h.socket, uid, owner, ErrNotHolder)
	}
	if peer, err := transport.PeerAt(h.socket); err == nil && peer.UID == owner {
		if parent, err := process.ParentOf(peer.PID); err == nil && parent == h.PID() {
			return nil
		}
	}
	if process.HasLock(h.PID(), h.socket+".lock") {
		return nil
	}
	if _, ok := h.currentLockInfo(); !ok || h.WaitExit(process.ExitGrace) {
		return ErrNoHolder // it is exiting
	}
	return fmt.Errorf("process %d, which the lock of %s names: %w", h.PID(), h.socket, ErrNotHolder)
}

// currentLockInfo returns the current contents of the lock. ok is false if the lock
// no longer names this holder.
func (h *Holder) currentLockInfo() (c lockInfo, ok bool) {
	text, _, err := transport.ReadLock(h.socket)
	if err != nil {
		return lockInfo{}, false
	}
	c, ok = parseLockInfo(text)
	return c, ok && c.host == h.info.host && c.started == h.info.started
}

// Waiting reports whether the holder has sessions but no daemon.
func (h *Holder) Waiting() bool {
	c, ok := h.currentLockInfo()
	return ok && c.daemon == 0
}

// Renew asks the holder to execute the program that is now at its path.
func (h *Holder) Renew() error { return h.Signal(unix.SIGHUP) }

// Detach asks for the daemon to exit while the holder keeps the sessions.
func (h *Holder) Detach() error { return h.Signal(unix.SIGUSR2) }

// Stop asks the holder to end the sessions, the daemon and itself.
func (h *Holder) Stop() error { return h.Signal(unix.SIGTERM) }

// Placeless is a daemon without a local place, seen from another process.
type Placeless struct{ *process.Handle }

func openPlaceless(pid int, _ string) (*Placeless, error) {
	started, err := process.StartTime(pid)
	if err != nil {
		return nil, err
	}
	handle, err := process.OpenHandle(pid, started)
	return &Placeless{handle}, err
}

// check asks this program whether it can take over the holder's sessions. The
// holder executes the program at the path by which it was started, which only the
// holder knows for certain: the path in the lock is compared with this program, and
// never executed.
func (h *Holder) check(ctx context.Context) error {
	const self = "/proc/self/exe"
	there, err := os.Stat(h.info.program)
	if err != nil {
		return err
	}
	if this, err := os.Stat(self); err != nil || !os.SameFile(there, this) {
		return fmt.Errorf("the holder runs the program %q, which is not this one: run `trl serve` of that program", h.info.program)
	}
	args, err := h.arguments()
	if err != nil {
		return err
	}
	proc := "/proc/" + strconv.Itoa(h.PID())
	env, err := os.ReadFile(proc + "/environ")
	if err != nil {
		return err
	}
	dir, err := os.Readlink(proc + "/cwd")
	if err != nil {
		return err
	}
	_, err = checkProgram(ctx, self, args, strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00"), dir, nil, h.info.format)
	return err
}

// arguments returns the arguments that the holder was started with.
func (h *Holder) arguments() ([]string, error) {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(h.PID()) + "/cmdline")
	if err != nil {
		return nil, err
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
	if len(args) > 0 && args[0] == HolderSubcommand {
		args = args[1:]
	}
	return args, nil
}

// checkTimeout is how long a program may take to check whether it can take over. It
// takes some milliseconds; the rest is for a machine under load.
const checkTimeout = 10 * time.Second

// checkProgram runs a program as a daemon that only reports whether it can take
// over. It refuses a program that another user could have put there. If ledger is
// not nil, the program reads all of it.
func checkProgram(ctx context.Context, program string, args, env []string, dir string, ledger *os.File, has int) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := trust.Program(program, os.Geteuid()); err != nil {
		return "", fmt.Errorf("%s can't take over: %w", program, err)
	}
	output, err := process.Output(ctx, program, append([]string{DaemonSubcommand, CheckArg}, args...), env, dir, ledger)
	if err != nil {
		return "", fmt.Errorf("%s can't take over: %w", program, err)
	}
	var oldest, newest int
	if n, err := fmt.Sscanf(output, checkLine, &oldest, &newest, &version); n != 3 || err != nil {
		return "", fmt.Errorf("%s can't take over: it does not say which formats it reads", program)
	}
	if has < oldest || has > newest {
		return version, fmt.Errorf("%s can't take over: version %s reads the formats %d to %d of the session state, which has format %d", program, version, oldest, newest, has)
	}
	return version, nil
}

// checkLine is how a program reports what it can read: the oldest format, the
// newest, and its version.
const checkLine = "trl-can-read %d %d %s\n"

// Check writes to stdout that this program can take over the state of an earlier
// daemon, or returns an error that says why not.
func Check(cfg Config, opts Options) error {
	if cfg.HTTP != "" {
		if _, err := front.PrepareHTTP(cfg.httpConfig(), newLogger(opts.Stderr, cfg, false)); err != nil {
			return err
		}
	}
	// The asking daemon passes a copy of its ledger as stdin; one of format 2 passes
	// nothing.
	var st unix.Stat_t
	if err := unix.Fstat(0, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size > 0 {
		if err := checkLedger(0); err != nil {
			return fmt.Errorf("version %s can't read the session state: %w", opts.Version, err)
		}
	}
	_, err := fmt.Fprintf(opts.Stdout, checkLine, oldestFormat, format, opts.Version)
	return err
}
