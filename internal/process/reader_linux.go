package process

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reader is a process that only waits for a terminal's input.
type Reader struct {
	PID     int
	Command string
	Hidden  bool // input is read by line and not echoed
}

// ReaderOf returns the process among pids that waits for input on the terminal
// with the given master: one of its threads is blocked in a read of the terminal,
// or in a call that waits until it is readable; its first thread does not run
// (others may, for example a garbage collector); and no unread input is pending.
// The kernel reports this; it is not a guess from the process's output. Only
// processes of the terminal's foreground group count: the kernel would stop
// others for reading.
func ReaderOf(pids []int, master int) (Reader, bool) { return readerOf(pids, master, maxNested) }

// maxNested bounds how many levels of nested terminals are examined: sudo, script
// and a multiplexer may be stacked.
const maxNested = 4

func readerOf(pids []int, master, nested int) (Reader, bool) {
	number, err1 := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	foreground, err2 := unix.IoctlGetInt(master, unix.TIOCGPGRP)
	// Check this first: a process that waits after no input was pending has read
	// it all.
	if len(pids) == 0 || nested == 0 || err1 != nil || err2 != nil || hasUnreadInput(master) {
		return Reader{}, false
	}
	device := unix.Mkdev(slaveMajor, number)
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err != nil || group != foreground {
			continue
		}
		w := waitsFor(pid, device)
		switch {
		case w.denied:
		case !w.found || (w.running || w.multiThreaded && len(w.masters) == 0) && holdsMaster(pid):
			continue // a relay with several threads that is busy is not seen waiting for both sides
		case len(w.masters) > 0:
			// It must still wait, with nothing left to relay: then everything
			// written on the inner terminal has arrived on this one.
			if r, ok := readerBehindRelay(pids, pid, w.masters, nested-1); ok {
				if w := waitsFor(pid, device); w.found && !w.writes {
					return r, true
				}
			}
			continue
		}
		// Read only now: the process may have changed the settings just before it
		// began to wait.
		settings, err1 := unix.IoctlGetTermios(master, unix.TCGETS)
		st, err2 := readStat(pid)
		if err1 != nil || err2 != nil || st.dead() {
			continue
		}
		hidden := hidesInput(settings)
		// All that is known of another user's process, such as sudo, is that it
		// sleeps and that the terminal is set up for a password.
		if w.denied && (!hidden || st.state != 'S') {
			continue
		}
		return Reader{PID: pid, Command: commandLine(pid, st.comm), Hidden: hidden}, true
	}
	return Reader{}, false
}

// hasUnreadInput reports whether typed input is pending that would end a wait for
// it: the waiting process has not run since.
func hasUnreadInput(master int) bool {
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if errno != 0 {
		return false
	}
	defer unix.Close(int(slave))
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(slave), Events: unix.POLLIN}}, 0)
	return err == nil && ready > 0
}

// hidesInput reports whether a terminal reads lines without echo.
func hidesInput(settings *unix.Termios) bool {
	return settings.Lflag&unix.ICANON != 0 && settings.Lflag&unix.ECHO == 0
}

// readerBehindRelay looks at the terminals that a process opened and relays input
// to, as sudo and script do. A relay always waits for both sides, so this checks
// whether a process waits on the inner terminal, with no output left to relay
// back.
func readerBehindRelay(pids []int, relay int, masters []int, nested int) (Reader, bool) {
	pidfd, err := unix.PidfdOpen(relay, 0)
	if err != nil {
		return Reader{}, false
	}
	defer unix.Close(pidfd)
	for _, fd := range masters {
		master, err := unix.PidfdGetfd(pidfd, fd, 0)
		if err != nil {
			continue
		}
		r, ok := readerOf(pids, master, nested)
		unread, err := unix.Poll([]unix.PollFd{{Fd: int32(master), Events: unix.POLLIN}}, 0)
		unix.Close(master)
		if ok && unread == 0 && err == nil {
			return r, true
		}
	}
	return Reader{}, false
}

// threadWaits is what the threads of a process wait for.
type threadWaits struct {
	denied        bool  // the kernel denies access
	found         bool  // a thread waits for the terminal
	writes        bool  // a thread waits to write
	multiThreaded bool  // there is more than one thread
	running       bool  // a thread other than the first is in no system call
	masters       []int // masters of other terminals that a thread waits for
}

// waitsFor examines every thread of a process.
func waitsFor(pid int, device uint64) (w threadWaits) {
	dir := "/proc/" + strconv.Itoa(pid)
	threads := numbersIn(dir + "/task")
	w.multiThreaded = len(threads) > 1
	for _, tid := range threads {
		var small [256]byte
		b, err := readKernelFile(unix.AT_FDCWD, dir+"/task/"+strconv.Itoa(tid)+"/syscall", small[:])
		call, ok := parseCall(string(b))
		if err != nil || !ok {
			if tid == pid {
				return threadWaits{denied: errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)} // or it runs
			}
			w.running = true
			continue
		}
		w.writes = w.writes || call.writes(pid)
		for _, fd := range call.waitsOn(pid) {
			switch deviceOf(pid, fd) {
			case device, ttyDevice:
				w.found = true
			case masterDevice:
				w.masters = append(w.masters, fd)
			}
		}
	}
	return w
}

// holdsMaster reports whether a process has the master of a terminal open.
func holdsMaster(pid int) bool {
	return slices.ContainsFunc(numbersIn("/proc/"+strconv.Itoa(pid)+"/fd"), func(fd int) bool { return deviceOf(pid, fd) == masterDevice })
}

// call is the system call that a thread is in.
type call struct {
	number int
	args   [6]uint64
}

// parseCall parses /proc/PID/syscall. It returns false for a thread that runs, or
// is stopped outside of a system call.
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

// ReadingFD returns the descriptor that the first thread of a process is blocked
// reading from; false means that it is not in read(2).
func ReadingFD(pid int) (fd int, ok bool) {
	c, ok := blockedIn(pid)
	return int(int32(c.args[0])), ok && c.number == unix.SYS_READ
}

// AwaitsChild reports whether the first thread of a process waits for a child.
func AwaitsChild(pid int) bool {
	c, ok := blockedIn(pid)
	return ok && (c.number == unix.SYS_WAIT4 || c.number == unix.SYS_WAITID)
}

// blockedIn returns the system call that the first thread of a process is blocked
// in; false means none.
func blockedIn(pid int) (call, bool) {
	var small [256]byte
	b, err := readKernelFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/syscall", small[:])
	if err != nil {
		return call{}, false
	}
	return parseCall(string(b))
}

// slaveMajor is the major number of terminal slaves. Their minor number is that of
// the terminal, which exceeds 255 on a machine with many.
const slaveMajor = 136

var (
	// ttyDevice is /dev/tty, which programs open to reach the terminal whatever
	// their stdin is.
	ttyDevice = unix.Mkdev(5, 0)
	// masterDevice is the device of every master.
	masterDevice = unix.Mkdev(5, 2)
)

// deviceOf returns the device number behind a process's descriptor, 0 if it is
// not a character device.
func deviceOf(pid, fd int) uint64 {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(fd), &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0
	}
	return st.Rdev
}

// maxWaited bounds the descriptors examined per call; a process that waits for
// more is a server.
const maxWaited = 256

// waitsOn lists the descriptors that the call waits to read from.
func (c call) waitsOn(pid int) []int {
	switch waitCalls[c.number] {
	case callRead:
		return []int{int(int32(c.args[0]))}
	case callPoll:
		return c.pollFDs(pid, unix.POLLIN)
	case callSelect:
		return c.selectFDs(pid, c.args[1])
	case callEpoll:
		return epollFDs(pid, int(int32(c.args[0])))
	default:
		return nil
	}
}

// writes reports whether the call waits for a descriptor to become writable. With
// epoll it cannot tell: programs often register for all events once.
func (c call) writes(pid int) bool {
	switch waitCalls[c.number] {
	case callPoll:
		return len(c.pollFDs(pid, unix.POLLOUT)) > 0
	case callSelect:
		return len(c.selectFDs(pid, c.args[2])) > 0
	default:
		return false
	}
}

// pollFDs returns the descriptors in a poll's array that wait for event.
func (c call) pollFDs(pid int, event uint16) (waited []int) {
	const size = 8 // of a struct pollfd: fd, events, revents
	n := min(c.args[1], maxWaited)
	fds, ok := readMemory(pid, c.args[0], int(n)*size)
	if !ok {
		return nil
	}
	for ; len(fds) >= size; fds = fds[size:] {
		fd := int(int32(binary.NativeEndian.Uint32(fds)))
		if events := binary.NativeEndian.Uint16(fds[4:]); events&event != 0 && fd >= 0 {
			waited = append(waited, fd)
		}
	}
	return waited
}

// selectFDs returns the descriptors in one of the sets of a select, by its
// address.
func (c call) selectFDs(pid int, address uint64) (waited []int) {
	n := int(min(c.args[0], maxWaited))
	if address == 0 {
		return nil
	}
	set, ok := readMemory(pid, address, (n+63)/64*8)
	if !ok {
		return nil
	}
	for fd := range n {
		if binary.NativeEndian.Uint64(set[fd/64*8:])>>(fd%64)&1 != 0 {
			waited = append(waited, fd)
		}
	}
	return waited
}

// epollFDs returns the descriptors that an epoll descriptor watches for input.
func epollFDs(pid, fd int) (waited []int) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // tfd: 0 events: 19 data: …
		if len(f) < 4 || f[0] != "tfd:" {
			continue
		}
		watched, err1 := strconv.Atoi(f[1])
		events, err2 := strconv.ParseUint(f[3], 16, 32)
		if err1 == nil && err2 == nil && events&unix.EPOLLIN != 0 {
			waited = append(waited, watched)
		}
	}
	return waited
}

// readMemory reads another process's memory.
func readMemory(pid int, address uint64, n int) ([]byte, bool) {
	if n == 0 {
		return nil, false
	}
	buf := make([]byte, n)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: n}}, 0)
	return buf, err == nil && got == n
}

// The kinds of system calls in which a process waits for input.
const (
	callRead = iota + 1
	callPoll
	callSelect
	callEpoll
)
