package holder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSlot(t *testing.T) {
	for _, c := range []struct {
		slot       Slot
		number     int
		generation int64
		text       string
	}{
		{Root, 1000, 0, "1000"},
		{newSlot(1001, 1), 1001, 1, "1001.1"},
		{newSlot(maxNumber, maxGeneration), maxNumber, maxGeneration, fmt.Sprintf("%d.%d", maxNumber, int64(maxGeneration))},
		{0, 0, 0, "0"},
		{-1, -1, -1, "-1"},
	} {
		if c.slot.Number() != c.number || c.slot.Generation() != c.generation || c.slot.String() != c.text {
			t.Errorf("slot %d has number %d, generation %d, string %v", int64(c.slot), c.slot.Number(), c.slot.Generation(), c.slot)
		}
		if c.slot > 0 {
			if got := slotRecord(wantTake, c.slot).slot(); got != c.slot {
				t.Errorf("slot %v is decoded as %v", c.slot, got)
			}
		}
	}
}

// keepFile keeps a new file that contains text, by which it can be recognised.
func keepFile(t *testing.T, k Keeper, text string) Slot {
	t.Helper()
	fd := textFile(t, text)
	slot, err := k.Keep(fd)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return slot
}

func textFile(t *testing.T, text string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("text", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return fd
}

// textIn returns the content of the file in a slot.
func textIn(t *testing.T, k Keeper, slot Slot) string {
	t.Helper()
	fd, err := k.Take(slot)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	var b [64]byte
	n, err := unix.Pread(fd, b[:], 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// A slot that was dropped gives access to nothing, even if its number is in use
// again, and dropping it again does not affect the new owner.
func TestSlotOfAnother(t *testing.T) {
	c := connected(t)
	var refusals []error
	c.OnRefusal(func(_ Slot, err error) { refusals = append(refusals, err) })
	first := keepFile(t, c, "first")
	c.Drop(first)
	second := keepFile(t, c, "second")
	if first.Number() != second.Number() {
		t.Fatalf("%v and %v", first, second)
	}
	if _, err := c.Take(first); !errors.Is(err, ErrStale) {
		t.Errorf("take: %v", err)
	}
	fd := textFile(t, "third")
	defer unix.Close(fd)
	if err := c.Replace(first, fd); !errors.Is(err, ErrStale) {
		t.Errorf("replace: %v", err)
	}
	c.Drop(first)
	c.Drop(first)
	if len(refusals) != 2 || !errors.Is(refusals[0], ErrStale) {
		t.Errorf("refused: %v", refusals)
	}
	if path := c.Path(first); path == c.Path(second) {
		t.Errorf("both slots have the path %s", path)
	}
	if got := textIn(t, c, second); got != "second" {
		t.Errorf("the second slot has %q", got)
	}
	// No number is assigned twice, however often it was dropped.
	third, fourth := keepFile(t, c, "third"), keepFile(t, c, "fourth")
	for slot, want := range map[Slot]string{second: "second", third: "third", fourth: "fourth"} {
		if got := textIn(t, c, slot); got != want {
			t.Errorf("slot %v has %q, want %q", slot, got, want)
		}
	}
}

// The holder compares generations itself: a client with a wrong slot can't
// take, drop or replace another owner's descriptor.
func TestHolderComparesGenerations(t *testing.T) {
	c := connected(t)
	refusals := make(chan error, 8)
	c.OnRefusal(func(_ Slot, err error) { refusals <- err })
	slot := keepFile(t, c, "kept")
	stale := newSlot(slot.Number(), slot.Generation()+7)
	fd := textFile(t, "wrong")
	defer unix.Close(fd)
	if _, err := c.Take(stale); !errors.Is(err, ErrStale) {
		t.Errorf("take: %v", err)
	}
	if err := c.send(slotRecord(wantDrop, stale), -1); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(); err != nil {
		t.Errorf("sync after a drop: %v", err)
	}
	if err := <-refusals; !errors.Is(err, ErrStale) {
		t.Errorf("drop: %v", err)
	}
	for _, flags := range []uint8{0, keepNew} {
		if err := c.sendFD(stale, fd, flags); err != nil {
			t.Fatal(err)
		}
		if err := c.Sync(); !errors.Is(err, ErrStale) {
			t.Errorf("keep with flags %d: %v", flags, err)
		}
		if err := <-refusals; !errors.Is(err, ErrStale) {
			t.Errorf("keep with flags %d: %v", flags, err)
		}
	}
	// The client has learned that the number is not its own: it does not use
	// it, and does not free it.
	if got := textIn(t, c, slot); got != "kept" {
		t.Errorf("slot %v has %q", slot, got)
	}
	if other := keepFile(t, c, "next"); other.Number() == slot.Number() {
		t.Errorf("number %d is assigned twice", slot.Number())
	}
}

// Impossible slots are refused, and the client stays connected.
func TestImpossibleSlots(t *testing.T) {
	c := connected(t)
	fd := textFile(t, "text")
	defer unix.Close(fd)
	for _, slot := range []Slot{-1, 0, 3, Root - 1, newSlot(3, 1), newSlot(0, 1), newSlot(maxNumber, 1)} {
		for _, flags := range []uint8{0, keepNew} {
			if err := c.sendFD(slot, fd, flags); err != nil {
				t.Fatal(err)
			}
			if err := c.Sync(); err == nil {
				t.Errorf("slot %v was kept", slot)
			}
		}
		if _, err := c.Take(slot); !errors.Is(err, ErrEmpty) {
			t.Errorf("take %v: %v", slot, err)
		}
		if err := c.Replace(slot, fd); !errors.Is(err, ErrEmpty) {
			t.Errorf("replace %v: %v", slot, err)
		}
		c.Drop(slot)
		if err := c.send(slotRecord(wantDrop, slot), -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []record{{kind: wantTake, num: -1}, {kind: wantTake, num: 1 << 30}, {kind: wantTake, num: int32(Root), extra: -1}} {
		if a, err := c.call(r); err != nil || unix.Errno(a.value) != unix.EBADF {
			t.Errorf("%+v: %+v, %v", r, a, err)
		}
	}
	for number := range c.kept {
		if number <= int(Root) {
			t.Errorf("number %d is in use", number)
		}
	}
	if slices.ContainsFunc(c.free, func(number int) bool { return number <= int(Root) }) {
		t.Errorf("numbers %v are free", c.free)
	}
	if slot := keepFile(t, c, "good"); textIn(t, c, slot) != "good" {
		t.Errorf("slot %v has %q", slot, textIn(t, c, slot))
	}
}

// When all numbers are in use, every Keep says so; Drop of the slot of a failed
// Keep does no harm.
func TestOutOfNumbers(t *testing.T) {
	c := connected(t)
	c.limit = int(Root) + 6
	var slots []Slot
	for range 5 {
		slots = append(slots, keepFile(t, c, "text"))
	}
	for range 20 {
		slot, err := c.Keep(0)
		if slot != 0 || !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "raise the limit of open files") {
			t.Fatalf("slot %v, %v", slot, err)
		}
		c.Drop(slot)
	}
	if slot, err := c.Keep(-1); slot != 0 || err == nil {
		t.Errorf("slot %v, %v", slot, err)
	}
	c.Drop(slots[3])
	if slot, err := c.Keep(0); slot.Number() != slots[3].Number() || err != nil {
		t.Errorf("slot %v, %v", slot, err)
	}
	if err := c.Sync(); err != nil {
		t.Error(err)
	}
}

// No two daemons assign the same slot to two things, wherever the first is
// killed.
func TestGenerationsOfDaemons(t *testing.T) {
	h := startHolder(t, "stale")
	if got := h.line(t); got != "30 daemons, no slot twice" {
		t.Error(got)
	}
	h.end(t, 0)
}

func stale(s testDaemon) {
	const daemons = 30
	// Every slot that was ever assigned is written to a file that outlives the
	// daemons.
	var seen *os.File
	if s.start == 1 {
		fd, err := unix.MemfdCreate("seen", unix.MFD_CLOEXEC)
		check(err)
		check(s.Replace(Root, fd))
		seen = os.NewFile(uintptr(fd), "seen")
	} else {
		fd, err := s.Take(Root)
		check(err)
		seen = os.NewFile(uintptr(fd), "seen")
		before, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
		check(err)
		for _, slot := range s.Hello().Slots {
			if slot != Root && s.start%3 != 0 {
				s.Drop(slot)
			}
		}
		known := map[Slot]bool{}
		for ; len(before) > 0; before = before[8:] {
			slot := Slot(binary.LittleEndian.Uint64(before))
			if known[slot] {
				check(fmt.Errorf("slot %v was used twice", slot))
			}
			known[slot] = true
		}
	}
	if s.start > daemons {
		fmt.Println(daemons, "daemons, no slot twice")
		s.stopHolder(0)
	}
	for i := range 5 + s.start%4 {
		slot, err := s.Keep(0)
		check(err)
		_, err = seen.Write(binary.LittleEndian.AppendUint64(nil, uint64(slot)))
		check(err)
		if i%2 == 0 {
			s.Drop(slot)
		}
	}
	s.die() // with packets still in flight
}

// A daemon that asks for an impossible slot gets an error and is not killed.
func TestImpossibleSlotIsAnError(t *testing.T) {
	h := startHolder(t, "impossible")
	if got := h.line(t); got != "still alive" {
		t.Error(got)
	}
	h.end(t, 0)
	if strings.Contains(h.log.String(), "SIGKILL") {
		t.Errorf("log: %s", h.log.String())
	}
}

func impossible(s testDaemon) {
	if s.start > 1 {
		check(errors.New("the daemon was killed"))
	}
	for _, slot := range []Slot{-1, 0, 999, newSlot(999, 3), newSlot(maxNumber, 3)} {
		check(s.sendFD(slot, 0, keepNew))
		if s.Sync() == nil {
			check(fmt.Errorf("slot %v was kept", slot))
		}
	}
	fmt.Println("still alive")
	s.stopHolder(0)
}

// With a low limit of open files both ends run out of descriptors, and both
// keep working.
func TestCrowded(t *testing.T) {
	h := startHolderCmd(t, "crowded", exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec %s", int(Root)+40, executable(t))))
	if got := h.line(t); got != "39 kept, 100 refused" {
		t.Error(got)
	}
	h.end(t, 0)
	if strings.Contains(h.log.String(), "SIGKILL") || strings.Contains(h.log.String(), "restarting it") {
		t.Errorf("log: %s", h.log.String())
	}
}

func crowded(s testDaemon) {
	kept, refused := 0, 0
	for refused < 100 {
		slot, err := s.Keep(0)
		switch {
		case err == nil:
			kept++
			check(s.Sync())
		case slot != 0 || !errors.Is(err, unix.EMFILE):
			check(fmt.Errorf("slot %v: %w", slot, err))
		default:
			refused++
			s.Drop(slot)
		}
	}
	fmt.Printf("%d kept, %d refused\n", kept, refused)
	// This process has no free descriptor for what it takes: it gets an error
	// too.
	var filler []int
	for {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		filler = append(filler, fd)
	}
	slot := newSlot(int(Root)+1, 1)
	if _, err := s.Take(slot); !errors.Is(err, unix.EMFILE) {
		check(fmt.Errorf("take without a free descriptor: %w", err))
	}
	check(unix.Close(filler[0]))
	fd, err := s.Take(slot)
	check(err)
	check(unix.Close(fd))
	s.stopHolder(0)
}

// A hard limit below the slot numbers is a single error, before anything
// starts.
func TestLowLimit(t *testing.T) {
	h := startHolderCmd(t, "crowded", exec.Command("sh", "-c", fmt.Sprintf("ulimit -n 220; exec %s", executable(t))))
	h.end(t, 1)
	log := h.log.String()
	if !strings.Contains(log, "220") || !strings.Contains(log, fmt.Sprint(minFiles)) || strings.Contains(log, "restarting it") {
		t.Errorf("log: %s", log)
	}
}

// The state saved by a holder without generations can be loaded: its slots have
// generation 0, and the first new slot does not.
func TestLeftByFormat2(t *testing.T) {
	b, err := os.ReadFile("testdata/format2.left")
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(b[8:], uint32(os.Getpid())) // the holder's own pid comes first
	load := func(b []byte) *holder {
		t.Helper()
		h := &holder{table: newTable()}
		if err := h.loadState(b); err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := load(b)
	got := fmt.Sprintf("%v used %d tracked %d cleaner %d orphans %d recent %d host %x", h.table.slots, h.table.lastGeneration, len(h.table.tracked), h.table.formerCleaner, h.table.orphans, len(h.table.recent), h.hello.id)
	if want := "map[1000:0 1001:0 1002:0 1007:0] used 0 tracked 2 cleaner 500 orphans 13 recent 1 host beef"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// State that this version saves can be loaded by older and newer versions:
	// a kind that they do not know is skipped.
	h.hello.num = int32(os.Getpid())
	h.table.slots[1003], h.table.lastGeneration = 41, 44
	saved := h.encodeState()
	saved = append(record{kind: 200, extra: 7}.append(slices.Clone(saved[:len(saved)-recordSize])), saved[len(saved)-recordSize:]...)
	again := load(saved)
	if fmt.Sprint(again.table.slots) != fmt.Sprint(h.table.slots) || again.table.lastGeneration != 44 {
		t.Errorf("slots %v, used %d", again.table.slots, again.table.lastGeneration)
	}
	if err := (&holder{table: newTable()}).loadState(saved[:len(saved)-recordSize]); err == nil {
		t.Error("state without an end record was loaded")
	}
}

// Generations survive a re-exec of the holder.
func TestGenerationsAreRenewed(t *testing.T) {
	t.Setenv(programVar, executable(t))
	h := startHolder(t, "regenerated")
	if got := h.line(t); got != "3 programs, no slot twice" {
		t.Error(got)
	}
	h.end(t, 0)
}

func regenerated(s testDaemon) {
	const programs = 3
	var last int64 // the highest generation that earlier daemons used
	if s.start > 1 {
		fd, err := s.Take(Root)
		check(err)
		var b [16]byte
		_, err = unix.Pread(fd, b[:], 0)
		check(err)
		kept := Slot(binary.LittleEndian.Uint64(b[:]))
		last = int64(binary.LittleEndian.Uint64(b[8:]))
		if !slices.Contains(s.Kept(), kept) {
			check(fmt.Errorf("slot %v is not among %v", kept, s.Kept()))
		}
		taken, err := s.Take(kept)
		check(err)
		check(unix.Close(taken))
	}
	if s.start > programs {
		fmt.Println(programs, "programs, no slot twice")
		s.stopHolder(0)
	}
	kept, err := s.Keep(0)
	check(err)
	dropped, err := s.Keep(0)
	check(err)
	s.Drop(dropped) // its generation is not reused
	if kept.Generation() <= last || dropped.Generation() <= last {
		check(fmt.Errorf("slots %v and %v, after generation %d", kept, dropped, last))
	}
	fd, err := unix.MemfdCreate("note", unix.MFD_CLOEXEC)
	check(err)
	_, err = unix.Write(fd, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(kept)), uint64(dropped.Generation())))
	check(err)
	check(s.Replace(Root, fd))
	check(s.AnnounceExit(0, Restart))
	os.Exit(0)
}
