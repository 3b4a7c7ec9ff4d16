package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
)

// clockTick is the kernel's USER_HZ: 100 on every architecture Go supports.
const clockTick = 10 * time.Millisecond

// stat is the content of /proc/PID/stat.
type stat struct {
	state byte
	ppid  int
	start time.Duration // since boot
	rss   int64         // bytes
	comm  string

	exiting bool // it no longer runs its own code and may have lost its memory
	forked  bool // it was forked and has not executed a program since
}

// Flags of the kernel's include/linux/sched.h.
const (
	flagExiting = 0x4  // PF_EXITING
	flagForked  = 0x40 // PF_FORKNOEXEC
)

// dead reports whether the process only waits to be reaped.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	var small [512]byte
	b, err := readKernelFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat", small[:])
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// readKernelFile reads a file of /proc or of a cgroup, into buf if it fits.
// os.ReadFile registers every file with the poller, which takes longer than
// reading a file like these.
func readKernelFile(dir int, path string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		got, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		n += got
		if got == 0 {
			return buf[:n], nil
		}
	}
}

var errStat = errors.New("malformed /proc/PID/stat")

// parseStat parses the fields after the command name. The name may itself contain
// spaces and parentheses: the last ')' ends it.
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, errStat
	}
	f := strings.Fields(string(b[end+1:]))
	const ppid, flags, startTime, rss = 1, 6, 19, 21      // relative to the state field
	if len(f) <= rss || len(f[0]) != 1 || f[0][0] < 'A' { // the state is a letter
		return stat{}, errStat
	}
	s := stat{state: f[0][0], comm: string(b[open+1 : end])}
	var errs [3]error
	s.ppid, errs[0] = strconv.Atoi(f[ppid])
	var ticks, pages int64
	ticks, errs[1] = strconv.ParseInt(f[startTime], 10, 64)
	pages, errs[2] = strconv.ParseInt(f[rss], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return stat{}, errStat
	}
	bits, err := strconv.ParseUint(f[flags], 10, 64)
	if err != nil {
		return stat{}, errStat
	}
	s.exiting, s.forked = bits&flagExiting != 0, bits&flagForked != 0
	s.start = time.Duration(ticks) * clockTick
	s.rss = pages * int64(os.Getpagesize())
	return s, nil
}

// SinceBoot returns the time on the clock of process start times. It cannot be
// set, and it is the same for all processes.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if nowait.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// commandLine returns the process's argv on one line, or its name in brackets if
// it has none, like ps. It is bounded: argv may be megabytes.
func commandLine(pid int, comm string) string {
	const most = 512
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return "[" + comm + "]"
	}
	defer f.Close()
	b := make([]byte, most)
	n, _ := f.Read(b)
	b = bytes.TrimRight(b[:n], "\x00")
	if len(b) == 0 {
		return "[" + comm + "]"
	}
	return strings.ToValidUTF8(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})), "\uFFFD")
}

// ownChildren lists the direct children of this OS process, of all threads.
func ownChildren() []int { return childrenIn("/proc/self/task/") }

// inherited lists the children of a process's first thread, to which the kernel
// reparents orphans. The list may be incomplete while children exit.
func inherited(pid int) []int {
	var small [4096]byte
	number := strconv.Itoa(pid)
	b, err := readKernelFile(unix.AT_FDCWD, "/proc/"+number+"/task/"+number+"/children", small[:])
	if err != nil {
		return nil // the kernel was built without such lists
	}
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Children lists the direct children of a process, of all threads.
func Children(pid int) []int { return childrenIn("/proc/" + strconv.Itoa(pid) + "/task/") }

func childrenIn(tasks string) []int {
	var pids []int
	for _, tid := range numbersIn(tasks) {
		b, err := os.ReadFile(tasks + strconv.Itoa(tid) + "/children")
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
