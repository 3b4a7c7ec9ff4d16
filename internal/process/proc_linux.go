package process

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Proc is one tracked process: started in a tree, or adopted by it.
type Proc struct {
	pid    int
	tree   *Tree
	done   chan struct{} // closed by the reaper after it sets status
	status Status
}

// Status describes how a process ended.
type Status struct {
	Code   int         // exit code; 128+signal if a signal ended the process
	Signal unix.Signal // 0 means that it exited by itself
	CPU    time.Duration
}

func statusOf(ws unix.WaitStatus, ru *unix.Rusage) Status {
	s := Status{CPU: time.Duration(ru.Utime.Nano() + ru.Stime.Nano())}
	if ws.Signaled() {
		s.Signal = ws.Signal()
		s.Code = 128 + int(s.Signal)
	} else {
		s.Code = ws.ExitStatus()
	}
	return s
}

// PID returns the pid of the process. It is not reused before Done is closed.
func (p *Proc) PID() int { return p.pid }

// Done returns a channel that is closed when the process has been reaped.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Exited reports whether Done is closed.
func (p *Proc) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Status returns how the process ended. It is valid once Done is closed.
func (p *Proc) Status() Status { return p.status }

// Signal signals the process, unless it has been reaped.
func (p *Proc) Signal(sig unix.Signal) {
	if p.tree.host.holder != nil { // the holder may reap it at any time
		if !p.Exited() {
			p.tree.Signal(p.pid, sig)
		}
		return
	}
	p.tree.host.spawn.RLock() // keeps the reaper from freeing the pid meanwhile
	defer p.tree.host.spawn.RUnlock()
	if !p.Exited() {
		_ = unix.Kill(p.pid, sig)
	}
}

// Cwd returns the working directory of the process.
func (p *Proc) Cwd() (string, error) { return os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/cwd") }
