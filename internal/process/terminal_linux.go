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

// Terminal is a controlling terminal for the processes started on it. The kernel
// gives a terminal to a session (setsid), takes it away when the session's leader
// exits, and admits only processes forked in that session. So a helper leads the
// session, outlives the shells on it, and forks them as its siblings: the parent
// of all is this process (or the holder).
type Terminal struct {
	tree   *Tree
	leader *Proc

	mu          sync.Mutex // one request at a time
	conn        int        // to the leader; -1 means closed
	lastRequest uint64     // number of the last request
}

// leaderRequest asks the leader to start a program, whose files are sent with it,
// or to move a process group to the foreground. A leader outlives daemons, so
// requests and answers must be understood by the leaders and daemons of earlier
// versions.
type leaderRequest struct {
	Number uint64 // repeated in the answer: an earlier daemon may have asked and not read the answer
	Spec
	Foreground int
}

// leaderAnswer is the answer to a leaderRequest.
type leaderAnswer struct {
	Number uint64
	PID    int
	Error  string
}

// maxLeaderMessage bounds a request. The kernel limits environment and arguments
// to two megabytes.
const maxLeaderMessage = 4 << 20

// leaderTimeout bounds how long the leader may take for a request: it takes
// milliseconds, or forever if a command has stopped it.
const leaderTimeout = 10 * time.Second

// NewTerminal starts a session in the tree whose controlling terminal is slave.
func (t *Tree) NewTerminal(slave *os.File) (*Terminal, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[1])
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, maxLeaderMessage) // without it a long environment fails with an error
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
	// Fd would make the file blocking; Control keeps the descriptor open
	// meanwhile.
	raw, err := slave.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	term := &Terminal{tree: t, conn: pair[0]}
	if cerr := raw.Control(func(fd uintptr) {
		term.leader, err = t.fork(Spec{
			Path: "/proc/self/exe", Argv: childArgv(childLeader, t.rlimits()), Files: [3]int{int(fd), null, null}, SessionLeader: true,
			Spared: true,
		}, pair[1])
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start terminal leader: %w", err), unix.Close(pair[0]))
	}
	return term, nil
}

// Start starts a process on the terminal, in its own process group. Use it for
// programs that wait for commands, such as shells: the exit status of a process
// that exits before it is adopted is lost.
func (t *Terminal) Start(spec Spec) (*Proc, error) {
	answer, err := t.request(leaderRequest{Spec: spec}, spec.Files[:])
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

// AdoptTerminal takes over a terminal of an earlier daemon: its leader and the
// connection to the leader, which Terminal owns from then on.
func (t *Tree) AdoptTerminal(pid, conn int) (*Terminal, error) {
	leader, err := t.AdoptProc(pid)
	if err != nil {
		return nil, errors.Join(err, unix.Close(conn))
	}
	return &Terminal{tree: t, leader: leader, conn: conn, lastRequest: rand.Uint64()}, nil
}

// Conn returns the connection to the leader, which can be kept for a later
// daemon.
func (t *Terminal) Conn() int { return t.conn }

// PID returns the pid of the leader.
func (t *Terminal) PID() int { return t.leader.pid }

// Close ends the leader, and with it the terminal of all processes left on it.
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

// request sends one request to the leader. After a failed exchange the next
// answer could belong to either request, so the connection is closed.
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
		return a, fmt.Errorf("request to terminal leader: %w", err)
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
			return a, errors.New("the terminal leader is gone")
		}
		if err := json.Unmarshal(buf[:n], &a); err != nil || a.Number == q.Number {
			return a, err
		}
		a = leaderAnswer{}
	}
}

// leaderFD is the leader's end of the connection.
const leaderFD = 3

// runLeader is the main loop of the leader; the terminal is its standard input. What
// it starts inherits its resource limits.
func runLeader(rlimits string) {
	runtime.GOMAXPROCS(1) // each thread counts as a process of the session
	if err := setRlimits(rlimits); err != nil {
		os.Exit(1)
	}
	// The terminal's signals are meant for the programs on it. They are caught,
	// not ignored, because ignored signals are inherited.
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
		text, _ := json.Marshal(answer) // strings and numbers never fail
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
	if len(files) != len(q.Files) {
		return a, errors.New("a program needs three files")
	}
	copy(q.Files[:], files)
	a.PID, err = syscall.ForkExec(q.Path, q.Argv, q.attributes(true))
	return a, err
}

func receivedFiles(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("received a program without its files")
	}
	return unix.ParseUnixRights(&messages[0])
}

// setForeground runs in the background, where the kernel would stop this process
// for it unless SIGTTOU is blocked.
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
