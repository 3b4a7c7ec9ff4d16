package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// These tests repeatedly kill the process that owns a journal, while other
// processes write to it as fast as they can, and compare what the last owner's
// journal holds with what was written.

func init() {
	roles = map[string]func(){"owner": ownerMain, "naive": naiveMain, "writer": writerMain}
}

// Descriptors of an owner in addition to the standard ones.
const (
	keeperFD = 3 // socket to the process that keeps descriptors
	firstFD  = 4 // stdout, or the master of a terminal
	secondFD = 5 // stderr, or the reading end of the staging pipe
	thirdFD  = 6 // the writing end of the staging pipe
)

// scenario configures an owner.
type scenario struct {
	cfg      Config
	flap     time.Duration // if not 0: resumeAfter, with a total quota that grows whenever it is reached
	terminal bool
	both     bool
	point    crashPoint // where to kill itself, at the count-th time
	count    int
	segment  LiveSegment // of the journal that the last owner left; none if 0
}

func (sc scenario) env() string {
	return fmt.Sprintf("SCENARIO=%d %d %d %d %t %t %d %d %d %d", sc.cfg.ExecMemory, sc.cfg.ExecQuota, sc.cfg.TotalQuota,
		sc.flap, sc.terminal, sc.both, sc.point, sc.count, sc.segment.Slot, sc.segment.Number)
}

func parseScenario(env string) (sc scenario) {
	_, err := fmt.Sscan(env, &sc.cfg.ExecMemory, &sc.cfg.ExecQuota, &sc.cfg.TotalQuota,
		&sc.flap, &sc.terminal, &sc.both, &sc.point, &sc.count, &sc.segment.Slot, &sc.segment.Number)
	must(err)
	sc.cfg.Dir = os.Getenv("SPILL")
	return sc
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// remoteKeeper keeps descriptors in the test process. A message is a letter and
// two numbers; slots are descriptors of the test process.
type remoteKeeper struct{ mu sync.Mutex }

func (r *remoteKeeper) ask(op byte, a, b uint64, fd int) (slot uint64, got int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	must(send(keeperFD, op, a, b, fd))
	_, slot, _, got, err := receive(keeperFD)
	must(err)
	return slot, got
}

func (r *remoteKeeper) Keep(fd int) (holder.Slot, error) {
	slot, _ := r.ask('k', 0, 0, fd)
	return holder.Slot(slot), nil
}

func (r *remoteKeeper) Replace(holder.Slot, int) error { return errors.ErrUnsupported }
func (r *remoteKeeper) Drop(slot holder.Slot)          { r.ask('d', uint64(slot), 0, -1) }
func (r *remoteKeeper) Sync() error                    { return nil }
func (r *remoteKeeper) Path(holder.Slot) string        { return "" }

func (r *remoteKeeper) Take(slot holder.Slot) (int, error) {
	_, fd := r.ask('t', uint64(slot), 0, -1)
	return fd, nil
}

func send(sock int, op byte, a, b uint64, fd int) error {
	msg := binary.LittleEndian.AppendUint64([]byte{op}, a)
	msg = binary.LittleEndian.AppendUint64(msg, b)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	return unix.Sendmsg(sock, msg, rights, nil, unix.MSG_NOSIGNAL)
}

func receive(sock int) (op byte, a, b uint64, fd int, err error) {
	msg, oob := make([]byte, 17), make([]byte, unix.CmsgSpace(4))
	var n, on int
	for {
		n, on, _, _, err = unix.Recvmsg(sock, msg, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n != len(msg) {
		return 0, 0, 0, -1, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fd = -1
	if on > 0 {
		control, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			return 0, 0, 0, -1, err
		}
		fds, err := unix.ParseUnixRights(&control[0])
		if err != nil {
			return 0, 0, 0, -1, err
		}
		fd = fds[0]
	}
	return msg[0], binary.LittleEndian.Uint64(msg[1:]), binary.LittleEndian.Uint64(msg[9:]), fd, nil
}

// ownerMain owns the journal until everything is written, or it is killed.
func ownerMain() {
	sc := parseScenario(os.Getenv("SCENARIO"))
	keeper := &remoteKeeper{}
	sc.cfg.Keeper = keeper
	sc.cfg.Inexact = must
	s := NewStore(sc.cfg)
	if sc.flap > 0 {
		s.resumeAfter, s.resumeRoom = sc.flap, 1
		s.cfg.Stopped = func(error) { s.cfg.TotalQuota += 300_000 } // guarded by wmu, like the reads
	}
	var j *Journal
	if sc.segment.Number == 0 {
		j = s.New()
		seg, _ := j.LiveSegment()
		keeper.ask('l', uint64(seg.Slot), seg.Number, -1)
	} else {
		var err error
		j, err = s.Restore(sc.segment)
		must(err)
		if sc.flap > 0 {
			s.cfg.TotalQuota = s.spilled.Load() + 300_000
		}
	}
	if sc.point != 0 {
		var passed atomic.Int64
		crashHook = func(p crashPoint) {
			if p == sc.point && passed.Add(1) == int64(sc.count) {
				must(unix.Kill(os.Getpid(), unix.SIGKILL))
				select {}
			}
		}
	}
	var pumps sync.WaitGroup
	if sc.terminal {
		must(drain(firstFD, func() (int, error) { return j.AppendFromTerminal(firstFD, secondFD, thirdFD) }))
	} else {
		pumps.Go(func() { must(pump(j, Stdout, firstFD)) })
		if sc.both {
			pumps.Go(func() { must(pump(j, Stderr, secondFD)) })
		}
	}
	pumps.Wait()
	j.Seal()
	os.Exit(0)
}

// naiveMain is an owner that reads and writes. It kills itself in between, at
// the count-th time.
func naiveMain() {
	buf, left := make([]byte, pullSize), parseScenario(os.Getenv("SCENARIO")).count
	must(drain(firstFD, func() (int, error) {
		n, err := read(firstFD, buf)
		if errors.Is(err, unix.EIO) {
			err = io.EOF // the terminal was closed
		}
		if err != nil {
			return 0, err
		}
		if left--; left == 0 {
			must(unix.Kill(os.Getpid(), unix.SIGKILL))
			select {}
		}
		_, err = unix.Write(secondFD, buf[:n])
		return n, err
	}))
	os.Exit(0)
}

// source generates what a writer writes.
type source struct{ rnd *rand.ChaCha8 }

func newSource(seed uint64) *source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return &source{rand.NewChaCha8(key)}
}

// writerMain writes to its output until its input ends or it has written
// enough, and prints how many bytes that were, and their checksum.
func writerMain() {
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	var seed uint64
	var most, step int
	_, err := fmt.Sscan(os.Getenv("WRITER"), &seed, &most, &step)
	must(err)
	src, sizes := newSource(seed), rand.New(rand.NewPCG(seed, 1))
	sum, n := sha256.New(), 0
	for buf := make([]byte, step); n < most && !stop.Load(); {
		p := buf[:min(1+sizes.IntN(step), most-n)]
		_, _ = src.rnd.Read(p)
		_, err := os.Stdout.Write(p)
		must(err)
		sum.Write(p)
		n += len(p)
	}
	fmt.Fprintf(os.Stderr, "%d %x", n, sum.Sum(nil))
	os.Exit(0)
}

// writer is a process that writes to w, of which it has the only copy.
type writer struct {
	cmd    *exec.Cmd
	stop   io.Closer
	stderr bytes.Buffer
	seed   uint64
}

func startWriter(t *testing.T, w *os.File, seed uint64, most, step int) *writer {
	t.Helper()
	wr := &writer{cmd: exec.Command("/proc/self/exe"), seed: seed}
	wr.cmd.Env = append(os.Environ(), roleEnv+"=writer", fmt.Sprintf("WRITER=%d %d %d", seed, most, step))
	wr.cmd.Stdout, wr.cmd.Stderr = w, &wr.stderr
	stdin, err := wr.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	wr.stop = stdin
	if err := wr.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return wr
}

// end waits for the writer and returns what it has written.
func (wr *writer) end(t *testing.T) (n int64, sum string) {
	t.Helper()
	wr.stop.Close()
	if err := wr.cmd.Wait(); err != nil {
		t.Fatalf("writer: %v: %s", err, &wr.stderr)
	}
	first, sum, _ := strings.Cut(wr.stderr.String(), " ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n, sum
}

// harness runs owners one after the other and keeps descriptors for them.
type harness struct {
	t       *testing.T
	role    string
	sc      scenario
	dir     string
	files   []*os.File // from firstFD on
	kept    []int
	crashes int // how many owners were killed, or killed themselves
}

// runOwner runs one owner, which is killed after a while if after is not 0, and
// reports whether it finished.
func (h *harness) runOwner(after time.Duration) (done bool) {
	t := h.t
	t.Helper()
	socks, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(socks[1]), "keeper")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+h.role, h.sc.env(), "SPILL="+h.dir)
	cmd.ExtraFiles = append([]*os.File{theirs}, h.files...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	served := make(chan error, 1)
	go func() { served <- h.serve(socks[0]) }()
	if after > 0 {
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	unix.Close(socks[0])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status := exit.Sys().(syscall.WaitStatus); !status.Signaled() {
			t.Fatalf("owner: %v: %s", err, &stderr)
		}
		h.crashes++
		return false
	}
	return true
}

// serve answers an owner until it is gone.
func (h *harness) serve(sock int) error {
	for {
		op, a, b, fd, err := receive(sock)
		if err != nil {
			return nil // the owner is gone
		}
		switch op {
		case 'k':
			h.kept = append(h.kept, fd)
			err = send(sock, 'k', uint64(fd), 0, -1)
		case 't':
			err = send(sock, 't', a, 0, int(a))
		case 'l':
			h.sc.segment = LiveSegment{Slot: holder.Slot(a), Number: b}
			err = send(sock, 'l', 0, 0, -1)
		case 'd':
			err = send(sock, 'd', 0, 0, -1)
		default:
			return fmt.Errorf("unexpected request %q of an owner", op)
		}
		if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			return err
		}
	}
}

// journal returns the journal that the owners left.
func (h *harness) journal() *Journal {
	h.t.Helper()
	cfg := h.sc.cfg
	cfg.Dir, cfg.Keeper = h.dir, holder.NewLocalKeeper()
	s := NewStore(cfg)
	j, err := s.Restore(h.sc.segment)
	if err != nil {
		h.t.Fatal(err)
	}
	if !j.Closed() {
		h.t.Error("the journal is not closed")
	}
	h.t.Cleanup(func() { forget(j) })
	return j
}

// newHarness returns a harness whose files are input, followed by the ends of
// the staging pipe for a terminal.
func newHarness(t *testing.T, role string, sc scenario, input ...*os.File) *harness {
	h := &harness{t: t, role: role, sc: sc, dir: t.TempDir(), files: input}
	t.Cleanup(func() {
		for _, fd := range h.kept {
			unix.Close(fd)
		}
		for _, f := range h.files {
			f.Close()
		}
	})
	return h
}

// pipeFiles returns a pipe whose reading end is non-blocking and whose writing
// end blocks.
func pipeFiles(t *testing.T) (r, w *os.File) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	if err := unix.SetNonblock(p[0], true); err != nil {
		t.Fatal(err)
	}
	return r, w
}

// rawTerminal returns the two sides of a terminal in raw mode.
func rawTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		trltest.Need(t, err)
	}
	master = os.NewFile(uintptr(m), "master")
	number, err := unix.IoctlGetInt(m, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	sl, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tio, err := unix.IoctlGetTermios(sl, unix.TCGETS)
	if err == nil {
		tio.Iflag, tio.Oflag, tio.Lflag = 0, 0, 0
		err = unix.IoctlSetTermios(sl, unix.TCSETS, tio)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, os.NewFile(uintptr(sl), "slave")
}
