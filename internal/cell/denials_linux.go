package cell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/state"
)

// The log of denials is memory that the daemon writes to, and that the TRL in the
// cell can only read: what the network of its session refused. It begins with the
// number of all denials so far, and has the last ones in a ring of entries of one
// size. An entry is its number, its length and the denial, encoded.
const (
	logCount   = 64   // entries: more than the result of a command tells
	entrySize  = 1024 // enough for both texts
	entryHead  = 8 + 2
	maxLogText = (entrySize - entryHead) / 2 * 9 / 10 // of a host or a message; the rest is for the encoding
	logSize    = (1 + logCount) * entrySize
)

// entryAt returns where the entry of a denial is.
func entryAt(number int64) int64 { return (1 + number%logCount) * entrySize }

// denialLog is the daemon's end of a log. It is safe for concurrent use.
type denialLog struct {
	file *os.File

	mu    sync.Mutex
	count int64
}

// newDenialLog makes a log, and returns what the TRL in the cell gets of it. Both
// must be closed.
func newDenialLog() (_ *denialLog, reader *os.File, err error) {
	fd, err := unix.MemfdCreate("denials", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make the log of denials: %w", err)
	}
	file := os.NewFile(uintptr(fd), "denials")
	err = file.Truncate(logSize)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil {
		reader, err = os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	}
	if err == nil {
		err = file.Chmod(0) // what has a descriptor to read can't open another to write
	}
	if err != nil {
		_ = reader.Close() // may be nil; nothing was written
		return nil, nil, errors.Join(fmt.Errorf("make the log of denials: %w", err), file.Close())
	}
	return &denialLog{file: file}, reader, nil
}

// adoptDenialLog continues a log of an earlier daemon.
func adoptDenialLog(fd int) *denialLog {
	file := os.NewFile(uintptr(fd), "denials")
	return &denialLog{file: file, count: max((&Denials{file}).Count(), 0)}
}

// add appends a denial.
func (l *denialLog) add(d api.NetworkDenial) error {
	d.Host, d.Message = d.Host[:min(len(d.Host), maxLogText)], d.Message[:min(len(d.Message), maxLogText)]
	text := state.Encode((*loggedDenial)(&d).fields)
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := binary.LittleEndian.AppendUint64(nil, uint64(l.count))
	entry = binary.LittleEndian.AppendUint16(entry, uint16(len(text)))
	if _, err := l.file.WriteAt(append(entry, text...), entryAt(l.count)); err != nil {
		return err
	}
	l.count++ // last: a reader believes only what is counted
	_, err := l.file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(l.count)), 0)
	return err
}

// Denials is a log of denials as the TRL in the cell reads it. It is safe for
// concurrent use.
type Denials struct{ file *os.File }

// OpenDenials returns the log of denials among the files that were passed; nil if there is none.
func OpenDenials(files map[string]int) *Denials {
	fd, ok := files[fileDenials]
	if !ok {
		return nil
	}
	return &Denials{os.NewFile(uintptr(fd), fileDenials)}
}

// Count returns how many there were so far.
func (d *Denials) Count() int64 {
	var b [8]byte
	if _, err := d.file.ReadAt(b[:], 0); err != nil {
		return 0 // memory of this size can always be read
	}
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// Since returns the denials after the first so many. If there are more than most,
// they are the first ones and the last; each says how many are left out before it.
func (d *Denials) Since(first int64, most int) (list []api.NetworkDenial) {
	left := 0
	for number, count := first, d.Count(); number < count; number++ {
		if oldest := count - logCount + 1; number < oldest { // overwritten, or about to be
			left += int(oldest - number)
			number = oldest
		}
		denial, ok := d.read(number)
		if !ok {
			left++
			continue
		}
		denial.Suppressed, left = left, 0
		if len(list) == most {
			denial.Suppressed += 1 + list[most-1].Suppressed
			list[most-1] = denial
			continue
		}
		list = append(list, denial)
	}
	return list
}

// read returns a denial, unless a later one has overwritten it.
func (d *Denials) read(number int64) (denial api.NetworkDenial, ok bool) {
	entry := make([]byte, entrySize)
	if _, err := d.file.ReadAt(entry, entryAt(number)); err != nil {
		return denial, false
	}
	size := int(binary.LittleEndian.Uint16(entry[8:]))
	if binary.LittleEndian.Uint64(entry) != uint64(number) || size > entrySize-entryHead {
		return denial, false
	}
	err := state.Decode(entry[entryHead:entryHead+size], (*loggedDenial)(&denial).fields)
	// The writer may have begun to overwrite it meanwhile.
	return denial, err == nil && d.Count()-number < logCount
}

// loggedDenial is a denial as a log has it.
type loggedDenial api.NetworkDenial

func (d *loggedDenial) fields(c *state.Coder) {
	state.Text(c, 1, &d.Host)
	state.Int(c, 2, &d.Port)
	state.Text(c, 3, &d.Message)
}
