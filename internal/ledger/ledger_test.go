//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// testKeeper is a keeper that counts calls of Replace.
type testKeeper struct {
	holder.Keeper
	t        testing.TB
	replaced int
}

func newTestKeeper(t testing.TB) *testKeeper {
	k := &testKeeper{Keeper: holder.NewLocalKeeper(), t: t}
	t.Cleanup(func() { k.Drop(holder.Root) })
	return k
}

func (k *testKeeper) Replace(slot holder.Slot, fd int) error {
	k.replaced++
	return k.Keeper.Replace(slot, fd)
}

// fd returns a copy of the keeper's descriptor.
func (k *testKeeper) fd() int {
	k.t.Helper()
	fd, err := k.Take(holder.Root)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// put replaces the kept ledger by one with these bytes.
func (k *testKeeper) put(file []byte, sealed bool) {
	k.t.Helper()
	fd, err := unix.MemfdCreate("file", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		k.t.Fatal(err)
	}
	err = writeFull(fd, file, 0)
	if sealed && err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err := errors.Join(err, k.Replace(holder.Root, fd), unix.Close(fd)); err != nil {
		k.t.Fatal(err)
	}
}

// bytes returns the content of the kept memory.
func (k *testKeeper) bytes() []byte {
	k.t.Helper()
	mem, _, err := memoryOf(k.fd(), false)
	if err != nil {
		k.t.Fatal(err)
	}
	return mem
}

func newLedger(t testing.TB) (*testKeeper, *Ledger) {
	t.Helper()
	k := newTestKeeper(t)
	l, err := New(k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return k, l
}

func contents(l *Ledger) map[string]string {
	m := map[string]string{}
	for key, value := range l.All("") {
		m[key] = string(value)
	}
	return m
}

// reopen opens the ledger like the daemon that follows one that was killed.
func reopen(t testing.TB, k *testKeeper) *Ledger {
	t.Helper()
	l, err := Open(k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	k, l := newLedger(t)
	model := map[string]string{}
	for i := range 20_000 {
		key := fmt.Sprint("k", rnd.IntN(300))
		var err error
		if rnd.IntN(4) == 0 {
			delete(model, key)
			err = l.Delete(key)
		} else {
			value := strings.Repeat(string(rune('a'+i%26)), rnd.IntN(1000))
			model[key] = value
			err = l.Put(key, []byte(value))
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%5000 == 0 {
			l = reopen(t, k)
		}
	}
	if diff := cmp.Diff(model, contents(l)); diff != "" {
		t.Error(diff)
	}
	l = reopen(t, k)
	if diff := cmp.Diff(model, contents(l)); diff != "" {
		t.Error("reopened after the last write:", diff)
	}
	if k.replaced < 3 || l.end > 2*l.live+minGarbage+1100 {
		t.Errorf("compacted %d times; %d bytes, %d live", k.replaced-1, l.end, l.live)
	}
}

// A write that was interrupted anywhere did not happen, and the writes before
// it did.
func TestCutOff(t *testing.T) {
	k, l := newLedger(t)
	for i := range 3 {
		if err := l.Put("a", []byte(fmt.Sprint("value ", i))); err != nil {
			t.Fatal(err)
		}
	}
	before := maps.Clone(contents(l))
	begin := l.end
	first := make([]byte, begin)
	if err := readFull(l.fd, first, 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Put("b", []byte("the last one")); err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, l.end-begin)
	if err := readFull(l.fd, whole, begin); err != nil {
		t.Fatal(err)
	}
	cut := func(n int, file []byte) {
		t.Helper()
		for _, sealed := range []bool{true, false} {
			checkTruncated(t, k, n, sealed, slices.Concat(first, file), before)
		}
	}
	for n := range len(whole) {
		zeros := make([]byte, len(whole)-n+1000)
		cut(n, whole[:n])
		// Of a copy into mapped memory, any part may have been done.
		cut(n, slices.Concat(whole[:n], zeros))
		if n > 0 {
			cut(n, slices.Concat(make([]byte, n), whole[n:], zeros))
		}
	}
}

// TestLostEnd: records that are lost at the end are reported as damage,
// although no record follows them, until something else is written there.
func TestLostEnd(t *testing.T) {
	k, l := newLedger(t)
	begin := l.end
	for i := range 3 {
		if i == 1 {
			begin = l.end
		}
		if err := l.Put(fmt.Sprint(i), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.zeroFrom(begin); err != nil {
		t.Fatal(err)
	}
	lost := []Damage{{Offset: begin, Size: l.end - begin}}
	for range 2 {
		l = reopen(t, k)
		if diff := cmp.Diff(lost, l.Damage()); diff != "" || len(contents(l)) != 1 {
			t.Errorf("%v: %s", contents(l), diff)
		}
	}
	if _, damage, err := Read(l.fd); err != nil || !slices.Equal(damage, lost) {
		t.Errorf("read: %v, %v", damage, err)
	}
	if err := l.Put("3", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if l = reopen(t, k); l.Damage() != nil || len(contents(l)) != 2 {
		t.Errorf("after another put: %v, %v", contents(l), l.Damage())
	}
}

// checkTruncated opens a ledger whose last record was cut off after n bytes.
func checkTruncated(t *testing.T, k *testKeeper, n int, sealed bool, file []byte, before map[string]string) {
	t.Helper()
	k.put(file, sealed)
	l := reopen(t, k)
	if diff := cmp.Diff(before, contents(l)); diff != "" {
		t.Errorf("cut after %d bytes: %s", n, diff)
	}
	if damage := l.Damage(); damage != nil {
		t.Errorf("cut after %d bytes is reported as damage: %v", n, damage)
	}
	if err := l.Put("c", []byte("goes on")); err != nil {
		t.Fatal(err)
	}
	if got := contents(reopen(t, k))["c"]; got != "goes on" {
		t.Errorf("cut after %d bytes, the next value is %q", n, got)
	}
}

// Records are longer than the mapped window, or do not fit in the rest of it.
func TestWindows(t *testing.T) {
	k, l := newLedger(t)
	want := map[string]string{}
	for i, size := range []int{1, maxMapped, maxMapped - 100, 10, 5 * windowBytes, 10, maxMapped + 1, 3000, maxMapped / 2, maxMapped / 2, maxMapped / 2} {
		for range 5 {
			key, value := fmt.Sprint(len(want)), strings.Repeat(string(rune('a'+i)), size)
			want[key] = value
			if err := l.Put(key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, contents(l)); diff != "" {
			t.Fatalf("after %d bytes: %s", size, diff)
		}
	}
	if diff := cmp.Diff(want, contents(reopen(t, k))); diff != "" {
		t.Error(diff)
	}
}

// All has only the keys of a prefix, in order.
func TestAllOfAPrefix(t *testing.T) {
	_, l := newLedger(t)
	for _, key := range []string{"b/2", "a/1", "b", "b/1", "c/b/3", "b/10"} {
		mustPut(t, l, key, "value of "+key)
	}
	for prefix, want := range map[string][]string{
		"": {"a/1", "b", "b/1", "b/10", "b/2", "c/b/3"}, "b/": {"b/1", "b/10", "b/2"}, "b/1": {"b/1", "b/10"}, "d/": nil,
	} {
		var got []string
		for key, value := range l.All(prefix) {
			if string(value) != "value of "+key {
				t.Errorf("%s has %q", key, value)
			}
			got = append(got, key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("prefix %q (-want +got): %s", prefix, diff)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendRecord(appendRecord(nil, opPut, "a", []byte("1")), opDelete, "a", nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		k := newTestKeeper(t)
		k.put(data, len(data)%2 == 0)
		l, err := Open(k)
		if err != nil {
			return
		}
		defer l.Close()
		for key, value := range l.All("") {
			if len(key)+len(value) > len(data) {
				t.Errorf("%d bytes hold a record of %d bytes", len(data), len(key)+len(value))
			}
		}
	})
}

func BenchmarkPut(b *testing.B) {
	l, err := New(newTestKeeper(b))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	value := make([]byte, 200)
	for i := 0; b.Loop(); i++ {
		if err := l.Put("x", value); err != nil {
			b.Fatal(err)
		}
	}
}
