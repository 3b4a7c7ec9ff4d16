package shell

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Hub is what all shells of a daemon share: the status pipe, the texts they
// source at start, and spare pipes. An idle shell costs the daemon one
// descriptor, the writing end of its control pipe.
type Hub struct {
	log    *slog.Logger
	prefix string // of the paths under which shells open our descriptors

	statusW    int
	status     *os.File          // reading end
	texts      map[string]string // path of each embedded text, in a memfd
	textFDs    []int
	kits       kits
	clock      *clock
	mu         sync.Mutex
	shells     map[string]*Shell // by token
	readerDone chan struct{}
}

// NewHub opens the shared pipes and starts the reader of reports.
func NewHub(log *slog.Logger) (*Hub, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		log:        log,
		prefix:     "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/",
		clock:      newClock(),
		shells:     map[string]*Shell{},
		texts:      map[string]string{},
		readerDone: make(chan struct{}),
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("status pipe: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, errors.Join(err, closeFDs(p[:]...))
	}
	h.statusW, h.status = p[1], os.NewFile(uintptr(p[0]), "status")
	if err := h.loadTexts(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	go h.readReports()
	return h, nil
}

// Close stops the reader. All shells must have been closed.
func (h *Hub) Close() error {
	h.clock.close()
	err := closeFDs(h.statusW)
	err = errors.Join(err, h.status.Close())
	if len(h.textFDs) == len(bootTexts) { // the reader was started
		<-h.readerDone
	}
	err = errors.Join(err, closeFDs(h.textFDs...))
	for _, k := range h.kits.spare {
		err = errors.Join(err, k.close())
	}
	return err
}

// path is how a shell opens a descriptor of ours.
func (h *Hub) path(fd int) string { return h.prefix + strconv.Itoa(fd) }

// loadTexts puts the embedded texts into memfds, with the paths filled in.
func (h *Hub) loadTexts() error {
	fill := []string{"@STATUS@", h.path(h.statusW)}
	for _, t := range bootTexts {
		text, err := bootFiles.ReadFile("boot/" + t.file)
		if err != nil {
			return err
		}
		fd, err := memfd(t.name, strings.NewReplacer(append(fill, t.fill...)...).Replace(string(text)))
		if err != nil {
			return err
		}
		h.textFDs = append(h.textFDs, fd)
		h.texts[t.name] = h.path(fd)
		fill = append(fill, "@"+strings.ToUpper(t.name)+"@", h.path(fd))
	}
	return nil
}

// readReports hands each report to its shell. It never blocks on a shell: one
// that is flooded with forged reports loses them.
func (h *Hub) readReports() {
	defer close(h.readerDone)
	buf := make([]byte, 64<<10)
	held := 0
	for {
		n, err := h.status.Read(buf[held:])
		if err != nil {
			return
		}
		rest := buf[:held+n]
		for {
			line, after, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			rest = after
			if len(line) > 0 {
				h.deliver(line)
			}
		}
		held = copy(buf, rest)
		if held == len(buf) {
			held = 0 // a flood without a newline; real reports begin with one
		}
	}
}

func (h *Hub) deliver(line []byte) {
	r, ok := parseReport(line)
	if !ok {
		h.log.Warn("a line on the status pipe is not a report", "bytes", len(line))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock() // newToken must not come between the look-up and the send
	s := h.shells[r.token]
	if s == nil {
		return // of a shell that is gone
	}
	select {
	case s.reports <- r:
	default:
		h.log.Warn("a shell is flooded with reports", "kind", string(r.kind))
	}
}

// newToken names the process that becomes the shell now. What an earlier one
// said and was not heard in time is then nobody's.
func (s *Shell) newToken() error {
	var b [tokenLen / 2]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.shells, s.token)
	s.token = hex.EncodeToString(b[:])
	h.shells[s.token] = s
	for len(s.reports) > 0 { // deliver is kept out by mu
		<-s.reports
	}
	return nil
}

func (h *Hub) unregister(s *Shell) {
	h.mu.Lock()
	delete(h.shells, s.token)
	h.mu.Unlock()
}

func closeFDs(fds ...int) error {
	var errs error
	for _, fd := range fds {
		errs = errors.Join(errs, unix.Close(fd))
	}
	return errs
}

// memfd holds a text that shells read by path. It is never on a disk.
func memfd(name, text string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("memfd: %w", err)
	}
	for b := []byte(text); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return -1, errors.Join(fmt.Errorf("memfd: %w", err), unix.Close(fd))
		}
		b = b[n:]
	}
	return fd, nil
}
