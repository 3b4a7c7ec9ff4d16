package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// wholeState returns everything that a reader can learn about a journal.
func wholeState(t *testing.T, j *Journal) map[string]any {
	t.Helper()
	why := ""
	if err := j.Lossy(); err != nil {
		why = err.Error()
	}
	return map[string]any{
		"content": readAll(t, j, 0, 1000), "size": j.Size(), "closed": j.Closed(), "lossy": why,
		"totals": []int64{j.Total(Stdout), j.Total(Stderr), j.Total(TTY)}, "marks": j.Marks(0, never), "stats": j.store.Stats(),
	}
}

// kinds are journals in every place that bytes can be.
var kinds = map[string]Config{
	"memory":                {},
	"file":                  {ExecMemory: 10},
	"ring":                  {ExecMemory: 10, ExecQuota: 1000},
	"ring in memory":        {ExecMemory: 10, TotalQuota: 500},
	"no file":               {Dir: "missing", ExecMemory: 200},
	"ring, then no quota":   {ExecMemory: 10, ExecQuota: 1000, TotalQuota: 900},
	"nothing":               {ExecMemory: 10},
	"under memory pressure": {TotalMemory: 1},
}

func newKind(t testing.TB, name string) *Journal {
	t.Helper()
	cfg := kinds[name]
	if cfg.Dir != "" {
		cfg.Dir = filepath.Join(t.TempDir(), cfg.Dir)
	} else {
		cfg.Dir = t.TempDir()
	}
	s := NewStore(cfg)
	t.Cleanup(s.Close)
	j := s.New()
	if name == "nothing" {
		return j
	}
	for i := range 300 {
		if i%50 == 0 {
			s.advance(time.Minute)
		}
		j.Append(Stream(i/3%2), bytes.Repeat([]byte{byte(i)}, i%20))
	}
	return j
}

func TestRestore(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			j := newKind(t, name)
			before := j.store
			seg, ok := j.LiveSegment()
			if !ok {
				t.Fatal("no live segment")
			}
			if j.Value() != nil {
				t.Error("a running journal has a value")
			}
			want := wholeState(t, j)
			after := NewStore(before.cfg)
			t.Cleanup(after.Close)
			k, err := after.Restore(seg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, wholeState(t, k)); diff != "" {
				t.Fatalf("running (-before +after):\n%s", diff)
			}
			forget(j)

			// It continues, and its end is restored too: first from the live
			// segment, then from its value.
			k.Append(Stderr, bytes.Repeat([]byte("more"), 100))
			k.Seal()
			want = wholeState(t, k)
			sealed := NewStore(before.cfg)
			t.Cleanup(sealed.Close)
			l, err := sealed.Restore(seg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, wholeState(t, l)); diff != "" {
				t.Fatalf("sealed (-before +after):\n%s", diff)
			}
			forget(k)
			value := l.Value()
			l.Close()
			if !bytes.Equal(value, l.Value()) {
				t.Error("the value changes when the segment is released")
			}
			if _, err := sealed.Restore(seg); !errors.Is(err, errNoSegment) {
				t.Errorf("restore from a released segment: %v", err)
			}
			want = wholeState(t, l)
			last := NewStore(before.cfg)
			m, err := last.RestoreValue(value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, wholeState(t, m)); diff != "" {
				t.Fatalf("value (-before +after):\n%s", diff)
			}
			if _, ok := m.LiveSegment(); ok {
				t.Error("a closed journal has a live segment")
			}
			forget(l)
			m.Release()
			if diff := cmp.Diff(Stats{CapturedBytes: m.Size(), Lossy: last.Stats().Lossy}, last.Stats()); diff != "" {
				t.Errorf("after release (-want +got):\n%s", diff)
			}
		})
	}
}

// A journal keeps the bounds it was created with, whatever bounds later ones
// have.
func TestRestoreUnderOtherBounds(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			j, whole := newKind(t, name), newKind(t, name)
			seg, ok := j.LiveSegment()
			if !ok {
				t.Fatal("no live segment")
			}
			cfg := j.store.cfg
			cfg.ExecMemory, cfg.ExecQuota = 70000, 5000000
			after := NewStore(cfg)
			t.Cleanup(after.Close)
			k, err := after.Restore(seg)
			if err != nil {
				t.Fatal(err)
			}
			forget(j)
			for i := range 300 { // past all its bounds
				for _, to := range []*Journal{whole, k} {
					to.Append(Stream(i%2), bytes.Repeat([]byte{byte(i)}, 10))
				}
			}
			without := func(j *Journal) map[string]any { // without what depends on the store
				state := wholeState(t, j)
				delete(state, "stats")
				delete(state, "marks")
				state["lossy"] = state["lossy"] != ""
				return state
			}
			if diff := cmp.Diff(without(whole), without(k)); diff != "" {
				t.Fatalf("running (-undisturbed +restored):\n%s", diff)
			}
			k.Seal()
			want, value := without(k), k.Value()
			cfg.ExecQuota = 700
			last := NewStore(cfg)
			t.Cleanup(last.Close)
			l, err := last.RestoreValue(value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, without(l)); diff != "" {
				t.Fatalf("value (-before +after):\n%s", diff)
			}
			k.Close()
			fresh := after.New() // it must not get the segment of another size
			fresh.Append(Stdout, []byte("x"))
			if got := fresh.segment.header.bounds; got != after.newBounds || fresh.bounds != after.newBounds {
				t.Errorf("a new journal has the bounds %v, want %v", got, after.newBounds)
			}
		})
	}
}

// Kept descriptors are dropped with the journals they were kept for.
func TestSlotsAreDropped(t *testing.T) { synctest.Test(t, slotsAreDropped) }

func slotsAreDropped(t *testing.T) {
	k := &countingKeeper{Keeper: holder.NewLocalKeeper()}
	s := newStore(t, Config{Keeper: k, ExecMemory: 100})
	var js []*Journal
	for range 20 {
		j := s.New()
		j.Append(Stdout, make([]byte, 200))
		js = append(js, j)
	}
	if k.kept != 40 {
		t.Errorf("%d kept, want a segment and a file for each of 20", k.kept)
	}
	for _, j := range js {
		j.Close()
	}
	time.Sleep(time.Second) // pace: the clock is the bubble's
	synctest.Wait()
	if k.kept != 21 {
		t.Errorf("%d kept, want 20 files and a spare segment", k.kept)
	}
	made := k.made
	for range 100 {
		j := s.New()
		j.Append(Stdout, []byte("short"))
		j.Close()
		j.Release()
	}
	if k.made != made {
		t.Errorf("%d kept for journals that could use the spare segment", k.made-made)
	}
	for _, j := range js {
		j.Release()
	}
	s.Close()
	if k.kept != 0 {
		t.Errorf("%d kept at the end", k.kept)
	}
}

// countingKeeper counts what is kept.
type countingKeeper struct {
	holder.Keeper
	kept, made int
}

func (c *countingKeeper) Keep(fd int) (holder.Slot, error) {
	c.kept++
	c.made++
	return c.Keeper.Keep(fd)
}

func (c *countingKeeper) Drop(slot holder.Slot) {
	c.kept--
	c.Keeper.Drop(slot)
}

// failingKeeper is a keeper that keeps nothing.
type failingKeeper struct{ holder.Keeper }

func (failingKeeper) Keep(int) (holder.Slot, error) { return 0, os.ErrClosed }

// Without a keeper, output is complete until this process ends, and Inexact is
// called once.
func TestNothingCanBeKept(t *testing.T) {
	var reasons []error
	s := newStore(t, Config{Keeper: failingKeeper{}, ExecMemory: 1000, Inexact: func(err error) { reasons = append(reasons, err) }})
	text := strings.Repeat("0123456789", 1000)
	for range 3 {
		j := s.New()
		fd, w := pipe(t)
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := pump(j, Stdout, fd); err != nil {
			t.Fatal(err)
		}
		if h, _, _, err := j.HeadTail(Stdout, len(text), 0); err != nil || string(h) != text {
			t.Errorf("content differs (%v)", err)
		}
		if _, ok := j.LiveSegment(); ok {
			t.Error("the journal has a live segment")
		}
		j.Release()
	}
	if len(reasons) != 1 || !errors.Is(reasons[0], os.ErrClosed) {
		t.Errorf("reasons %v", reasons)
	}
}

// A segment that was given back reveals nothing about its last journal to the
// next one.
func TestLiveSegmentsAreReused(t *testing.T) {
	s := newStore(t, Config{})
	j := s.New()
	j.Append(Stdout, bytes.Repeat([]byte("secret"), 5000))
	first, _ := j.LiveSegment()
	j.Close()
	k := s.New()
	defer k.Release()
	second, ok := k.LiveSegment()
	if !ok || second.Slot != first.Slot || second.Number == first.Number {
		t.Fatalf("%+v after %+v", second, first)
	}
	if _, err := s.Restore(first); !errors.Is(err, errNoSegment) {
		t.Errorf("restored from a reused segment: %v", err)
	}
	fd, w := pipe(t)
	if _, err := w.WriteString("public"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.AppendFrom(Stderr, fd); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Chunk{errs(0, "public")}, readAll(t, k, 0, 100)); diff != "" {
		t.Error(diff)
	}
	j.Release()
}

func TestAppendFromTerminal(t *testing.T) {
	master, slave := rawTerminal(t)
	defer master.Close()
	r, w := pipeFiles(t)
	defer r.Close()
	defer w.Close()
	m, sr, sw := int(master.Fd()), int(r.Fd()), int(w.Fd())
	for _, fd := range []int{m, sr, sw} {
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	j := newJournal(t, Config{})
	// What an earlier process left in the staging pipe comes first.
	if _, err := unix.Write(sw, []byte("left ")); err != nil {
		t.Fatal(err)
	}
	if _, err := slave.WriteString("and new"); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	if err := drain(m, func() (int, error) { return j.AppendFromTerminal(m, sr, sw) }); err != nil {
		t.Fatal(err)
	}
	want := []Chunk{{Stream: TTY, Data: []byte("left and new")}}
	if diff := cmp.Diff(want, readAll(t, j, 0, 100)); diff != "" {
		t.Error(diff)
	}
}

// readEverything uses all methods of a journal. Errors are fine, a panic is
// not.
func readEverything(j *Journal) {
	at := int64(0)
	for range 20 {
		_, next, err := j.Read(at, 1000)
		if err != nil || next == at {
			break
		}
		at = next
	}
	_, _, _ = j.Read(j.Size()-10, 100)
	for st := range Stream(streams) {
		_, _, _, _ = j.HeadTail(st, 100, 100)
	}
	j.Marks(0, never)
	j.FirstHeld(5)
}

func FuzzRestoreValue(f *testing.F) {
	s := NewStore(Config{Dir: f.TempDir(), ExecQuota: 1000})
	for name := range kinds {
		j := newKind(f, name)
		j.Close()
		f.Add(j.Value())
		j.Release()
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		j, err := s.RestoreValue(b)
		if err != nil {
			return
		}
		readEverything(j)
		j.Value()
		if j.spill != nil {
			j.spill.slot = notKept // it may belong to something else
		}
		j.Release()
	})
}

// FuzzRestore changes the state in a live segment.
func FuzzRestore(f *testing.F) {
	size := int(unsafe.Sizeof(segmentState{}))
	for i := range size / 8 {
		for _, v := range []int64{-1, 0, 1, 2, 7, 1 << 20, never, -never - 1} {
			f.Add(uint8(i), uint8(i), v, uint16(i), int64(-1))
			f.Add(uint8(i), uint8(i), v, uint16(5000), v)
		}
	}
	names := []string{"memory", "file", "ring", "ring in memory", "no file"}
	f.Fuzz(func(t *testing.T, kind, word uint8, v int64, place uint16, r int64) {
		j := newKind(t, names[int(kind)%len(names)])
		seg, ok := j.LiveSegment()
		if !ok {
			t.Fatal("no live segment")
		}
		h := j.segment.header
		words := unsafe.Slice((*int64)(unsafe.Pointer(&h.states[h.seq&1])), size/8)
		words[int(word)%len(words)] = v
		if place > 0 {
			j.segment.head[int(place)%200], j.segment.tail[int(place)%200] = run(r), run(r)
			j.segment.marks[0][place%8].offset = r
		}
		after := NewStore(j.store.cfg)
		k, err := after.Restore(seg)
		if err == nil {
			readEverything(k)
			k.Append(Stdout, make([]byte, 3000))
			k.Append(Stderr, make([]byte, 3000))
			readEverything(k)
			k.Seal()
			k.Value()
			forget(k)
		}
		j.Release()
	})
}
