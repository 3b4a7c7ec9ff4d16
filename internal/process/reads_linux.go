package process

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reader is a process that does nothing but wait for a terminal's input.
type Reader struct {
	PID     int
	Command string
}

// ReaderOf finds the process among pids that waits for input of the terminal
// with a device number: a thread of it is blocked in a read of it, or in a call
// that waits for it to become readable, and its first thread does not run (others
// may: a runtime's garbage collector, say). This is what the kernel says, not a guess from what the process has written. Only processes of the
// terminal's foreground group count: others would be stopped for reading.
func ReaderOf(pids []int, device uint64, foreground int) (Reader, bool) {
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err != nil || group != foreground {
			continue
		}
		if !waitsFor(pid, device) {
			continue
		}
		st, err := readStat(pid)
		if err != nil || st.dead() {
			continue
		}
		return Reader{PID: pid, Command: commandLine(pid, st.comm)}, true
	}
	return Reader{}, false
}

// waitsFor looks at every thread.
func waitsFor(pid int, device uint64) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	found := false
	for _, tid := range pidsIn(dir + "/task") {
		var small [256]byte
		b, err := readKernelFile(unix.AT_FDCWD, dir+"/task/"+strconv.Itoa(tid)+"/syscall", small[:])
		if err != nil {
			return false
		}
		call, ok := parseCall(string(b))
		if !ok && tid == pid {
			return false // it runs
		}
		found = found || call.waitsFor(pid, device)
	}
	return found
}

// call is a system call that a thread is in.
type call struct {
	number int
	args   [6]uint64
}

// parseCall reads /proc/PID/syscall. It is false for a thread that runs, or is
// stopped outside of any call.
func parseCall(text string) (c call, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 7 {
		return c, false
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 0 {
		return c, false
	}
	c.number = number
	for i := range c.args {
		v, err := strconv.ParseUint(strings.TrimPrefix(fields[i+1], "0x"), 16, 64)
		if err != nil {
			return c, false
		}
		c.args[i] = v
	}
	return c, true
}

// ttyDevice is /dev/tty, by which programs ask for a terminal whatever their
// stdin is.
var ttyDevice = unix.Mkdev(5, 0)

func isTerminal(pid, fd int, device uint64) bool {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(fd), &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && (st.Rdev == device || st.Rdev == ttyDevice)
}

// maxWaited bounds the descriptors that are looked at in one call; who waits
// for more is a server.
const maxWaited = 256

func (c call) waitsFor(pid int, device uint64) bool {
	switch waitCalls[c.number] {
	case callRead:
		return isTerminal(pid, int(int32(c.args[0])), device)
	case callPoll:
		return c.polls(pid, device)
	case callSelect:
		return c.selects(pid, device)
	case callEpoll:
		return epolls(pid, int(int32(c.args[0])), device)
	default:
		return false
	}
}

// polls looks into the array of a poll.
func (c call) polls(pid int, device uint64) bool {
	const size = 8 // of a struct pollfd: fd, events, revents
	n := min(c.args[1], maxWaited)
	fds, ok := memoryOf(pid, c.args[0], int(n)*size)
	if !ok {
		return false
	}
	for ; len(fds) >= size; fds = fds[size:] {
		fd := int(int32(binary.NativeEndian.Uint32(fds)))
		if events := binary.NativeEndian.Uint16(fds[4:]); events&unix.POLLIN != 0 && fd >= 0 && isTerminal(pid, fd, device) {
			return true
		}
	}
	return false
}

// selects looks into the set of a select that is to become readable.
func (c call) selects(pid int, device uint64) bool {
	n := int(min(c.args[0], maxWaited))
	if c.args[1] == 0 {
		return false
	}
	set, ok := memoryOf(pid, c.args[1], (n+63)/64*8)
	if !ok {
		return false
	}
	for fd := range n {
		if binary.NativeEndian.Uint64(set[fd/64*8:])>>(fd%64)&1 != 0 && isTerminal(pid, fd, device) {
			return true
		}
	}
	return false
}

// epolls asks the kernel what an epoll descriptor watches.
func epolls(pid, fd int, device uint64) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // tfd: 0 events: 19 data: …
		if len(f) < 4 || f[0] != "tfd:" {
			continue
		}
		watched, err1 := strconv.Atoi(f[1])
		events, err2 := strconv.ParseUint(f[3], 16, 32)
		if err1 == nil && err2 == nil && events&unix.EPOLLIN != 0 && isTerminal(pid, watched, device) {
			return true
		}
	}
	return false
}

// memoryOf reads a process's memory.
func memoryOf(pid int, address uint64, n int) ([]byte, bool) {
	if n == 0 {
		return nil, false
	}
	buf := make([]byte, n)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: n}}, 0)
	return buf, err == nil && got == n
}

// The kinds of calls in which a process waits for input.
const (
	callRead = iota + 1
	callPoll
	callSelect
	callEpoll
)
