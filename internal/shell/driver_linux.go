package shell

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/freelist"
	"github.com/terminal-runtime/trl/internal/holder"
)

// HubConfig is what a Hub is made with. The zero value is usable.
type DriverConfig struct {
	Log *slog.Logger // default: discarded
	// Keeper keeps what shells open by path. Default: this process, so that
	// they end with it.
	Keeper holder.Keeper
}

// Hub is what all shells of a daemon share: the status pipe, the texts they
// source at start, and spare pipes. An idle shell costs the daemon one
// descriptor, the writing end of its control pipe.
type Driver struct {
	log    *slog.Logger
	keeper holder.Keeper

	statusW       heldFD
	statusR       heldFD
	status        *os.File // the reading end in the poller
	ring          *ring
	bootScripts   map[string]heldFD // the embedded ones, by name
	loadedScripts map[string]heldFD // all that were loaded, by key; see scriptKey
	copyPool      freelist.List[*copyFDs]
	scriptPool    freelist.List[*script]
	clock         *clock

	// unsaved is how many reports were handed to shells that have not saved yet
	// what they learned from them.
	unsaved atomic.Int64

	mu         sync.Mutex
	shells     map[string]*Shell // by token
	started    bool
	readerDone chan struct{}
}

// NewHub makes a hub without a keeper.
func NewDriver(log *slog.Logger) (*Driver, error) { return OpenDriver(DriverConfig{Log: log}) }

func newDriver(cfg DriverConfig) *Driver {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Keeper == nil {
		cfg.Keeper = holder.NewLocalKeeper()
	}
	h := &Driver{
		log:           cfg.Log,
		keeper:        cfg.Keeper,
		statusW:       noFD,
		statusR:       noFD,
		clock:         newClock(),
		shells:        map[string]*Shell{},
		bootScripts:   map[string]heldFD{},
		loadedScripts: map[string]heldFD{},
		readerDone:    make(chan struct{}),
	}
	h.copyPool.Make, h.copyPool.End = h.openCopyFDs, h.closeCopyFDs
	h.scriptPool.Make, h.scriptPool.End = h.openScript, func(t *script) { h.drop(t.heldFD) }
	return h
}

// OpenHub opens the shared pipes and starts the reader of reports.
func OpenDriver(cfg DriverConfig) (*Driver, error) {
	h := newDriver(cfg)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("status pipe: %w", err)
	}
	h.statusR.fd, h.statusW.fd = p[0], p[1]
	err := unix.SetNonblock(p[0], true)
	for _, end := range []*heldFD{&h.statusR, &h.statusW} {
		if err == nil {
			var k heldFD
			if k, err = h.keepFD(end.fd); err == nil {
				*end = k
			}
		}
	}
	if err == nil {
		h.ring, err = h.openRing()
	}
	if err == nil {
		err = h.loadBootScripts()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	h.Start()
	return h, nil
}

// Start begins to read reports. A hub that was adopted is started when its
// shells have been adopted, and before anything is asked of them: a report of
// one that it does not know is nobody's.
func (h *Driver) Start() {
	h.status = os.NewFile(uintptr(h.statusR.fd), "status")
	h.started = true
	go h.readReports()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.shells {
		if s.current == nil || s.current.stage == stageOver {
			s.scheduleIdle() // nobody else knows the shell yet
		}
	}
}

// Close stops the reader. All shells must have been closed.
func (h *Driver) Close() error {
	h.clock.close()
	var err error
	if h.started {
		err = h.status.Close()
		<-h.readerDone
		h.statusR.fd = -1
	}
	if h.ring != nil {
		err = errors.Join(err, h.ring.unmap())
		h.drop(h.ring.heldFD)
	}
	h.drop(h.statusW)
	h.drop(h.statusR)
	for _, k := range h.loadedScripts {
		h.drop(k)
	}
	h.copyPool.Close()
	h.scriptPool.Close()
	return err
}

// loadTexts puts the embedded texts that are not there yet into memfds, with the
// paths filled in.
func (h *Driver) loadBootScripts() error {
	paths := []string{"@STATUS@", h.statusW.path}
	for _, t := range bootScripts {
		contents, err := bootFiles.ReadFile("boot/" + t.file)
		if err != nil {
			return err
		}
		text := strings.NewReplacer(t.fill...).Replace(string(contents))
		text = strings.NewReplacer(paths...).Replace(text)
		key := scriptKey(t.name, text)
		if _, there := h.loadedScripts[key]; !there { // no earlier daemon has loaded it
			fd, err := sealedMemfd(t.name, text)
			if err != nil {
				return err
			}
			if h.loadedScripts[key], err = h.keepAndClose(fd); err != nil {
				return err
			}
		}
		h.bootScripts[t.name] = h.loadedScripts[key]
		paths = append(paths, "@"+strings.ToUpper(t.name)+"@", h.loadedScripts[key].path)
	}
	return h.keeper.Sync()
}

// scriptKey names a script by what is in it: a program with another text of the
// same name loads its own, and shells that know the older one still find it.
func scriptKey(name, text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s-%x", name, sum[:8])
}

// readReports hands each report to its shell. It never blocks on a shell: one
// that is flooded with forged reports loses them.
func (h *Driver) readReports() {
	defer close(h.readerDone)
	raw, err := h.status.SyscallConn()
	if err != nil || h.deliverReports() != nil { // what an earlier daemon left
		return
	}
	// All in one Read, which returns at the end: what comes after a pull that
	// took all is then told by the poller. Another Read would first look for
	// it, and delay whom the last report is for.
	_ = raw.Read(func(fd uintptr) (ended bool) {
		for {
			room := ringSize - h.ring.end
			n, err := h.ring.pull(int(fd))
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil || n == 0 || h.deliverReports() != nil:
				return true
			case n < room:
				return false
			}
		}
	})
}

// tellReports hands on what is in the ring.
func (h *Driver) deliverReports() error {
	h.ring.each(h.deliver)
	if h.ring.needsLap() {
		return h.tryLap()
	}
	return nil
}

// roundUp begins the ring anew once all that was told of it has been saved.
// Shells that are busy save soon; the idle ones are asked to.
func (h *Driver) tryLap() error {
	if h.ring.full() || h.unsaved.Load() == 0 && h.ring.delivered == h.ring.end {
		return h.ring.lap()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.shells {
		if len(s.reports) > 0 {
			go s.handleIdleReports()
		}
	}
	return nil
}

func (h *Driver) deliver(line []byte, at uint64) {
	r, ok := parseReport(line)
	if !ok {
		h.log.Warn("a line on the status pipe is not a report", "bytes", len(line))
		return
	}
	r.at = at
	h.mu.Lock()
	defer h.mu.Unlock() // newToken must not come between the look-up and the send
	s := h.shells[r.token]
	if s == nil || at <= s.staleReports || r.kind == reportReady && r.a <= s.staleSeq && r.a != s.awaitedSeq {
		// Of a shell that is gone, or one that knows it, or the answer to who
		// was killed: of those there may be many, and they would crowd out ours.
		return
	}
	h.unsaved.Add(1)
	select {
	case s.reports <- r:
	default:
		h.unsaved.Add(-1)
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
	h := s.driver
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.shells, s.token)
	s.token = hex.EncodeToString(b[:])
	h.shells[s.token] = s
	s.discardReports()
	return nil
}

// ignoreReports drops what has come. Under the hub's mu, which keeps deliver
// out.
func (s *Shell) discardReports() {
	for len(s.reports) > 0 {
		<-s.reports
		s.driver.unsaved.Add(-1)
	}
}

func (h *Driver) unregister(s *Shell) {
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
