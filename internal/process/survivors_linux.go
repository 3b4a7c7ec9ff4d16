package process

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/nowait"
)

// Survivors is Marked for a command that has ended, when no process in except is
// starting others. Without cgroups Marked walks /proc, which takes longer than most
// commands: Survivors does not, if the kernel has created no process on the machine
// since it last found none here.
func (t *Tree) Survivors(mark uint32, except ...int) []int {
	if t.cgroup() != nil {
		return t.Marked(mark, except...)
	}
	newest, known := t.host.newest.read()
	began := time.Now()
	t.alone.Lock()
	defer t.alone.Unlock()
	if known && newest == t.alone.newest && began.Sub(t.alone.at) < aloneFor {
		t.alone.at = began
		return nil
	}
	others := false
	left := t.pickExcept(except, func(_ int, m uint32) bool {
		others = true
		return m == mark&maxMark
	})
	t.alone.newest, t.alone.at = 0, began
	if known && !others {
		t.alone.newest = newest
	}
	return left
}

// aloneFor is how long the number of the newest process says whether there was
// another: within it the kernel can't use up all numbers and begin again.
const aloneFor = 50 * time.Millisecond

// alone is when a tree had only processes that start no others.
type alone struct {
	sync.Mutex
	at     time.Time
	newest int // number of the newest process of the machine then; 0: there were others
}

// newestProcess reads the number of the newest process of this PID namespace from
// /proc/loadavg. It is a descriptor; -1 means that the kernel does not say.
type newestProcess int

func openNewestProcess() newestProcess {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	// In some containers another program provides the file, and is not exact.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		_ = unix.Close(fd)
		return -1
	}
	return newestProcess(fd)
}

func (n newestProcess) read() (pid int, known bool) {
	if n < 0 {
		return 0, false
	}
	var buf [128]byte
	size, err := nowait.Pread(int(n), buf[:], 0)
	if err != nil || size <= 0 {
		return 0, false
	}
	line := bytes.TrimSpace(buf[:size])
	pid, err = strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
	return pid, err == nil && pid > 0 // a kernel that is not Linux says 0
}

// close must not be called while read may be in progress.
func (n newestProcess) close() {
	if n >= 0 {
		_ = unix.Close(int(n))
	}
}
