//go:build linux

package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// canary is a text that must not be found in the memory.
const canary = "canary-4711"

func mustPut(t testing.TB, l *Ledger, key, value string) {
	t.Helper()
	if err := l.Put(key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// A value that was replaced or deleted is not in the memory any more, wherever
// its record was.
func TestWiped(t *testing.T) {
	for name, size := range map[string]int{"short": 10, "longer than a page": 9000, "longer than maxMapped": maxMapped + 1, "long": 3 * windowBytes} {
		t.Run(name, func(t *testing.T) {
			secret := strings.Repeat(canary, size/len(canary)+1)
			for _, far := range []bool{false, true} {
				k, l := newLedger(t)
				mustPut(t, l, "stays", "this")
				mustPut(t, l, "replaced", secret)
				mustPut(t, l, "deleted/"+canary, secret)
				if far { // outside of the mapped window
					for i := range 20 {
						mustPut(t, l, fmt.Sprint("filler", i), strings.Repeat("f", 20_000))
					}
				}
				mustPut(t, l, "replaced", "another")
				if err := l.Delete("deleted/" + canary); err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(k.bytes(), []byte(canary)) {
					t.Errorf("the canary is found, far: %v", far)
				}
				want := contents(l)
				if want["replaced"] != "another" || want["stays"] != "this" || want["deleted/"+canary] != "" {
					t.Errorf("%v", want)
				}
				again := reopen(t, k)
				if diff := cmp.Diff(want, contents(again)); diff != "" || again.Damage() != nil {
					t.Error(diff, again.Damage())
				}
				if again.live != l.live || again.end != l.end {
					t.Errorf("%d of %d bytes live, before %d of %d", again.live, again.end, l.live, l.end)
				}
			}
		})
	}
}

// A process that is killed while it replaces or deletes a value leaves a
// correct ledger, and the next process wipes the rest.
func TestKilledWhileWiping(t *testing.T) {
	k, l := newLedger(t)
	mustPut(t, l, "a", "first")
	mustPut(t, l, "b", canary)
	mustPut(t, l, "c", "third")
	p := l.records["b"]
	both := appendRecord(k.bytes()[:l.end:l.end], opPut, "b", []byte("new"))
	wiped := slices.Clone(both)
	rec := wiped[p.offset : p.offset+int64(p.size)]
	rec[opAt] = opWiped
	clear(rec[headerSize:])
	binary.LittleEndian.PutUint32(rec, wipedSum(rec))

	// The steps, each of which may be done in part: the operation, then the
	// content in any order, then the checksum.
	var steps [][]byte
	step := func(from int, to []byte) { // the bytes of the record from this offset on are those of to
		b := slices.Clone(both)
		at := int(p.offset)
		b[at+opAt] = opWiped
		copy(b[at+from:at+from+len(to)], to)
		steps = append(steps, b)
	}
	steps = append(steps, both)
	for n := range p.size - headerSize + 1 {
		step(headerSize, make([]byte, n))
		step(p.size-n, make([]byte, n))
	}
	for n := range 5 {
		b := slices.Clone(wiped)
		copy(b[p.offset:p.offset+4], both[p.offset:p.offset+4])
		copy(b[p.offset:], wiped[p.offset:p.offset+int64(n)])
		steps = append(steps, b)
	}
	want := map[string]string{"a": "first", "b": "new", "c": "third"}
	for i, file := range steps {
		for _, deleted := range []bool{false, true} {
			want := maps.Clone(want)
			if deleted { // there is no new record
				if i == 0 {
					continue
				}
				delete(want, "b")
				file = file[:l.end]
			}
			k.put(slices.Concat(file, make([]byte, 1000)), true)
			l := reopen(t, k)
			if diff := cmp.Diff(want, contents(l)); diff != "" || l.Damage() != nil {
				t.Fatalf("step %d, deleted %v: %s, %v", i, deleted, diff, l.Damage())
			}
			if bytes.Contains(k.bytes(), []byte(canary[1:len(canary)-1])) {
				t.Fatalf("step %d, deleted %v: the canary is found", i, deleted)
			}
			mustPut(t, l, "d", "goes on")
			want["d"] = "goes on"
			if diff := cmp.Diff(want, contents(reopen(t, k))); diff != "" {
				t.Fatalf("step %d, deleted %v, later: %s", i, deleted, diff)
			}
		}
	}
}

// The memory can't be truncated, nor sealed against growing.
func TestSealed(t *testing.T) {
	k, l := newLedger(t)
	check := func() {
		t.Helper()
		fd := k.fd()
		for _, size := range []int64{0, 1} {
			if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
				t.Errorf("truncated to %d: %v", size, err)
			}
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW); !errors.Is(err, unix.EPERM) {
			t.Errorf("sealed: %v", err)
		}
	}
	check()
	mustPut(t, l, "a", strings.Repeat("a", 5*windowBytes))
	for range 3000 { // enough to compact it
		mustPut(t, l, "b", strings.Repeat("b", 1000))
	}
	if k.replaced < 2 {
		t.Fatalf("the ledger was not compacted")
	}
	check()
}

// A process that has the old memory open when the ledger is compacted finds
// nothing there.
func TestOldMemoryIsEmpty(t *testing.T) {
	k, l := newLedger(t)
	mustPut(t, l, "a", canary)
	old := k.fd()
	for range 3000 {
		mustPut(t, l, "b", strings.Repeat("b", 1000))
	}
	mem, _, err := memoryOf(old, false)
	if err != nil {
		t.Fatal(err)
	}
	if k.replaced < 2 || !isZero(mem) {
		t.Errorf("compacted %d times, the first memory has %q", k.replaced-1, bytes.Trim(mem, "\x00"))
	}
	if got := contents(reopen(t, k))["a"]; got != canary {
		t.Errorf("%q", got)
	}
}

// A ledger written by a version that neither sealed nor wiped.
func TestFormat2(t *testing.T) {
	file, err := os.ReadFile("testdata/format2.ledger")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"listen": "\x02\x04/run/trl.sock", "hub": "\x01\xea\x07\xeb\x07",
		"s/s-1": `{"Number":1,"Env":["SECRET=canary-of-a-session"]}`, "x/e-1": "exited", "h/s-1": "\x00\x01\x02\x04",
		"v/s-1": strings.Repeat("screen ", 40), "k/s-1/key": "",
	}
	k := newTestKeeper(t)
	k.put(file, false)
	old := k.fd()
	values, damage, err := Read(old)
	if err != nil || damage != nil {
		t.Fatal(damage, err)
	}
	read := map[string]string{}
	for key, value := range values {
		read[key] = string(value)
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("read: %s", diff)
	}
	if !bytes.Equal(k.bytes(), file) {
		t.Error("Read changed the ledger")
	}
	l := reopen(t, k)
	if diff := cmp.Diff(want, contents(l)); diff != "" || l.Damage() != nil {
		t.Error(diff, l.Damage())
	}
	if !isSealed(k.fd()) {
		t.Error("the new memory is not sealed")
	}
	if bytes.Contains(k.bytes(), []byte("canary-of-a-command")) {
		t.Error("a replaced value is still there")
	}
	if mem, _, err := memoryOf(old, false); err != nil || !isZero(mem) {
		t.Errorf("the old memory still has %q, %v", bytes.Trim(mem, "\x00"), err)
	}
	mustPut(t, l, "x/e-2", "new")
	want["x/e-2"] = "new"
	if diff := cmp.Diff(want, contents(reopen(t, k))); diff != "" {
		t.Error(diff)
	}
}

// Bytes overwritten in the middle cost only the records there, and are
// reported.
func TestDamage(t *testing.T) {
	k, l := newLedger(t)
	for i := range 9 {
		mustPut(t, l, fmt.Sprint("key", i), strings.Repeat(fmt.Sprint(i), 50))
	}
	mustPut(t, l, "key4", "other") // so one record is wiped
	whole, all := k.bytes()[:l.end], contents(l)
	p := l.records["key5"]
	without := maps.Clone(all)
	delete(without, "key5")
	open := func(what string, file []byte) *Ledger {
		t.Helper()
		k.put(slices.Concat(file, make([]byte, 5000)), true)
		l := reopen(t, k)
		if diff := cmp.Diff(without, contents(l)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		return l
	}
	for n := range p.size {
		file := slices.Clone(whole)
		file[p.offset+int64(n)] ^= 0xff
		damage := open(fmt.Sprint("byte ", n), file).Damage()
		if len(damage) != 1 || damage[0].Offset != p.offset || damage[0].Size != int64(p.size) {
			t.Errorf("byte %d: damage %v of %v", n, damage, p)
		}
		if n >= 20 && damage[0].Key != "key5" {
			t.Errorf("byte %d: damage %v has the wrong key", n, damage)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, fill := range map[string]func(b []byte){
		"zeros": func(b []byte) { clear(b) },
		"garbage": func(b []byte) {
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
		},
	} {
		file := slices.Clone(whole)
		fill(file[p.offset : p.offset+int64(p.size)])
		l := open(name, file)
		if len(l.Damage()) != 1 {
			t.Errorf("%s: damage %v", name, l.Damage())
		}
		// It remains usable, and compaction leaves the damaged part out.
		for range 3000 {
			mustPut(t, l, "key0", strings.Repeat("x", 1000))
		}
		if again := reopen(t, k); again.Damage() != nil || contents(again)["key8"] != all["key8"] {
			t.Errorf("%s: damage %v", name, again.Damage())
		}
	}
	// While it is in use.
	k.put(whole, true)
	l = reopen(t, k)
	if err := writeFull(k.fd(), []byte("overwritten"), p.offset+3); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.Get("key5"); ok {
		t.Error("an overwritten record has a value")
	}
	for range 3000 {
		mustPut(t, l, "key0", strings.Repeat("x", 1000))
	}
	if damage := l.Damage(); len(damage) != 1 || damage[0].Key != "key5" {
		t.Errorf("damage %v", damage)
	}
	if again := reopen(t, k); again.Damage() != nil || contents(again)["key8"] != all["key8"] {
		t.Errorf("damage %v", again.Damage())
	}
}

// A ledger of which nothing can be read is an error, not an empty ledger.
func TestLost(t *testing.T) {
	_, l := newLedger(t)
	mustPut(t, l, "a", "value")
	garbage := make([]byte, 10_000)
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	for name, file := range map[string][]byte{"empty": {}, "zeros": make([]byte, 5000), "garbage": garbage, "text": bytes.Repeat([]byte("text "), 1000)} {
		for _, sealed := range []bool{true, false} {
			k := newTestKeeper(t)
			k.put(file, sealed)
			if l, err := Open(k); !errors.Is(err, ErrLost) {
				t.Errorf("%s, sealed %v: %v, %v", name, sealed, l, err)
			}
			if _, _, err := Read(k.fd()); !errors.Is(err, ErrLost) {
				t.Errorf("%s, sealed %v: read: %v", name, sealed, err)
			}
			if !bytes.Equal(k.bytes(), file) {
				t.Errorf("%s, sealed %v: the memory was changed", name, sealed)
			}
		}
	}
	k, l := newLedger(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l := reopen(t, k); len(contents(l)) != 0 || l.Damage() != nil {
		t.Errorf("ledger without records: %v, %v", contents(l), l.Damage())
	}
}

// Another process reads while this one writes: it finds the values that do not
// change, and no damage.
func TestReadWhileWriting(t *testing.T) {
	k, l := newLedger(t)
	mustPut(t, l, "stays", "this")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			key := fmt.Sprint("key", i%7)
			_ = l.Put(key, []byte(strings.Repeat("v", i%5000)))
			if i%3 == 0 {
				_ = l.Delete(key)
			}
		}
	})
	for range 200 {
		fd, err := k.Take(1000)
		if err != nil {
			t.Fatal(err)
		}
		values, damage, err := Read(fd)
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		if errors.Is(err, ErrLost) {
			continue // it was compacted at that moment
		}
		if err != nil || damage != nil || string(values["stays"]) != "this" {
			t.Errorf("%d values, %q, damage %v, %v", len(values), values["stays"], damage, err)
		}
	}
	close(done)
	wg.Wait()
}

// Opening a ledger with many ended sessions takes one pass.
func BenchmarkOpen(b *testing.B) {
	k := newTestKeeper(b)
	l, err := New(k)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		mustPut(b, l, fmt.Sprint("s/", i), strings.Repeat("s", 600))
		for j := range 5 {
			mustPut(b, l, fmt.Sprint("x/", i, "/", j), strings.Repeat("x", 300))
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		l, err := Open(k)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for range l.All("") {
			n++
		}
		if err := l.Close(); err != nil || n != 6000 {
			b.Fatal(n, err)
		}
	}
}
