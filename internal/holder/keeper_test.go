package holder

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// keeperTests checks what every Keeper must do.
func keeperTests(t *testing.T, k Keeper) {
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	kept := func(slot Slot) string {
		t.Helper()
		if err := k.Sync(); err != nil {
			t.Fatal(err)
		}
		name, err := os.Readlink(k.Path(slot))
		if err != nil {
			return err.Error()
		}
		return filepath.Base(name)
	}
	one, two := file("one"), file("two")
	slot, err := k.Keep(int(one.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if got := kept(slot); got != "one" {
		t.Fatalf("the path of a kept file leads to %s", got)
	}

	// It is the same open file description: the position is shared.
	if _, err := one.WriteString("12345"); err != nil {
		t.Fatal(err)
	}
	fd, err := k.Take(slot)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if pos, err := unix.Seek(fd, 0, unix.SEEK_CUR); pos != 5 || err != nil {
		t.Errorf("taken at position %d, %v; 5 bytes were written", pos, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a taken descriptor would be inherited: flags %x, %v", flags, err)
	}

	if err := k.Replace(slot, int(two.Fd())); err != nil {
		t.Fatal(err)
	}
	if got := kept(slot); got != "two" {
		t.Errorf("the path of a replaced slot leads to %s", got)
	}
	k.Drop(slot)
	if got := kept(slot); !strings.Contains(got, "no such file") {
		t.Errorf("the path of a dropped slot leads to %s", got)
	}
	if _, err := k.Take(slot); err == nil {
		t.Error("a dropped slot could be taken")
	}

	if _, err := k.Take(Root); err == nil {
		t.Error("there is a root before any was kept")
	}
	for _, f := range []*os.File{one, two} {
		if err := k.Replace(Root, int(f.Fd())); err != nil {
			t.Fatal(err)
		}
		if got := kept(Root); got != filepath.Base(f.Name()) {
			t.Errorf("the path of the root leads to %s", got)
		}
	}

	// Take while another goroutine replaces: the root is there at every moment.
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 2000 {
			if err := k.Replace(Root, int([]*os.File{one, two}[i%2].Fd())); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2000 {
		fd, err := k.Take(Root)
		if err != nil {
			t.Errorf("Take during Replace: %v", err)
			break
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	k.Drop(Root)
	if _, err := k.Take(Root); err == nil {
		t.Error("a dropped root could be taken")
	}
	if _, err := k.Keep(-1); err == nil {
		t.Error("an invalid descriptor could be kept")
	}
}

func TestAlone(t *testing.T) { keeperTests(t, NewLocalKeeper()) }
