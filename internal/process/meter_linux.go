package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// reader reads a file of one cgroup.
type reader func(file string, buf []byte) ([]byte, error)

// reader returns the reader of a group.
func (r *cgroupRoot) reader(name string) reader {
	return func(file string, buf []byte) ([]byte, error) { return r.read(name, file, buf) }
}

// number reads a file that has one number.
func (read reader) number(file string) (int64, error) {
	var buf [64]byte
	b, err := read(file, buf[:])
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
}

// counter reads a number after a word in a file of such lines; 0 if it is not there.
func (read reader) counter(file, word string) int64 {
	var buf [1024]byte
	b, err := read(file, buf[:])
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte(word+" ")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n
		}
	}
	return 0
}

// The files of a cgroup that tell what its limits did.
const (
	memoryEvents = "memory.events"
	memoryPeak   = "memory.peak"
	pidsEvents   = "pids.events"
	pidsPeak     = "pids.peak"
	cpuStat      = "cpu.stat"
)

// MeterFiles opens the files that tell a Meter in another process what the limits of
// the tree do, as far as the kernel has them; none for a tree without a limit of all
// its processes together. The caller must close them.
func (t *Tree) MeterFiles() (names []string, files []*os.File, err error) {
	l, cg := t.limits.Load(), t.cgroup()
	if l == nil || cg == nil || !l.grouped() {
		return nil, nil, nil
	}
	wanted := []string{cpuStat}
	if l.MemoryBytes > 0 {
		wanted = append(wanted, memoryEvents, memoryPeak)
	}
	if l.PIDs > 0 {
		wanted = append(wanted, pidsEvents, pidsPeak)
	}
	for _, name := range wanted {
		f, err := cg.openFile(t.name, name)
		switch {
		case errors.Is(err, unix.ENOENT): // an older kernel
		case err != nil:
			return names, files, fmt.Errorf("open %s: %w", name, err)
		default:
			names, files = append(names, name), append(files, f)
		}
	}
	return names, files, nil
}

// openFile opens a file of a group to read it, and memory.peak also to reset it, which
// concerns only those who read through the same descriptor.
func (r *cgroupRoot) openFile(name, file string) (*os.File, error) {
	mode := unix.O_RDONLY
	if file == memoryPeak {
		mode = unix.O_RDWR
	}
	fd, err := unix.Openat(r.fd, name+"/"+file, mode|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && mode != unix.O_RDONLY { // before Linux 6.12
		fd, err = unix.Openat(r.fd, name+"/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), file), nil
}

// resetPeak makes a file of memory.peak tell the peak since now. It reports whether
// the kernel can do that.
func resetPeak(f *os.File) bool {
	_, err := f.WriteString("reset\n")
	return err == nil
}

// Meter tells what the limits of the cgroup that a whole host is in do, through files
// of Tree.MeterFiles.
type Meter struct {
	files  map[string]*os.File
	limits Limits // 0: not limited; the numbers do not matter
}

// NewMeter returns a meter of the files among those that were passed; nil if there are none.
func NewMeter(passed map[string]int) *Meter {
	m := &Meter{files: map[string]*os.File{}}
	for _, name := range []string{cpuStat, memoryEvents, memoryPeak, pidsEvents, pidsPeak} {
		if fd, ok := passed[name]; ok {
			m.files[name] = os.NewFile(uintptr(fd), name)
		}
	}
	if len(m.files) == 0 {
		return nil
	}
	m.limits.CPU = 1 // without a limit, nothing has to wait for it
	if m.files[memoryEvents] != nil {
		m.limits.MemoryBytes = 1
	}
	if m.files[pidsEvents] != nil {
		m.limits.PIDs = 1
	}
	return m
}

func (m *Meter) read(file string, buf []byte) ([]byte, error) {
	f := m.files[file]
	if f == nil {
		return nil, unix.ENOENT
	}
	n, err := unix.Pread(int(f.Fd()), buf, 0)
	return buf[:max(n, 0)], err
}

// meter returns the limits that hold for the tree or for its whole host, and how to
// read what they do; nil if the kernel enforces none.
func (t *Tree) meter() (Limits, reader) {
	if m := t.host.meter; m != nil {
		return m.limits, m.read
	}
	l, cg := t.limits.Load(), t.cgroup()
	if l == nil || cg == nil {
		return Limits{}, nil
	}
	return *l, cg.reader(t.name)
}

// Metered reports whether limits hold for all trees of the host together.
func (h *Host) Metered() bool { return h.meter != nil }

// LimitCounters counts what the kernel did to a tree because of its limits.
type LimitCounters struct {
	OOMs      int64         // the memory was used up
	OOMKills  int64         // processes that were killed for lack of memory
	Forks     int64         // processes and threads that were not started
	Throttled int64         // periods in which processes had to wait for a processor
	CPU       time.Duration // that the tree has used
}

// Counters returns the counters of a tree with limits, and zeros for others.
func (t *Tree) Counters() (c LimitCounters) {
	l, read := t.meter()
	if read == nil {
		return c
	}
	c.CPU = time.Duration(read.counter(cpuStat, "usage_usec")) * time.Microsecond
	if l.MemoryBytes > 0 {
		c.OOMs, c.OOMKills = read.counter(memoryEvents, "oom"), read.counter(memoryEvents, "oom_kill")
	}
	if l.PIDs > 0 {
		c.Forks = read.counter(pidsEvents, "max")
	}
	if l.CPU > 0 {
		c.Throttled = read.counter(cpuStat, "nr_throttled")
	}
	return c
}

// Peaks measures the most that a tree with limits uses at once.
type Peaks struct {
	limits Limits
	read   reader
	memory *os.File // reads the peak since it was opened; nil: read knows it
}

// Peaks returns the peaks since the tree was created; nil for a tree without limits.
func (t *Tree) Peaks() *Peaks {
	l, read := t.meter()
	if read == nil || !l.grouped() {
		return nil
	}
	return &Peaks{limits: l, read: read}
}

// PeaksFromNow is Peaks, but of memory since now if the kernel can tell. The caller
// must call Read.
func (t *Tree) PeaksFromNow() *Peaks {
	p := t.Peaks()
	if p == nil || p.limits.MemoryBytes == 0 {
		return p
	}
	if m := t.host.meter; m != nil {
		if f := m.files[memoryPeak]; f != nil {
			resetPeak(f) // otherwise it stays that of the session
		}
		return p
	}
	f, err := t.cgroup().openFile(t.name, memoryPeak)
	if err != nil {
		return p
	}
	if !resetPeak(f) {
		_ = f.Close() // nothing was written
		return p
	}
	p.memory = f
	return p
}

// Read ends the measurement. A number that the kernel does not know is 0.
func (p *Peaks) Read() (memory, pids int64) {
	if p == nil {
		return 0, 0
	}
	if p.memory != nil {
		own := reader(func(_ string, buf []byte) ([]byte, error) {
			n, err := unix.Pread(int(p.memory.Fd()), buf, 0)
			return buf[:max(n, 0)], err
		})
		memory, _ = own.number(memoryPeak)
		_ = p.memory.Close() // nothing was written that could be lost
	} else if p.limits.MemoryBytes > 0 {
		memory, _ = p.read.number(memoryPeak)
	}
	if p.limits.PIDs > 0 {
		pids, _ = p.read.number(pidsPeak)
	}
	return memory, pids
}
