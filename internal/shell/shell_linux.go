package shell

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/process"
)

// Config of a Shell.
type Config struct {
	Tree    *process.Tree // everything the shell starts is in it
	Program Program
	Dir     string
	Env     []string
	Login   bool // read the login startup files before Open returns
	// BootTime bounds the start of the shell, and then its login startup files.
	// Default 10 s: they need milliseconds; a machine that is thrashing may need a
	// while.
	BootTime time.Duration
	// Grace is how long a command has between SIGTERM and SIGKILL.
	// Default 5 s, as the session lifecycle says.
	Grace time.Duration
	// Terminal is the controlling terminal of the shell and of what it runs,
	// and TTY the path by which they open it. Default: none.
	Terminal *process.Terminal
	TTY      string
	// Save is given what Adopt needs to go on with the shell after this process
	// has been killed, before anything happens that would make the last one
	// false. It must not keep the slice, nor call the shell. Default: nothing.
	Save func(state []byte)
}

const (
	defaultGrace = 5 * time.Second
	bootTime     = 10 * time.Second
	// killTime bounds how long a killed tree may take to be gone.
	killTime = 10 * time.Second
	// abortSignal is SIGSTKFLT: Linux never raises it itself, and all four
	// shells can trap it by number.
	abortSignal = unix.Signal(16)
)

// Shell is one driven shell. Run and Close may be called by any goroutine; one
// command runs at a time.
//
// Lock order: mu, then the hub's and the host's own.
type Shell struct {
	driver *Driver
	cfg    Config
	token  string // of the process that is the shell now
	// reports come from the hub's reader. The capacity is more than a shell
	// ever sends unasked; what a forger adds is dropped there.
	reports      chan report
	staleReports uint64 // reports up to here were acted upon by an earlier daemon
	staleSeq     int    // answers to questions up to this number were for an earlier daemon,
	awaitedSeq   int    // but for this one

	// pid and standbyPID are for who only looks; mu may be held for hours.
	pid, standbyPID atomic.Int64
	abandoned       chan struct{} // closed by Abandon
	abandonOnce     sync.Once
	killed          chan struct{} // closed by Close: no process of the shell is left
	killedOnce      sync.Once

	mu              sync.Mutex // held while a command runs or a standby is taken
	closed          bool
	proc            *process.Proc // the shell that reads the control pipe now
	inCopy          bool          // it is an heir or a standby that took over
	ctl             control
	seq             int
	lastCode        int    // exit code of the last command: $? for the next
	lastID          string // of the last command that the shell's state includes
	standby         *sleepingCopy
	exitCopy        *sleepingCopy
	exitStatus      *int     // the shell said that it exits, with this status
	pendingStandby  *copyFDs // of the standby that was asked for and has not reported yet
	standbyAskedAt  time.Time
	failedCopies    int       // copies in a row that could not be adopted
	adopted         bool      // from an earlier daemon, and nothing was asked of it since
	promoting       promotion // what is becoming the shell
	promotionScript *script   // the traps of the copy that is woken
	current         *running  // the command under way, or the last one
	wedgeWatch      watch     // of the command under way
	idleTimer       *time.Timer
	budget          budget

	loginResult *Result // how the login startup files ended; nil: they were not read

	acked          uint64 // the last report that was acted upon
	unacked        int64  // reports that were acted upon since the last save
	pendingRelease pendingRelease
	stateBuf       []byte     // for save
	stateScratch   shellState // for save
}

// control is the control pipe: the shell's script.
type control struct {
	w     heldFD // writing end, non-blocking
	r     heldFD // reading end, kept only where the shell opens it by path
	inode uint64 // by which the shell's end is known in /proc
}

// waking is what takes the place of a shell that is gone.
type promotion byte

const (
	promotionNone promotion = iota
	promotionExitCopy
	promotionStandby
	promotionNewShell // a new shell is started
)

// copied is a sleeping copy of the shell.
type sleepingCopy struct {
	proc  *process.Proc
	traps []byte
	id    string // the last command whose effects it has
}

// StartError says that the shell could not be started: no process became it.
type StartError struct{ error }

func (e *StartError) Unwrap() error { return e.error }

// CrashError says that the shell died while it started.
type CrashError struct {
	Status process.Status
	Stderr []byte
	Stuck  bool // it did not answer, and was killed
}

func (e *CrashError) Error() string {
	if e.Stuck {
		return "the shell did not answer while starting, and was killed"
	}
	if e.Status.Signal != 0 {
		return fmt.Sprintf("the shell died while starting, by signal %s", unix.SignalName(e.Status.Signal))
	}
	return fmt.Sprintf("the shell died while starting, with exit code %d", e.Status.Code)
}

// ErrClosed says that the shell was abandoned or closed.
var ErrClosed = errors.New("the shell is closed")

// errStuck says that the shell lives but does not answer.
var errStuck = errors.New("the shell does not answer")

func newShell(h *Driver, cfg Config) *Shell {
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	return &Shell{
		driver: h, cfg: cfg, reports: make(chan report, 16), abandoned: make(chan struct{}), killed: make(chan struct{}),
		ctl: control{w: noFD, r: noFD},
	}
}

// Open starts a shell and returns when it is ready for a command. When ctx is
// cancelled before that, everything in its tree is killed, and the error is ErrClosed.
func (h *Driver) Open(ctx context.Context, cfg Config) (*Shell, error) {
	s := newShell(h, cfg)
	cut := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		defer close(cut)
		s.Abandon()
		cfg.Tree.Kill(time.Now().Add(killTime))
		_ = s.Close()
	})
	s.mu.Lock()
	err := s.boot(cmp.Or(cfg.BootTime, bootTime))
	s.mu.Unlock()
	if err == nil && cfg.Login {
		err = s.login(cmp.Or(cfg.BootTime, bootTime))
	}
	if !inTime() {
		<-cut
		err = ErrClosed
	}
	if err != nil {
		if s.proc != nil {
			s.proc.Signal(unix.SIGKILL)
			s.await(s.proc)
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// boot starts the shell process on a fresh control pipe and sends it the
// driver's part. Its own stderr is kept until it has answered, to say why not.
func (s *Shell) boot(limit time.Duration) error {
	if err := s.openControl(); err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	stderr, err := memfd("stderr", "")
	if err != nil {
		return err
	}
	defer unix.Close(stderr)
	p := s.cfg.Program
	start := s.cfg.Tree.Start
	if s.cfg.Terminal != nil {
		start = s.cfg.Terminal.Start
	}
	proc, err := start(process.Spec{
		Path: p.Path, Argv: p.argv(s.ctl.r.path), Env: s.cfg.Env, Dir: s.cfg.Dir,
		Files: [3]int{null, null, stderr},
	})
	if err != nil {
		return &StartError{fmt.Errorf("start %s: %w", p.Path, err)}
	}
	err = s.setProc(proc)
	if err == nil {
		err = s.sendBoot(limit)
	}
	if errors.Is(err, errStuck) {
		proc.Signal(unix.SIGKILL)
	}
	// One that failed may have ended just before, and not be reaped yet.
	if err != nil && !errors.Is(err, ErrClosed) {
		select {
		case <-proc.Done():
		case <-s.abandoned:
		case <-time.After(crashWait):
		}
	}
	if proc.Exited() {
		said := make([]byte, 4096)
		n, _ := unix.Pread(stderr, said, 0)
		n = max(n, 0)
		return &CrashError{Status: proc.Status(), Stderr: bytes.TrimSpace(said[:n]), Stuck: errors.Is(err, errStuck)}
	}
	return err
}

// lastWords is how long after something went wrong with a new shell it is known that
// this was its end.
const crashWait = time.Second

// greet gives a new shell its part, and waits until it answers.
func (s *Shell) sendBoot(limit time.Duration) error {
	s.inCopy, s.exitStatus, s.lastID, s.lastCode = false, nil, "", 0
	if err := s.newToken(); err != nil {
		return err
	}
	f := s.cfg.Program.Family
	err := s.send("__trl_T="+s.token+" __trl_y="+s.cfg.TTY+"; "+f.builtin(".")+" "+s.driver.bootScripts[string(f)].path+"\n", f.redirect("2>/dev/null")+"\n")
	if err == nil {
		err = s.awaitReady(limit)
	}
	if err == nil {
		s.shellReplaced()
	}
	return err
}

// sayHello asks for a report with a number of its own.
func (s *Shell) askReady() error {
	s.seq++
	return s.send(s.cfg.Program.Family.report(s.token, reportReady, strconv.Itoa(s.seq)+`\n' >|`+s.driver.statusW.path) + "\n")
}

// hello waits until the shell answers, so that it reads its control pipe.
func (s *Shell) awaitReady(patience time.Duration) error {
	if err := s.askReady(); err != nil {
		return err
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case r := <-s.reports:
			if r.kind == reportReady && r.a == s.seq {
				s.ack(r)
				if f := s.cfg.Program.Family; !s.inCopy || f == Dash || f == Ash {
					s.closeControlReader() // bash and zsh copies reopen it line by line
				}
				return nil
			}
			s.handleReport(r, nil)
		case <-s.proc.Done():
			return errors.New("the shell died")
		case <-s.abandoned:
			return ErrClosed
		case <-limit.C:
			return errStuck
		}
	}
}

// login runs the login startup files as the session's first command, with
// their output thrown away, for so long.
func (s *Shell) login(limit time.Duration) error {
	text, err := bootFiles.ReadFile("boot/" + loginScripts[s.cfg.Program.Family])
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	timer := time.AfterFunc(limit, func() { close(stop) })
	defer timer.Stop()
	res, err := s.Run(Command{Text: string(text), Stdout: os.DevNull, Stderr: os.DevNull, Stop: stop})
	s.mu.Lock()
	s.lastCode = 0
	s.loginResult = &res
	s.mu.Unlock()
	return err
}

// LoggedIn returns how the login startup files ended; nil: they were not read by this
// process.
func (s *Shell) LoginResult() *Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loginResult
}

// openControl makes a fresh control pipe. The writing end is kept as long as
// the shell is: a shell that reads the end of its script exits.
func (s *Shell) openControl() error {
	s.closeControl()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("control pipe: %w", err)
	}
	flags := unix.O_NONBLOCK // a shell that stopped reading must not stop us
	if s.cfg.Program.Family == Ash {
		// Packets: what was written as one is read as one, so that ash never
		// holds a second line in its buffer when an error makes it drop what it
		// holds.
		flags |= unix.O_DIRECT
	} else {
		// One page is enough for the lines of one command, and ten thousand
		// pipes of sixteen would be over an unprivileged user's allowance.
		_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	}
	var st unix.Stat_t
	_, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETFL, flags)
	if err == nil {
		err = unix.Fstat(p[1], &st)
	}
	if err == nil {
		s.ctl.w, err = s.driver.keepFD(p[1])
	}
	if err != nil {
		return errors.Join(fmt.Errorf("control pipe: %w", err), closeFDs(p[:]...))
	}
	s.ctl.inode = st.Ino
	if s.ctl.r, err = s.driver.keepAndClose(p[0]); err != nil {
		return fmt.Errorf("control pipe: %w", err)
	}
	return s.driver.keeper.Sync()
}

func (s *Shell) closeControlReader() {
	s.pendingRelease.add(s.ctl.r)
	s.ctl.r = noFD
}

func (s *Shell) closeControl() {
	s.closeControlReader()
	s.pendingRelease.add(s.ctl.w)
	s.ctl.w = noFD
}

// send writes packets to the control pipe, with one write: whenever this
// process is killed, the shell gets all of them or none.
func (s *Shell) send(packets ...string) error {
	line := packets[0]
	for _, p := range packets[1:] {
		if s.cfg.Program.Family == Ash {
			// A write is cut into packets of a page; ash may drop the blanks.
			page := os.Getpagesize()
			line += strings.Repeat(" ", (page-len(line)%page)%page)
		}
		line += p
	}
	if s.cfg.Program.Family == Ash {
		s.awaitRoom()
	}
	n, err := unix.Write(s.ctl.w.fd, []byte(line))
	if err == nil && n < len(line) {
		err = unix.EAGAIN
	}
	if err != nil {
		return fmt.Errorf("%w: control pipe: %w", errStuck, err)
	}
	return nil
}

const (
	// fewPackets is how many packets are sent with one write, at most.
	fewPackets = 2
	// roomTime bounds the wait for a shell that does not read.
	roomTime = time.Second
)

// awaitRoom waits until the control pipe is empty, if it has no more room than for one
// write: a user who has many pipes gets such. In packet mode each packet takes a page.
func (s *Shell) awaitRoom() {
	size, err := unix.FcntlInt(uintptr(s.ctl.w.fd), unix.F_GETPIPE_SZ, 0)
	if err != nil || size > fewPackets*os.Getpagesize() {
		return
	}
	for deadline := time.Now().Add(roomTime); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		if unread, err := unix.IoctlGetInt(s.ctl.w.fd, unix.TIOCINQ); err != nil || unread == 0 { // the kernel's FIONREAD
			return
		}
	}
}

// PID of the shell, and of its standby or 0.
func (s *Shell) PID() (shell, standby int) {
	return int(s.pid.Load()), int(s.standbyPID.Load())
}

// setProc makes p the shell that is driven, and in the foreground of its
// terminal.
func (s *Shell) setProc(p *process.Proc) error {
	s.proc = p
	s.pid.Store(int64(p.PID()))
	if s.cfg.Terminal == nil {
		return nil
	}
	return s.cfg.Terminal.Foreground(p)
}

func (s *Shell) setStandby(c *sleepingCopy) {
	s.standby = c
	if c == nil {
		s.standbyPID.Store(0)
	} else {
		s.standbyPID.Store(int64(c.proc.PID()))
	}
}

// Cwd is the shell's working directory.
func (s *Shell) Cwd() (string, error) {
	return os.Readlink("/proc/" + strconv.FormatInt(s.pid.Load(), 10) + "/cwd")
}

// Abandon tells the driver that the shell is about to be killed for good:
// nothing is started in its place. A command that runs comes back, with
// ErrClosed, after Close.
func (s *Shell) Abandon() { s.abandonOnce.Do(func() { close(s.abandoned) }) }

// await waits until a process is gone; false means that the shell was
// abandoned and all its processes are.
func (s *Shell) await(p *process.Proc) bool {
	select {
	case <-p.Done():
		return true
	case <-s.killed:
		return false
	}
}

// Close lets go of the shell's pipes. It comes after Abandon and after the
// tree was killed: a descriptor whose path a living shell may still open must
// not be given up, for its number may be another session's a moment later.
func (s *Shell) Close() error {
	s.Abandon()
	s.killedOnce.Do(func() { close(s.killed) })
	s.driver.unregister(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	s.closeControl()
	s.pendingRelease.dropCopyFDs(s.pendingStandby)
	s.pendingRelease.addScript(s.promotionScript)
	s.pendingStandby, s.promotionScript = nil, nil
	s.releasePending()
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	s.discardReports()
	return nil
}
