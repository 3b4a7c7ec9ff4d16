package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a controlling terminal for what is started on it. The kernel
// gives a terminal to a session (in the sense of setsid), takes it away when
// the session's leader ends, and lets nobody in who was not forked there. So a
// helper leads the session, which outlives the shells on it, and starts them on
// our behalf. They are ours all the same: their parent is gone at once, and
// this process is who inherits.
type Terminal struct {
	tree   *Tree
	leader *Proc

	mu          sync.Mutex // one request at a time
	conn        int        // to the leader
	lastRequest uint64     // of the last request
}

// leaderRequest is what the leader is asked: to start a program, whose files
// come with it, or to give a process group the foreground.
type leaderRequest struct {
	Number     uint64 // which the answer repeats: an earlier process of ours may have asked and not heard
	Path       string
	Argv, Env  []string
	Dir        string
	Foreground int
}

type leaderAnswer struct {
	Number uint64
	PID    int
	Error  string
}

// leaderMessage bounds a request: an environment and arguments of two
// megabytes are as much as the kernel takes.
const maxLeaderMessage = 4 << 20

// leaderTime bounds how long the leader may take for a request: milliseconds, or
// for ever if a command has stopped it.
const leaderTimeout = 10 * time.Second

// NewTerminal starts a session in the tree whose controlling terminal is slave.
func (t *Tree) NewTerminal(slave *os.File) (*Terminal, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[1])
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, maxLeaderMessage) // a long environment then fails, and says so
	limit := unix.NsecToTimeval(leaderTimeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, option, &limit); err != nil {
			return nil, errors.Join(err, unix.Close(pair[0]))
		}
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	defer unix.Close(null)
	// Fd would make the file block; the descriptor is used while it is open.
	raw, err := slave.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	term := &Terminal{tree: t, conn: pair[0]}
	if cerr := raw.Control(func(fd uintptr) {
		term.leader, err = t.start(Spec{
			Path: "/proc/self/exe", Argv: childArgv(childLeader), Files: [3]int{int(fd), null, null}, SessionLeader: true,
		}, pair[1])
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the leader of a terminal: %w", err), unix.Close(pair[0]))
	}
	return term, nil
}

// Start starts a process on the terminal, in a process group of its own. It is
// for programs that wait to be told what to do, as a shell is: of one that ends
// before it was adopted nobody knows how.
func (t *Terminal) Start(spec Spec) (*Proc, error) {
	answer, err := t.request(leaderRequest{Path: spec.Path, Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir}, spec.Files[:])
	if err != nil {
		return nil, err
	}
	return t.tree.Adopt(answer.PID)
}

// Foreground makes p's process group the one that the terminal's keys signal.
func (t *Terminal) Foreground(p *Proc) error {
	group, err := unix.Getpgid(p.pid)
	if err != nil {
		return err
	}
	_, err = t.request(leaderRequest{Foreground: group}, nil)
	return err
}

// AdoptTerminal takes over a terminal of an earlier process of ours: its leader,
// and the way to it, which is owned from then on.
func (t *Tree) AdoptTerminal(pid, conn int) (*Terminal, error) {
	leader, err := t.AdoptProc(pid)
	if err != nil {
		return nil, errors.Join(err, unix.Close(conn))
	}
	return &Terminal{tree: t, leader: leader, conn: conn, lastRequest: rand.Uint64()}, nil
}

// Conn is the way to the leader, which can be kept for a later process of ours.
func (t *Terminal) Conn() int { return t.conn }

// PID is that of the leader.
func (t *Terminal) PID() int { return t.leader.pid }

// Close lets the leader go, and with it the terminal of all that is left on it.
func (t *Terminal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn < 0 {
		return nil
	}
	err := unix.Close(t.conn)
	t.conn = -1
	return err
}

// ask puts one request to the leader. After one that failed on the way there is
// no telling which answer comes next, so there is no other.
func (t *Terminal) request(q leaderRequest, files []int) (a leaderAnswer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn < 0 {
		return a, errDying
	}
	t.lastRequest++
	q.Number = t.lastRequest
	if a, err = exchange(t.conn, q, files); err != nil {
		_ = unix.Close(t.conn)
		t.conn = -1
		return a, fmt.Errorf("ask the leader of the terminal: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

func exchange(conn int, q leaderRequest, files []int) (a leaderAnswer, err error) {
	request, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if err := unix.Sendmsg(conn, request, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL); err != nil {
		return a, err
	}
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(conn, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return a, err
		case n == 0:
			return a, errors.New("it is gone")
		}
		if err := json.Unmarshal(buf[:n], &a); err != nil || a.Number == q.Number {
			return a, err
		}
		a = leaderAnswer{}
	}
}

// leaderFD is the leader's end of the connection.
const leaderFD = 3

// lead is the helper's life: the terminal is its standard input.
func runLeader() {
	// The terminal's signals are for those on it. They are caught, not ignored,
	// for what is ignored is inherited.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGHUP, unix.SIGWINCH)
	syscall.CloseOnExec(leaderFD)
	buf, oob := make([]byte, maxLeaderMessage), make([]byte, unix.CmsgSpace(3*4))
	for {
		n, rights, _, _, err := unix.Recvmsg(leaderFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			os.Exit(0)
		}
		answer, err := handleRequest(buf[:n], oob[:rights])
		if err != nil {
			answer.Error = err.Error()
		}
		text, _ := json.Marshal(answer) // strings and numbers always can be
		if _, err := unix.Write(leaderFD, text); err != nil {
			os.Exit(1)
		}
	}
}

func handleRequest(request, rights []byte) (a leaderAnswer, err error) {
	var q leaderRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return a, err
	}
	a.Number = q.Number
	if q.Foreground != 0 {
		return a, setForeground(q.Foreground)
	}
	files, err := receivedFiles(rights)
	defer func() {
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return a, err
	}
	a.PID, err = startOrphan(q, files)
	return a, err
}

func receivedFiles(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("the files of a program did not come with it")
	}
	return unix.ParseUnixRights(&messages[0])
}

// setForeground is called in the background, where the kernel would stop us for
// it unless SIGTTOU is blocked.
func setForeground(group int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
}

// startOrphan starts a program whose parent is gone at once: a process between
// us starts it and ends.
func startOrphan(q leaderRequest, files []int) (pid int, err error) {
	if len(files) != 3 {
		return 0, errors.New("a program needs three files")
	}
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer unix.Close(report[0])
	between, err := syscall.ForkExec("/proc/self/exe", append(childArgv(childOrphan, q.Path), q.Argv...), &syscall.ProcAttr{
		Dir: q.Dir, Env: q.Env,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2]), uintptr(report[1])},
	})
	_ = unix.Close(report[1])
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 4096)
	n, rerr := unix.Read(report[0], buf)
	for {
		if _, err = unix.Wait4(between, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err := errors.Join(rerr, err); err != nil {
		return 0, err
	}
	var a leaderAnswer
	if err := json.Unmarshal(buf[:max(n, 0)], &a); err != nil {
		return 0, fmt.Errorf("the program could not be started: %w", err)
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	return a.PID, nil
}

// reportFD is where the process between says what became of the program.
const reportFD = 3

// beParentForAMoment starts the program and reports.
func startAndExit(args []string) {
	syscall.CloseOnExec(reportFD)
	var a leaderAnswer
	var err error
	if len(args) < 2 {
		err = errors.New("nothing to start")
	} else {
		a.PID, err = syscall.ForkExec(args[0], args[1:], &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		a.Error = err.Error()
	}
	text, _ := json.Marshal(a) // strings and numbers always can be
	_, _ = unix.Write(reportFD, text)
	os.Exit(0)
}
