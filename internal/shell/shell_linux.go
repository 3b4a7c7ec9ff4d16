package shell

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/process"
)

// Config configures a Shell.
type Config struct {
	Tree    *process.Tree // contains every process that the shell starts
	Program Program
	Dir     string
	Env     []string
	Login   bool // source the login startup files before Open returns
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
	// Save is called with what Adopt needs to continue with the shell after this
	// process has been killed, before anything happens that would make the last
	// state wrong. It must not keep the slice, nor call the shell. nil means that
	// nothing is saved.
	Save func(state []byte)
}

const (
	defaultGrace = 5 * time.Second
	bootTime     = 10 * time.Second
	// killTime bounds how long a killed tree may take to be gone.
	killTime = 10 * time.Second
)

// Shell is one driven shell. It is safe for concurrent use; one command runs at a
// time.
//
// Lock order: mu, then the router's, then the driver's. The host's own come last.
type Shell struct {
	driver *Driver
	cfg    Config
	family *family
	token  string // of the process that is the shell now
	inbox  *inbox

	// pid and standbyPID can be read without mu, which may be held for hours.
	pid, standbyPID atomic.Int64
	abandoned       chan struct{} // closed by Abandon
	abandonOnce     sync.Once
	killed          chan struct{} // closed by Close: no process of the shell is left
	killedOnce      sync.Once

	mu              sync.Mutex // held while a command runs or a standby is taken
	closed          bool
	proc            *process.Proc // the shell that reads the control pipe now
	inCopy          bool          // it is an exit copy or a standby that was promoted
	ctl             control
	seq             int
	lastCode        int    // exit code of the last command: $? for the next
	lastID          string // of the last command that the shell's state includes
	standby         *sleepingCopy
	exitCopy        *sleepingCopy
	exitStatus      *int     // the shell reported that it exits, with this status
	pendingStandby  *copyFDs // of the standby that was asked for and has not reported yet
	standbyAskedAt  time.Time
	failedCopies    int       // copies in a row that could not be adopted
	adopted         bool      // from an earlier daemon, and not asked anything since
	promoting       promotion // what is becoming the shell
	promotionScript *script   // the traps of the copy that is promoted
	current         *running  // the command that runs, or the last one
	wedgeWatch      watch     // of the command that runs
	idleTimer       *time.Timer
	budget          budget

	loginResult *Result // how the login startup files ended; nil if they were not sourced

	acked          uint64 // the last report that was handled
	unacked        int64  // reports that were handled since the last save
	pendingRelease pendingRelease
	stateBuf       []byte     // for save
	stateScratch   shellState // for save
}

// running is one command that runs, or the last one. The shell's mu guards it.
type running struct {
	shell      *Shell
	cmd        Command
	stage      stage
	copyFDs    *copyFDs
	scripts    [3]*script // the command, and those around it: enter and leave
	reportSeq  int        // the number in its report
	reported   bool
	code       int
	calledExit bool
	stop       stopping
	wedge      wedge
	keySignal  unix.Signal // it was aborted because of a key
	res        Result

	// Of one that an earlier daemon began.
	wasStopped bool // its stop had begun
	doubtSeq   int  // number of the question whether the line has arrived; 0: none
	lineLost   bool // the line has not arrived

	isProbe bool // by probe: it is not saved
}

// sleepingCopy is a sleeping copy of the shell.
type sleepingCopy struct {
	proc  *process.Proc
	traps []byte
	id    string // the last command that its state includes
}

// StartError means that the shell could not be started: there was no process.
type StartError struct{ error }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.error }

// CrashError means that the shell died while it started.
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

// ErrClosed means that the shell was abandoned or closed.
var ErrClosed = errors.New("the shell is closed")

// LoginResult returns how the login startup files ended, nil if this process has not
// run them.
func (s *Shell) LoginResult() *Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loginResult
}

// PID returns the pid of the shell, and of its standby or 0.
func (s *Shell) PID() (shell, standby int) {
	return int(s.pid.Load()), int(s.standbyPID.Load())
}

// Cwd returns the shell's working directory.
func (s *Shell) Cwd() (string, error) {
	return nowait.Readlink("/proc/" + strconv.FormatInt(s.pid.Load(), 10) + "/cwd")
}

// Abandon tells the driver that the shell is about to be killed for good:
// it starts nothing in its place. A command that runs returns ErrClosed after Close.
func (s *Shell) Abandon() { s.abandonOnce.Do(func() { close(s.abandoned) }) }

// await waits until a process is gone. It returns false if the shell was closed, and
// all its processes are gone.
func (s *Shell) await(p *process.Proc) bool {
	select {
	case <-p.Done():
		return true
	case <-s.killed:
		return false
	}
}

// setProc makes p the shell that is driven, in the foreground of its terminal.
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

// newToken is called when another process becomes the shell.
func (s *Shell) newToken() error {
	token, err := s.driver.router.newToken(s.inbox)
	if err == nil {
		s.token = token
	}
	return err
}

// openControl makes a new control pipe.
func (s *Shell) openControl() (err error) {
	s.closeControl()
	s.ctl, err = s.driver.keeper.openControl(s.family.packetPipe)
	return err
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

// scheduleIdle schedules a standby for the next pause, if there is none then.
func (s *Shell) scheduleIdle() { s.idleTimer.Reset(s.budget.pause()) }

// driverStarted is called before any other goroutine knows the shell.
func (s *Shell) driverStarted() {
	if s.current == nil || s.current.stage == stageOver {
		s.scheduleIdle()
	}
}

// held returns the descriptors that the shell's state names.
func (s *Shell) held() []heldFD {
	held := []heldFD{s.ctl.w, s.ctl.r}
	add := func(c *copyFDs, scripts ...*script) {
		if c != nil {
			held = append(held, c.wake, c.traps)
		}
		for _, t := range scripts {
			if t != nil {
				held = append(held, t.heldFD)
			}
		}
	}
	add(s.pendingStandby, s.promotionScript)
	if r := s.current; r != nil {
		add(r.copyFDs, r.scripts[:]...)
	}
	return held
}

// outcomeKnown reports whether the shell has reported what became of the command.
func (r *running) outcomeKnown() bool {
	return r.reported || r.lineLost || r.shell.exitStatus != nil
}

// leavePath returns the path of the script that undoes its env and dir, "" if it has
// none.
func (r *running) leavePath() string {
	if r == nil || r.scripts[2] == nil {
		return ""
	}
	return r.scripts[2].path
}

// release returns, after the next save, what the command was run with. copyFDs can
// be used again if no copy was forked with them.
func (r *running) release() {
	pending := &r.shell.pendingRelease
	if (r.reported || r.lineLost) && !r.stop.begun && r.shell.exitStatus == nil {
		pending.reuseCopyFDs(r.copyFDs)
	} else {
		pending.dropCopyFDs(r.copyFDs) // a dying shell may still have them open
	}
	r.copyFDs = nil
	for i, t := range r.scripts {
		pending.addScript(t)
		r.scripts[i] = nil
	}
}
