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
	// ErrReleased says that the journal's bytes have been given back.
	ErrReleased = errors.New("journal: released")

	// ErrTotalQuota is why a journal is lossy when the spill files of all
	// journals together have reached Config.TotalQuota.
	ErrTotalQuota = errors.New("journal: total quota of spill files reached")
)

// Config sets the bounds of a Store. A value that is zero (or negative) stands
// for the default.
type Config struct {
	// Dir is where spill files are made. They have no name there. Default:
	// os.TempDir().
	Dir string

	// ExecMemory is how many bytes of one journal, its index included, are
	// held in memory before it spills, at most 1 GiB. Default: 64 KiB, what
	// nearly every command stays below, so that it never costs a file.
	ExecMemory int64

	// TotalMemory is how many bytes all journals hold in memory. Past it a
	// journal spills at its next append; past twice as much the indexes and
	// the tables of times stop growing too. Default: 64 MiB.
	TotalMemory int64

	// ExecQuota is how many bytes of one journal are kept: half of it the
	// first bytes, half of it the last. Default: 256 MiB.
	ExecQuota int64

	// TotalQuota is how many bytes the spill files of all journals hold. Past
	// it new bytes are dropped as a gap and only a small tail is kept, in
	// memory. It is checked before each step of a write, so journals written
	// at the same moment may exceed it by one step (at most 1 MiB) each.
	// Default: 8 GiB.
	TotalQuota int64

	// Keeper holds what journals are in, so that they outlive this process.
	// Default: holder.Alone(), so that they don't.
	Keeper holder.Keeper

	// Inexact, if not nil, is called the first time that a journal can't be
	// kept exactly, with the reason: a byte that is on its way when this process
	// is killed is lost then.
	Inexact func(error)

	// Stopped, if not nil, is called whenever the file of a journal takes no
	// more for another reason than the journal's own quota.
	Stopped func(error)
}

const (
	// smallJournal is what a journal may hold in memory even when the daemon
	// is past TotalMemory, as content and again as tail. A spill file costs a
	// descriptor, an inode and at least one page: moving less than a page
	// there frees nothing.
	smallJournal = 4 << 10

	// tailMemory is the ring in memory that keeps the newest bytes when the
	// file takes no more: what fits a whole default pipe, several screens of
	// error message.
	tailMemory = 64 << 10

	// maxRuns bounds each of the two indexes (head and tail) of one journal.
	// 16,384 runs of 8 bytes are 128 KiB. A log that changes stream with
	// every line keeps its first and last 16,384 lines; a program that does it
	// with every byte costs the daemon 256 KiB, not gigabytes.
	maxRuns = 16 << 10

	// minRuns is what an index may always hold, however far the daemon is
	// past its memory: 64 runs are 512 bytes, and without any the tail could
	// not be told apart by stream at all.
	minRuns = 64
)

// Store holds what the journals of one daemon share: the bounds, the counters
// and the lanes of running ones. It is safe for concurrent use.
type Store struct {
	cfg        Config
	newBounds  bounds // of new journals
	maxRuns    int
	maxMarks   int
	tailMemory int64

	resumeAfter time.Duration
	resumeRoom  int64

	began time.Time // what the clock of its journals counts from
	clock int64     // the same on the system's clock, in nanoseconds

	memory   atomic.Int64
	spilled  atomic.Int64
	captured atomic.Int64
	journals atomic.Int64
	lossy    atomic.Int64

	bufs        sync.Pool // *[pullSize]byte
	segments    freelist.List[*liveSegment]
	lastSegment atomic.Uint64 // of the last journal that took one
	inexactOnce sync.Once     // about what can't be kept
}

// Stats counts what the journals of a store hold.
type Stats struct {
	MemoryBytes   int64 // held in memory: content, indexes, times, tails
	SpilledBytes  int64 // held in spill files
	CapturedBytes int64 // ever appended, whether still held or not
	Journals      int64 // made and not yet released
	Lossy         int64 // journals that ever dropped bytes for another reason than their own quota
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
	// Numbers of journals are not used again after a restart.
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

// New returns an empty journal. The caller owns it, and gives it back with
// Release.
func (s *Store) New() *Journal {
	s.journals.Add(1)
	return &Journal{store: s, bounds: s.newBounds, origin: time.Since(s.began)}
}

// Stats returns the counters as they are now. They are read one after the
// other, not at one moment.
func (s *Store) Stats() Stats {
	return Stats{
		MemoryBytes:   s.memory.Load(),
		SpilledBytes:  s.spilled.Load(),
		CapturedBytes: s.captured.Load(),
		Journals:      s.journals.Load(),
		Lossy:         s.lossy.Load(),
	}
}

// indexMayGrow reports whether an index of n runs may take one more.
func (s *Store) indexMayGrow(n int) bool {
	return n < min(minRuns, s.maxRuns) || n < s.maxRuns && s.memory.Load()/2 < s.cfg.TotalMemory
}
