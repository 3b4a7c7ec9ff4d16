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

// index is a queue of runs in order of their start, in a ring that has room for
// one more than it may hold: a push writes over no run that a restart would
// find. Of the tail's the first may begin before the gap ends; only what is
// behind the gap counts.
type index struct {
	ring  []run
	first int // place of the first
	n     int // how many there are
	most  int // how many places were ever used
}

// indexOf is an index of runs, which are not copied.
func indexOf(runs []run) index { return index{ring: runs, n: len(runs), most: len(runs)} }

// place is that of the i-th run.
func (x *index) place(i int) int {
	if i += x.first; i >= len(x.ring) {
		i -= len(x.ring)
	}
	return i
}

func (x *index) at(i int) run { return x.ring[x.place(i)] }

// runs returns a copy of them all, of its exact size.
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

// ends reports whether bytes of st that come next belong to the last run.
func (x *index) ends(st Stream) bool { return x.n > 0 && x.at(x.n-1).stream() == st }

func (x *index) push(r run) {
	to := x.place(x.n)
	x.ring[to] = r
	x.n++
	x.most = max(x.most, to+1)
}

// pop lets go of the first run.
func (x *index) pop() {
	x.first = x.place(1)
	x.n--
}

// find returns which run holds offset: the last that does not start after it.
// It is -1 when all start after it.
func (x *index) find(offset int64) int {
	return sort.Search(x.n, func(i int) bool { return x.at(i).start() > offset }) - 1
}
