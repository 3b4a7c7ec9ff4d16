package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tag is a 64-bit value of a resource limit that the kernel keeps, inherits
// and no longer enforces:
//
//	bit 62      1, so that it is far above any real limit and below infinity
//	bits 46–61  the host (daemon)
//	bits 20–45  the tree (session)
//	bits 0–19   the mark (command); all ones in the hard limit
//
// The soft limit carries the mark and changes with each command. The hard limit
// carries host and tree. A program that lowers it loses its tag; its cgroup still
// tracks it then, and without cgroups it is lost.
const (
	tagBit    = uint64(1) << 62
	markBits  = 20
	treeBits  = 26
	maxMark   = 1<<markBits - 1
	maxTree   = 1<<treeBits - 1
	hostShift = treeBits + markBits
)

// tagger reads and writes tags in one particular limit.
type tagger struct {
	resource int
	name     string // as /proc/PID/limits spells it
}

// newTagger picks the limit to use. RLIMIT_LOCKS has had no effect since Linux
// 2.4.25 and RLIMIT_RSS since 2.4.30. RLIMIT_RTTIME is enforced, but counts
// microseconds: a tag is more than a hundred thousand years. The second is for a
// daemon that itself runs inside a session of another one, which already uses the
// first, and the third for one inside that.
func newTagger() (tagger, error) {
	for _, t := range []tagger{
		{unix.RLIMIT_LOCKS, "Max file locks"}, {unix.RLIMIT_RSS, "Max resident set"}, {unix.RLIMIT_RTTIME, "Max realtime timeout"},
	} {
		var rl unix.Rlimit
		if err := unix.Prlimit(0, t.resource, nil, &rl); err == nil && rl.Max == unix.RLIM_INFINITY {
			return t, nil
		}
	}
	return tagger{}, errors.New("no free resource limit to tag processes with: RLIMIT_LOCKS, RLIMIT_RSS and RLIMIT_RTTIME are all limited here; " +
		"raise one of their hard limits to unlimited")
}

func makeTag(host uint16, tree, mark uint32) uint64 {
	return tagBit | uint64(host)<<hostShift | uint64(tree)<<markBits | uint64(mark)
}

// set tags a process. Processes that it starts from then on inherit the tag.
func (t tagger) set(pid int, host uint16, tree, mark uint32) error {
	rl := unix.Rlimit{Cur: makeTag(host, tree, mark), Max: makeTag(host, tree, maxMark)}
	if err := unix.Prlimit(pid, t.resource, &rl, nil); err != nil {
		return fmt.Errorf("tag process %d: %w", pid, err)
	}
	return nil
}

// read returns the tag of a process, including one that is dead but not reaped.
func (t tagger) read(pid int) (host uint16, tree, mark uint32, ok bool) {
	rl, err := t.limit(pid)
	if err == unix.EPERM { // it changed its uid; every user can read the file
		if rl, ok = t.readFile(pid); !ok {
			return 0, 0, 0, false
		}
	} else if err != nil {
		return 0, 0, 0, false
	}
	return parseTag(rl)
}

// limit asks the kernel for the limit of a process. The error is EPERM for that of
// another user.
func (t tagger) limit(pid int) (rl unix.Rlimit, err error) {
	err = unix.Prlimit(pid, t.resource, nil, &rl)
	return rl, err
}

func parseTag(rl unix.Rlimit) (host uint16, tree, mark uint32, ok bool) {
	if rl.Max&tagBit == 0 || rl.Max == unix.RLIM_INFINITY {
		return 0, 0, 0, false
	}
	host = uint16(rl.Max >> hostShift)
	tree = uint32(rl.Max>>markBits) & maxTree
	if rl.Cur&^maxMark == rl.Max&^maxMark {
		mark = uint32(rl.Cur) & maxMark
	}
	return host, tree, mark, true
}

// lowered reports whether a process has a limit that is not a tag. It had one of
// our tags then, and lost it.
func (t tagger) lowered(pid int) bool {
	rl, err := t.limit(pid)
	return err == nil && rl.Max != unix.RLIM_INFINITY && rl.Max&tagBit == 0
}

func (t tagger) readFile(pid int) (rl unix.Rlimit, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return rl, false
	}
	for line := range bytes.Lines(b) {
		rest, found := bytes.CutPrefix(line, []byte(t.name))
		if !found {
			continue
		}
		f := bytes.Fields(rest)
		if len(f) < 2 {
			return rl, false
		}
		limit := func(b []byte) uint64 {
			v, err := strconv.ParseUint(string(b), 10, 64)
			if err != nil {
				return unix.RLIM_INFINITY // "unlimited"
			}
			return v
		}
		return unix.Rlimit{Cur: limit(f[0]), Max: limit(f[1])}, true
	}
	return rl, false
}
