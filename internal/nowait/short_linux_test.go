package nowait

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// files are what the calls are made with.
type files struct {
	mem, empty, full int // a memfd, the reading end of an empty pipe, the writing end of a full one
	read, write      int // a pipe with a few bytes
	broken, hungUp   int // the writing end of a pipe without reader, the reading end of one without writer
	closed           int // no descriptor
}

func openFiles(t *testing.T) *files {
	t.Helper()
	var open []int
	t.Cleanup(func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	})
	pipe := func() (r, w int) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		open = append(open, p[:]...)
		return p[0], p[1]
	}
	drop := func(fd int) {
		open = append(open[:len(open)-2:len(open)-2], open[len(open)-1]+open[len(open)-2]-fd)
		_ = unix.Close(fd)
	}
	f := &files{closed: 1 << 20}
	mem, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f.mem = mem
	open = append(open, mem)
	if _, err := unix.Write(mem, []byte("some text")); err != nil {
		t.Fatal(err)
	}
	f.empty, _ = pipe()
	_, f.full = pipe()
	for err == nil {
		_, err = unix.Write(f.full, make([]byte, 4096))
	}
	f.read, f.write = pipe()
	if _, err := unix.Write(f.write, []byte("bytes")); err != nil {
		t.Fatal(err)
	}
	r, w := pipe()
	f.broken = w
	drop(r)
	r, w = pipe()
	f.hungUp = r
	drop(w)
	return f
}

// Every call does what that of package unix does.
func TestShortCallsAreTheOrdinaryOnes(t *testing.T) {
	type call struct {
		name            string
		short, ordinary func(f *files) (any, error)
	}
	pread := func(fd func(*files) int, size int, at int64) call {
		with := func(read func(int, []byte, int64) (int, error)) func(f *files) (any, error) {
			return func(f *files) (any, error) {
				b := make([]byte, size)
				n, err := read(fd(f), b, at)
				return fmt.Sprint(n, string(bytes.TrimRight(b, "\x00"))), err
			}
		}
		return call{fmt.Sprintf("pread %d at %d", size, at), with(Pread), with(unix.Pread)}
	}
	pwrite := func(fd func(*files) int, text string, at int64) call {
		with := func(write func(int, []byte, int64) (int, error)) func(f *files) (any, error) {
			return func(f *files) (any, error) {
				n, err := write(fd(f), []byte(text), at)
				all, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.mem))
				return fmt.Sprint(n, string(all)), err
			}
		}
		return call{fmt.Sprintf("pwrite %d at %d", len(text), at), with(Pwrite), with(unix.Pwrite)}
	}
	write := func(fd func(*files) int, text string) call {
		with := func(write func(int, []byte) (int, error)) func(f *files) (any, error) {
			return func(f *files) (any, error) { return write(fd(f), []byte(text)) }
		}
		return call{fmt.Sprintf("write %d", len(text)), with(Write), with(unix.Write)}
	}
	splice := func(in, out func(*files) int, size int) call {
		ordinary := func(in, out, n, flags int) (int, error) {
			moved, err := unix.Splice(in, nil, out, nil, n, flags|unix.SPLICE_F_NONBLOCK)
			return int(moved), err
		}
		with := func(splice func(in, out, n, flags int) (int, error)) func(f *files) (any, error) {
			return func(f *files) (any, error) {
				_, _ = unix.Seek(f.mem, 0, 0)
				n, err := splice(in(f), out(f), size, unix.SPLICE_F_MOVE)
				all, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.mem))
				return fmt.Sprint(n, string(all)), err
			}
		}
		return call{fmt.Sprintf("splice %d", size), with(Splice), with(ordinary)}
	}
	size := func(fd func(*files) int) call {
		return call{
			"size", func(f *files) (any, error) { return Size(fd(f)) },
			func(f *files) (any, error) {
				var st unix.Stat_t
				err := unix.Fstat(fd(f), &st)
				return st.Size, err
			},
		}
	}
	poll := func(fds ...func(*files) int) call {
		with := func(poll func([]unix.PollFd) (int, error)) func(f *files) (any, error) {
			return func(f *files) (any, error) {
				var asked []unix.PollFd
				for _, fd := range fds {
					asked = append(asked, unix.PollFd{Fd: int32(fd(f)), Events: unix.POLLIN})
				}
				n, err := poll(asked)
				events := make([]int16, len(asked))
				for i := range asked {
					events[i] = asked[i].Revents
				}
				return fmt.Sprint(n, events), err
			}
		}
		return call{fmt.Sprintf("poll %d", len(fds)), with(Poll), with(func(fds []unix.PollFd) (int, error) { return unix.Poll(fds, 0) })}
	}
	dir := t.TempDir()
	long := dir
	for len(long) < 1000 {
		long = filepath.Join(long, strings.Repeat("d", 200))
	}
	for path, target := range map[string]string{"short": "/tmp", "long": long, "edge": strings.Repeat("x", 512), "below": strings.Repeat("x", 511)} {
		if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	readlink := func(path string) call {
		return call{
			"readlink " + filepath.Base(path), func(*files) (any, error) { return Readlink(path) },
			func(*files) (any, error) { return os.Readlink(path) },
		}
	}
	mem := func(f *files) int { return f.mem }
	empty := func(f *files) int { return f.empty }
	full := func(f *files) int { return f.full }
	in := func(f *files) int { return f.read }
	broken := func(f *files) int { return f.broken }
	hungUp := func(f *files) int { return f.hungUp }
	closed := func(f *files) int { return f.closed }
	for _, c := range []call{
		pread(mem, 4, 5), pread(mem, 100, 0), pread(mem, 0, 0), pread(mem, 2*shortBytes, 2), pread(mem, 10, 100), pread(mem, 10, -1),
		pread(empty, 10, 0), pread(closed, 10, 0),
		pwrite(mem, "new", 5), pwrite(mem, "", 0), pwrite(mem, strings.Repeat("x", shortBytes+1), 0), pwrite(mem, "x", -1),
		pwrite(full, "x", 0), pwrite(closed, "x", 0),
		write(full, "x"), write(func(f *files) int { return f.write }, "more"), write(broken, "x"), write(closed, "x"), write(mem, ""),
		write(func(f *files) int { return f.write }, strings.Repeat("x", 2*shortBytes)), // what there is room for
		splice(in, mem, 100), splice(in, mem, 2), splice(empty, mem, 100), splice(hungUp, mem, 100), splice(in, full, 100), splice(mem, mem, 100), splice(closed, mem, 100),
		size(mem), size(empty), size(closed),
		poll(in), poll(empty), poll(hungUp, empty, in), poll(closed), poll(),
		readlink(filepath.Join(dir, "short")), readlink(filepath.Join(dir, "long")), readlink(filepath.Join(dir, "edge")), readlink(filepath.Join(dir, "below")),
		readlink(filepath.Join(dir, "missing")), readlink("/"), readlink("a\x00b"), readlink("/proc/self/cwd"), readlink(""),
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.short(openFiles(t))
			want, wantErr := c.ordinary(openFiles(t))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-ordinary +short): %s", diff)
			}
			if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", wantErr, wantErr) || !errors.Is(err, wantErr) && !isPathError(err) {
				t.Errorf("error %T %v, want %T %v", err, err, wantErr, wantErr)
			}
		})
	}
}

func isPathError(err error) bool {
	_, is := errors.AsType[*os.PathError](err)
	return is
}

// A signal that arrives while a call is made does not fail it: the kernel restarts it,
// as it restarts the ordinary ones. Only a poll says that it was interrupted.
func TestShortCallsAmongSignals(t *testing.T) {
	f := openFiles(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
			_ = unix.Kill(unix.Getpid(), unix.SIGURG) // by which Go interrupts goroutines
		}
	}()
	for i := 0; ; i++ {
		var errs [4]error
		var b [9]byte
		_, errs[0] = Pread(f.mem, b[:], 0)
		_, errs[1] = Size(f.mem)
		if _, errs[2] = Poll([]unix.PollFd{{Fd: int32(f.empty), Events: unix.POLLIN}}); errs[2] == unix.EINTR {
			errs[2] = nil
		}
		_, errs[3] = Pwrite(f.mem, b[:], 0)
		if err := errors.Join(errs[:]...); err != nil || string(b[:]) != "some text" {
			t.Fatalf("round %d: %q, %v", i, b, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestClockGettime(t *testing.T) {
	var before, now, after unix.Timespec
	err := errors.Join(unix.ClockGettime(unix.CLOCK_BOOTTIME, &before), ClockGettime(unix.CLOCK_BOOTTIME, &now), unix.ClockGettime(unix.CLOCK_BOOTTIME, &after))
	if err != nil || now.Nano() < before.Nano() || now.Nano() > after.Nano() {
		t.Errorf("%v, between %v and %v: %v", now, before, after, err)
	}
	if err := ClockGettime(12345, &now); !errors.Is(err, unix.EINVAL) {
		t.Errorf("of a clock that does not exist: %v", err)
	}
}
