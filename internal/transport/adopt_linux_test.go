package transport

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/stdio"
	"github.com/terminal-runtime/trl/internal/trltest"
)

const adoptLine = `{"jsonrpc":"2.0","id":"adopt","method":"` + stdio.Method + `"}` + "\n"

// pass sends text with descriptors.
func (p *peer) pass(text string, fds ...int) {
	p.t.Helper()
	p.setDeadline()
	if _, _, err := p.WriteMsgUnix([]byte(text), unix.UnixRights(fds...), nil); err != nil {
		p.t.Fatal(err)
	}
}

// pipe returns the descriptors of both ends of a pipe.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func fd(f *os.File) int { return int(f.Fd()) }

// openFiles returns how many descriptors this process has.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// adopted is a client whose requests and answers go over pipes.
type adopted struct {
	*peer
	in     *os.File // to the server
	out    *os.File // from the server
	answer *bufio.Reader
}

func dialAdopted(t testing.TB, path string) *adopted {
	t.Helper()
	p := dial(t, path)
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	p.send(adoptLine)
	if line := p.line(); line != "\n" {
		t.Fatalf("answered %q, want an empty line", line)
	}
	p.pass("\n", fd(theirIn), fd(theirOut))
	if r := p.reply(); string(r.ID) != `"adopt"` || r.Error != nil {
		t.Fatalf("answered %s %v", r.ID, r.Error)
	}
	theirIn.Close()
	theirOut.Close()
	return &adopted{peer: p, in: in, out: out, answer: bufio.NewReader(out)}
}

// exchange sends a line over the pipes and returns the answer.
func (a *adopted) exchange(line string) reply {
	a.t.Helper()
	if _, err := a.in.WriteString(line); err != nil {
		a.t.Fatal(err)
	}
	_ = a.out.SetReadDeadline(time.Now().Add(trltest.Patience))
	answer, err := a.answer.ReadString('\n')
	if err != nil {
		a.t.Fatal(err)
	}
	return decodeReply(a.t, answer)
}

// A client that passes anything but the proper ends of two pipes gets an error, its
// connection goes on, and the server keeps nothing.
func TestAdoptRefuses(t *testing.T) {
	_, path := start(t, Config{}, nil)
	r, w := pipe(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fifoPath := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifoPath, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(fifoPath, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sockets[0])
	defer unix.Close(sockets[1])
	many := make([]int, 250)
	for i := range many {
		many[i] = fd(r)
	}
	for name, fds := range map[string][]int{
		"nothing":           nil,
		"one":               {fd(r)},
		"three":             {fd(r), fd(w), fd(w)},
		"many":              many,
		"wrong ends":        {fd(w), fd(r)},
		"two read ends":     {fd(r), fd(r)},
		"a file":            {fd(file), fd(file)},
		"a file and a pipe": {fd(r), fd(file)},
		"a named pipe":      {fd(fifo), fd(fifo)},
		"a terminal":        {fd(terminal), fd(terminal)},
		"sockets":           sockets[:],
		"the socket":        nil, // set below
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, path)
			p.ping() // it is accepted
			if name == "the socket" {
				raw, err := p.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				_ = raw.Control(func(own uintptr) { fds = []int{int(own), int(own)} })
			}
			before := openFiles(t)
			for range 3 {
				p.send(adoptLine)
				if line := p.line(); line != "\n" {
					t.Fatalf("answered %q, want an empty line", line)
				}
				p.pass("\n", fds...)
				if r := p.reply(); r.Error == nil || r.Error.Code != api.CodeInvalidRequest {
					t.Fatalf("answered %s %v", r.Result, r.Error)
				}
				p.ping()
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors became %d", before, after)
			}
		})
	}
}

// Descriptors that come with ordinary requests are never received.
func TestUnexpectedDescriptorsAreClosed(t *testing.T) {
	_, path := start(t, Config{}, nil)
	r, w := pipe(t)
	many := make([]int, 250)
	for i := range many {
		many[i] = fd(r)
	}
	p := dial(t, path)
	p.ping()
	before := openFiles(t)
	for _, c := range pingLine {
		p.pass(string(c), many...)
	}
	if r := p.reply(); string(r.ID) != `"ping"` || r.Error != nil {
		t.Fatalf("answered %s %v", r.ID, r.Error)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
	// No copy is left anywhere: the reader of the pipe is gone with ours.
	r.Close()
	trltest.Eventually(t, "the pipe has no reader", func() bool {
		_, err := w.WriteString("x")
		return errors.Is(err, unix.EPIPE)
	})
}

// An adopted connection ends with its relay, and if the relay says anything more; it
// is adopted once; and a shutdown answers what was read.
func TestAdopted(t *testing.T) {
	g := newGate()
	s, path := start(t, Config{}, g.run)
	a := dialAdopted(t, path)
	if r := a.exchange(adoptLine); r.Error == nil || r.Error.Code != api.CodeMethodNotFound {
		t.Errorf("the second time: %s %v", r.Result, r.Error)
	}
	gone := func() bool { open, _ := s.Connections(); return open == 0 }
	for name, end := range map[string]func(a *adopted){
		"the relay ends":  func(a *adopted) { a.Close() },
		"the relay talks": func(a *adopted) { a.send("x") },
		"the caller ends": func(a *adopted) { a.in.Close() },
	} {
		if r := a.exchange(pingLine); r.Error != nil {
			t.Error(r.Error)
		}
		end(a)
		trltest.Eventually(t, name+" and so does the connection", gone)
		a.in.Close()
		a.out.Close()
		a = dialAdopted(t, path)
	}
	if _, err := a.in.WriteString(runLine(1, "x")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	close(g.open)
	if line, err := a.answer.ReadString('\n'); err != nil || !strings.Contains(line, `"id":1`) {
		t.Errorf("answered %q: %v", line, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The server cancels what a caller waits for that is gone, although its relay is
// not.
func TestAdoptedWithoutAReaderIsCancelled(t *testing.T) {
	g := newGate()
	_, path := start(t, Config{}, g.run)
	a := dialAdopted(t, path)
	if _, err := a.in.WriteString(runLine(1, "x")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	a.in.Close()
	a.out.Close()
	<-g.cancelled
}
