package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// checkLossy checks that j, which got text and could not keep all of it, holds
// at least the first head and the last tail bytes, and reports what is missing,
// and why.
func checkLossy(t *testing.T, j *Journal, text []byte, why error, head, tail int64) {
	t.Helper()
	if err := j.Lossy(); !errors.Is(err, why) {
		t.Errorf("Lossy = %v, want %v", err, why)
	}
	size := int64(len(text))
	if j.Size() != size {
		t.Fatalf("Size = %d, want %d", j.Size(), size)
	}
	var g gap
	for _, chunk := range readAll(t, j, 0, 50_000) {
		if chunk.Gap > 0 {
			g = gap{chunk.Offset, chunk.End()}
		} else if !bytes.Equal(chunk.Data, text[chunk.Offset:chunk.End()]) {
			t.Fatalf("bytes from %d to %d differ", chunk.Offset, chunk.End())
		}
	}
	if g.start < head || size-g.end < tail {
		t.Errorf("held up to %d and from %d of %d, want at least %d and %d", g.start, g.end, size, head, tail)
	}
	h, tl, omitted, err := j.HeadTail(Stdout, int(head), 100)
	if err != nil || !bytes.Equal(h, text[:head]) || !bytes.Equal(tl, text[size-100:]) || omitted != size-head-100 {
		t.Errorf("HeadTail: %d and %d bytes, %d omitted, %v", len(h), len(tl), omitted, err)
	}
}

func TestNoSpillFile(t *testing.T) {
	text := numbered(1 << 20)
	s := NewStore(Config{Dir: filepath.Join(t.TempDir(), "missing")})
	j := s.New()
	defer j.Release()
	for i := 0; i < len(text); i += 1000 {
		j.Append(Stdout, text[i:min(i+1000, len(text))])
	}
	checkLossy(t, j, text, fs.ErrNotExist, 60_000, tailMemory)
	if got := s.Stats(); got.SpilledBytes != 0 || got.MemoryBytes > 2*tailMemory+1000 {
		t.Errorf("%+v", got)
	}
}

func TestTotalQuota(t *testing.T) {
	text := numbered(1 << 20)
	s := newStore(t, Config{TotalQuota: 1_500_000})
	j, k := s.New(), s.New()
	defer j.Release()
	defer k.Release()
	j.Append(Stdout, text)
	k.Append(Stdout, text)
	if err := j.Lossy(); err != nil {
		t.Errorf("the first journal: %v", err)
	}
	checkLossy(t, k, text, ErrTotalQuota, 1_500_000-1<<20, tailMemory)
	if got := s.Stats(); got.SpilledBytes != 1_500_000 || got.Lossy != 1 {
		t.Errorf("%+v", got)
	}
}

// With the daemon past its memory, a lossy journal keeps only a little.
func TestLossyWithoutMemory(t *testing.T) {
	text := numbered(1 << 20)
	s := NewStore(Config{Dir: filepath.Join(t.TempDir(), "missing"), TotalMemory: 1})
	j := s.New()
	defer j.Release()
	for i := 0; i < len(text); i += 1000 {
		j.Append(Stdout, text[i:min(i+1000, len(text))])
	}
	checkLossy(t, j, text, fs.ErrNotExist, 3000, smallJournal)
	if got := s.Stats().MemoryBytes; got > 3*smallJournal {
		t.Errorf("%d bytes of memory", got)
	}
}

// A write that fails in a ring that has wrapped leaves the head and the newest
// bytes.
func TestRingWriteFails(t *testing.T) {
	text := numbered(1 << 20)
	j := newJournal(t, Config{ExecQuota: 200_000})
	half := len(text) / 2
	j.Append(Stdout, text[:half])
	name := filepath.Join(t.TempDir(), "copy")
	content := make([]byte, 200_000)
	if _, err := j.spill.file.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	j.spill.file.Close()
	j.spill.file = readOnly
	j.Append(Stdout, text[half:half+1000])
	if first, want := j.FirstHeld(100_000), int64(half+1000-tailMemory); first != want {
		t.Errorf("held again from %d, want %d", first, want)
	}
	j.Append(Stdout, text[half+1000:])
	var pathErr *fs.PathError
	if !errors.As(j.Lossy(), &pathErr) {
		t.Errorf("Lossy = %v, want a write error", j.Lossy())
	}
	checkLossy(t, j, text, j.Lossy(), 100_000, tailMemory)
}
