package journal

import "sort"

// run is the start of a stretch of bytes of one stream; it ends where the next
// run starts. Offset and stream share one word because the index is memory
// that a hostile program can make a daemon spend.
type run uint64

func newRun(start int64, st Stream) run { return run(start)<<2 | run(st) }

func (r run) start() int64   { return int64(r >> 2) }
func (r run) stream() Stream { return Stream(r & 3) }

const runSize = 8

// index is a queue of runs in order of their start.
type index struct {
	runs  []run
	first int // runs before it are dropped and wait to be overwritten
}

func (x *index) live() []run { return x.runs[x.first:] }

// ends reports whether bytes of st that come next belong to the last run.
func (x *index) ends(st Stream) bool {
	n := len(x.runs)
	return n > x.first && x.runs[n-1].stream() == st
}

func (x *index) push(start int64, st Stream) {
	n := len(x.runs)
	if n > x.first && x.runs[n-1].start() == start {
		x.runs[n-1] = newRun(start, st) // the last one stayed empty
		return
	}
	// Moving down once a quarter is dropped costs three moves a push at most,
	// and keeps the slice from growing beyond a third over what is live.
	if n == cap(x.runs) && x.first > 0 && x.first >= n/4 {
		x.runs = x.runs[:copy(x.runs, x.live())]
		x.first = 0
	}
	x.runs = append(x.runs, newRun(start, st))
}

// find returns the place in runs of the run that holds offset: the last that
// does not start after it. It is -1 when all start after it.
func find(runs []run, offset int64) int {
	return sort.Search(len(runs), func(i int) bool { return runs[i].start() > offset }) - 1
}

// trim gives back what is allocated and not used.
func (x *index) trim() {
	if x.first > 0 {
		x.runs = append([]run(nil), x.live()...)
		x.first = 0
	}
	x.runs = trimmed(x.runs)
}

// trimmed returns s without spare room, copied if there is enough to gain.
func trimmed[T any](s []T) []T {
	if cap(s)-len(s) <= len(s)/8 {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}
