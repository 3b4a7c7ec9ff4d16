package shell

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/process"
)

// control is the control pipe: the shell's script.
type control struct {
	w       heldFD // writing end, non-blocking
	r       heldFD // reading end, held only while the shell opens it by path
	inode   uint64 // identifies the shell's end in /proc
	packets bool   // packet mode
}

// errStuck means that the shell lives but does not answer.
var errStuck = errors.New("the shell does not answer")

// openControl makes a control pipe. The writing end is held as long as the shell
// lives: a shell that reads the end of its script exits. After an error the caller
// must release what was returned.
func (k keeper) openControl(packets bool) (control, error) {
	c := control{w: noFD, r: noFD, packets: packets}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return c, fmt.Errorf("control pipe: %w", err)
	}
	flags := unix.O_NONBLOCK // a shell that stopped reading must not block the daemon
	if packets {
		flags |= unix.O_DIRECT
	} else {
		// One page is enough for the lines of one command, and ten thousand
		// pipes of sixteen would exceed the limit of an unprivileged user.
		_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	}
	_, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETFL, flags)
	if err == nil {
		c.inode, err = inodeOf(p[1])
	}
	if err == nil {
		c.w, err = k.keepFD(p[1])
	}
	if err != nil {
		return c, errors.Join(fmt.Errorf("control pipe: %w", err), closeFDs(p[:]...))
	}
	if c.r, err = k.keepAndClose(p[0]); err != nil {
		return c, fmt.Errorf("control pipe: %w", err)
	}
	return c, k.Sync()
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// send writes packets to the control pipe, with one write: whenever this
// process is killed, the shell gets all of them or none.
func (c *control) send(packets ...string) error {
	line := packets[0]
	for _, p := range packets[1:] {
		if c.packets {
			// A write is cut into packets of a page; the shell may drop the blanks.
			page := os.Getpagesize()
			line += strings.Repeat(" ", (page-len(line)%page)%page)
		}
		line += p
	}
	if c.packets {
		c.awaitRoom()
	}
	n, err := nowait.Write(c.w.fd, []byte(line))
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

// awaitRoom waits until the control pipe is empty, if it has room for one write only:
// a user who has many pipes gets such. In packet mode each packet takes a page.
func (c *control) awaitRoom() {
	size, err := unix.FcntlInt(uintptr(c.w.fd), unix.F_GETPIPE_SZ, 0)
	if err != nil || size > fewPackets*os.Getpagesize() {
		return
	}
	for deadline := time.Now().Add(roomTime); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		if unread, err := unix.IoctlGetInt(c.w.fd, unix.TIOCINQ); err != nil || unread == 0 { // the kernel's FIONREAD
			return
		}
	}
}

// isAwaitedBy reports whether a process is blocked in read(2) on the control pipe
// with nothing left in it.
func (c *control) isAwaitedBy(pid int) bool {
	if n, err := unix.IoctlGetInt(c.w.fd, unix.TIOCINQ); err != nil || n != 0 {
		return false
	}
	fd, reads := process.ReadingFD(pid)
	if !reads {
		return false
	}
	link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(fd))
	return err == nil && link == "pipe:["+strconv.FormatUint(c.inode, 10)+"]"
}
