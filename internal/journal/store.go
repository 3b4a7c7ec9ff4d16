package journal

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
)

var (
	// ErrReleased means that the journal's bytes have been freed.
	ErrReleased = errors.New("journal: released")

	// ErrTotalQuota is why a journal is lossy when the spill files of all
	// journals together have reached Config.TotalQuota.
	ErrTotalQuota = errors.New("journal: total quota of spill files reached")
)

// Config sets the limits of a Store. A value of zero (or less) means the
// default.
type Config struct {
	// Dir is where spill files are created. They have no name there. Default:
	// os.TempDir().
	Dir string

	// ExecMemory is how many bytes of one journal, including its index, are
	// held in memory before it spills, at most 1 GiB. Default: 64 KiB, which
	// nearly every command stays below, so that it needs no file.
	ExecMemory int64

	// TotalMemory is how many bytes all journals hold in memory. Past it a
	// journal spills at its next append; past twice as much, the indexes and
	// the tables of times stop growing too. Default: 64 MiB.
	TotalMemory int64

	// ExecQuota is how many bytes of one journal are kept: half of it for the
	// first bytes, half of it for the last. Default: 256 MiB.
	ExecQuota int64

	// TotalQuota is how many bytes the spill files of all journals hold. Past
	// it new bytes are dropped as a gap and only a small tail is kept, in
	// memory. It is checked before each step of a write, so journals written at
	// the same moment may exceed it by one step (at most 1 MiB) each. Default:
	// 8 GiB.
	TotalQuota int64

	// Keeper holds the descriptors of journals, so that they outlive this
	// process. Default: holder.NewLocalKeeper(), with which they don't.
	Keeper holder.Keeper

	// Inexact, if not nil, is called the first time that a journal can't be
	// kept exactly, with the reason: bytes in transit when this process is
	// killed are lost then.
	Inexact func(error)

	// Stopped, if not nil, is called whenever the file of a journal takes no
	// more bytes for a reason other than the journal's own quota.
	Stopped func(error)
}

const (
	// smallJournal is how much a journal may hold in memory even when the
	// daemon is past TotalMemory, as content and again as tail. A spill file
	// costs a descriptor, an inode and at least one page: moving less than a
	// page there frees nothing.
	smallJournal = 4 << 10

	// tailMemory is the size of the ring in memory that keeps the newest bytes
	// when the file takes no more: the content of a full default pipe, or
	// several screens of error messages.
	tailMemory = 64 << 10

	// maxRuns bounds each of the two indexes (head and tail) of one journal.
	// 16,384 runs of 8 bytes are 128 KiB. A log that changes stream with every
	// line keeps its first and last 16,384 lines; a program that changes stream
	// with every byte costs the daemon 256 KiB, not gigabytes.
	maxRuns = 16 << 10

	// minRuns is what an index may always hold, however far the daemon is past
	// its memory: 64 runs are 512 bytes, and without any, the tail could not be
	// separated by stream at all.
	minRuns = 64
)

// Store holds what the journals of one daemon share: the limits, the counters
// and the live segments. It is safe for concurrent use.
type Store struct {
	cfg        Config
	newBounds  bounds // of new journals
	maxRuns    int
	maxMarks   int
	tailMemory int64

	resumeAfter time.Duration
	resumeRoom  int64

	began time.Time // zero of the clock of its journals
	clock int64     // the same moment on the system's monotonic clock, in nanoseconds

	memory   atomic.Int64
	spilled  atomic.Int64
	captured atomic.Int64
	journals atomic.Int64
	lossy    atomic.Int64

	bufs        sync.Pool // *[pullSize]byte
	segments    freelist.List[*liveSegment]
	lastSegment atomic.Uint64 // number of the last journal that took a segment
	inexactOnce sync.Once     // for Config.Inexact
}

// Stats are the counters of a store.
type Stats struct {
	MemoryBytes   int64 // held in memory: content, indexes, times, tails
	SpilledBytes  int64 // held in spill files
	CapturedBytes int64 // ever appended, whether still held or not
	Journals      int64 // created and not yet released
	Lossy         int64 // journals that ever dropped bytes for a reason other than their own quota
}

// NewStore returns a store without journals. A daemon has one.
func NewStore(cfg Config) *Store {
	cfg.Dir = cmp.Or(cfg.Dir, os.TempDir())
	cfg.ExecMemory = orDefault(cfg.ExecMemory, 64<<10)
	cfg.TotalMemory = orDefault(cfg.TotalMemory, 64<<20)
	cfg.ExecQuota = orDefault(cfg.ExecQuota, 256<<20)
	cfg.TotalQuota = orDefault(cfg.TotalQuota, 8<<30)
	// Content moves from memory to the head of the file in one piece.
	cfg.ExecMemory = min(cfg.ExecMemory, cfg.ExecQuota/2, maxSegmentMemory)
	if cfg.Keeper == nil {
		cfg.Keeper = holder.NewLocalKeeper()
	}

	s := &Store{
		cfg:        cfg,
		newBounds:  bounds{data: cfg.ExecMemory, headQuota: cfg.ExecQuota / 2, ringQuota: cfg.ExecQuota - cfg.ExecQuota/2},
		maxRuns:    maxRuns,
		maxMarks:   maxMarks,
		tailMemory: tailMemory,

		resumeAfter: resumeAfter,
		resumeRoom:  resumeRoom,

		began: time.Now(),
		clock: clockNow(),
	}
	// Numbers of journals are not reused after a restart.
	s.lastSegment.Store(uint64(s.began.UnixNano()))
	s.segments.Make, s.segments.End = s.makeSegment, s.closeSegment
	s.bufs.New = func() any { return new([pullSize]byte) }
	return s
}

func orDefault(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}

// New returns an empty journal. The caller owns it and must call Release.
func (s *Store) New() *Journal {
	s.journals.Add(1)
	return &Journal{store: s, bounds: s.newBounds, origin: time.Since(s.began)}
}

// Stats returns the current counters. They are read one after the other, not
// atomically.
func (s *Store) Stats() Stats {
	return Stats{
		MemoryBytes:   s.memory.Load(),
		SpilledBytes:  s.spilled.Load(),
		CapturedBytes: s.captured.Load(),
		Journals:      s.journals.Load(),
		Lossy:         s.lossy.Load(),
	}
}

// indexMayGrow reports whether an index of n runs may get one more.
func (s *Store) indexMayGrow(n int) bool {
	return n < min(minRuns, s.maxRuns) || n < s.maxRuns && s.memory.Load()/2 < s.cfg.TotalMemory
}
