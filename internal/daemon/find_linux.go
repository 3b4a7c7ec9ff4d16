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

	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/transport"
	"github.com/terminal-runtime/trl/internal/trust"
)

// format numbers what one daemon leaves to the next: the ledger and all that it
// leads to, and what a holder leaves to the program it becomes. oldestFormat is
// the oldest that this program can go on with.
const (
	format       = 3
	oldestFormat = 2
)

// card is what the lock beside a socket says of the holder that has it.
type lockInfo struct {
	host          process.HostName // its parent is the holder
	started       time.Duration    // of the holder, since boot: its number may be another's by now
	format        int              // of what it holds
	daemon        int              // pid of its daemon; 0: it has sessions and none, and waits
	daemonStarted time.Duration    // when that was started
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

// dead returns an error if the holder that the card names lives.
func (c lockInfo) checkDead() error {
	if c.host.Namespace != process.NameHost(0, 0).Namespace {
		return nil // its number means nothing here
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

// card is that of this daemon's holder, which waits without it.
func (d *daemon) lockInfo() (lockInfo, error) {
	host := d.host.Name()
	started, err := process.StartTime(host.Parent)
	return lockInfo{host: host, started: started, format: format, program: d.opts.Args[0]}, err
}

// endLost ends the daemon of a socket whose holder has died, which would tell of
// that for some seconds more: there is a new one now.
func stopOrphanedDaemon(socket string) error {
	text, owner, err := transport.ReadLock(socket)
	c, ok := parseLockInfo(text)
	if err != nil || !ok || c.daemon == 0 {
		return nil // nobody has it, or not one that we know
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
		return nil // it is not the daemon, which runs as the owner of its lock
	}
	// Only the process that listens on the socket is signalled. One that has
	// stopped listening is ending by itself.
	if peer, err := transport.PeerAt(socket); err == nil && peer.PID == c.daemon {
		_ = daemon.Signal(unix.SIGTERM) // it fails for one that has ended
	} else if err == nil {
		return nil
	}
	if !daemon.WaitExit(lostNoticeTime + lostKillTime) {
		return fmt.Errorf("process %d has lost its holder, and does not end", c.daemon)
	}
	return nil
}

// Holder is the process that holds the sessions of a socket. It is for who is
// not its child.
type Holder struct {
	*process.Handle
	socket string
	info   lockInfo
}

// ErrNoHolder says that nobody holds sessions for a socket.
var ErrNoHolder = errors.New("no holder")

// ErrNotHolder says that the process that the lock names does not hold the
// sessions of its socket. It is not to be signalled.
var ErrNotHolder = errors.New("it does not hold the sessions of this socket")

// FindHolder finds the holder of a socket's sessions by the lock beside it. The
// lock is only believed if nobody else could have written it, and the process it
// names only if it is the holder by what the kernel says; see verify.
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

// verify refuses a process that is not the holder. That the number and the time
// of its start are right is known. It must run as the owner of the lock, and be
// the parent of the daemon that listens on the socket. Where there is no such daemon
// (after `trl stop --keep`, while one is started, or where another process made the
// socket listen) it must have the lock.
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
		return ErrNoHolder // it is ending
	}
	return fmt.Errorf("process %d, which the lock of %s names: %w", h.PID(), h.socket, ErrNotHolder)
}

// present returns what the lock says now, if it is still the holder's.
func (h *Holder) currentLockInfo() (c lockInfo, ok bool) {
	text, _, err := transport.ReadLock(h.socket)
	if err != nil {
		return lockInfo{}, false
	}
	c, ok = parseLockInfo(text)
	return c, ok && c.host == h.info.host && c.started == h.info.started
}

// Waiting says whether the holder has sessions and no daemon now.
func (h *Holder) Waiting() bool {
	c, ok := h.currentLockInfo()
	return ok && c.daemon == 0
}

// The signals that a holder obeys, besides those that end it.

// Renew asks for the program that is at the holder's path now.
func (h *Holder) Renew() error { return h.Signal(unix.SIGHUP) }

// Keep asks for the end of the daemon alone.
func (h *Holder) Detach() error { return h.Signal(unix.SIGUSR2) }

// Stop asks for the end of everything.
func (h *Holder) Stop() error { return h.Signal(unix.SIGTERM) }

// check asks this program whether it could go on with the holder's sessions. The
// holder becomes the program at the path that it was started by, which it alone
// knows for certain: what the lock says of it is compared with this program, and
// never run.
func (h *Holder) check(ctx context.Context) error {
	const self = "/proc/self/exe"
	there, err := os.Stat(h.info.program)
	if err != nil {
		return err
	}
	if this, err := os.Stat(self); err != nil || !os.SameFile(there, this) {
		return fmt.Errorf("they go on with the program %q, and this is another: run `trl serve` of that one", h.info.program)
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

// arguments are those that the holder was started with.
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

// checkTime is what a program has to read its configuration. It takes some
// milliseconds; a machine under load has room for much more.
const checkTimeout = 10 * time.Second

// checkProgram runs a program as a daemon that only says whether it could be one.
// It refuses one that another user could have put there. If ledger is not nil, the
// program reads all of it.
func checkProgram(ctx context.Context, program string, args, env []string, dir string, ledger *os.File, has int) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := trust.Program(program, os.Geteuid()); err != nil {
		return "", fmt.Errorf("%s can't take over: %w", program, err)
	}
	said, err := process.Output(ctx, program, append([]string{DaemonSubcommand, CheckArg}, args...), env, dir, ledger)
	if err != nil {
		return "", fmt.Errorf("%s can't take over: %w", program, err)
	}
	var oldest, newest int
	if n, err := fmt.Sscanf(said, checkLine, &oldest, &newest, &version); n != 3 || err != nil {
		return "", fmt.Errorf("%s can't take over: it does not say what it can read", program)
	}
	if has < oldest || has > newest {
		return version, fmt.Errorf("%s can't take over: version %s reads the formats %d to %d of what is held, which has %d", program, version, oldest, newest, has)
	}
	return version, nil
}

// checkLine is how a program says what it can read: the oldest format, the
// newest, and its version.
const checkLine = "trl-can-read %d %d %s\n"

// Check says on stdout that this program could go on with what a daemon has
// left, or why not in an error.
func Check(cfg Config, opts Options) error {
	if _, err := prepareWeb(cfg, false, newLogger(opts.Stderr, cfg, false)); err != nil {
		return err
	}
	// A daemon that asks passes a copy of its ledger as stdin; one of format 2 passes
	// nothing.
	var st unix.Stat_t
	if err := unix.Fstat(0, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size > 0 {
		if err := checkLedger(0); err != nil {
			return fmt.Errorf("version %s can't read what is kept: %w", opts.Version, err)
		}
	}
	_, err := fmt.Fprintf(opts.Stdout, checkLine, oldestFormat, format, opts.Version)
	return err
}
