package journal

import "sort"

// run is the start of a range of bytes of one stream; it ends where the next
// run starts. Offset and stream share one word because a hostile program can
// make the index of a daemon grow.
type run uint64

func newRun(start int64, st Stream) run { return run(start)<<2 | run(st) }

func (r run) start() int64   { return int64(r >> 2) }
func (r run) stream() Stream { return Stream(r & 3) }

const runSize = 8

// index is a queue of runs ordered by their start, in a ring with room for one
// more than it may hold: a push never overwrites a run that a restart would
// read. The first run of a tail may begin before the end of the gap; only the
// part after the gap counts.
type index struct {
	ring  []run
	first int // position of the first run in ring
	n     int // number of runs
	most  int // number of positions that were ever used
}

// indexOf returns an index of runs, without copying them.
func indexOf(runs []run) index { return index{ring: runs, n: len(runs), most: len(runs)} }

// place returns the position of the i-th run in ring.
func (x *index) place(i int) int {
	if i += x.first; i >= len(x.ring) {
		i -= len(x.ring)
	}
	return i
}

func (x *index) at(i int) run { return x.ring[x.place(i)] }

// runs returns a copy of all runs, without spare capacity.
func (x *index) runs() []run {
	if x.n == 0 {
		return nil
	}
	runs := make([]run, x.n)
	if n := copy(runs, x.ring[x.first:]); n < x.n {
		copy(runs[n:], x.ring)
	}
	return runs
}

// ends reports whether the last run is of st, so that the next bytes of st
// extend it.
func (x *index) ends(st Stream) bool { return x.n > 0 && x.at(x.n-1).stream() == st }

func (x *index) push(r run) {
	to := x.place(x.n)
	x.ring[to] = r
	x.n++
	x.most = max(x.most, to+1)
}

// pop removes the first run.
func (x *index) pop() {
	x.first = x.place(1)
	x.n--
}

// find returns which run holds offset: the last one that does not start after
// it. It returns -1 if all start after it.
func (x *index) find(offset int64) int {
	return sort.Search(x.n, func(i int) bool { return x.at(i).start() > offset }) - 1
}
