package shell

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
)

// router reads the status pipe and delivers each report to the shell whose token it
// carries.
type router struct {
	log     *slog.Logger
	statusW heldFD
	statusR heldFD
	status  *os.File // the reading end in the poller; nil until reports are read
	ring    *ring
	// begin starts a goroutine of the driver.
	begin func(func()) bool

	// unsaved is how many reports were delivered to shells that have not yet saved
	// what they learned from them.
	unsaved atomic.Int64

	// rounds counts the beginnings and the ends of rounds: it is odd while something
	// that left the status pipe may not have been delivered.
	rounds atomic.Uint64

	mu      sync.Mutex
	inboxes map[string]*inbox // by token
}

// deliveryTime bounds the wait for reports that were written already: forged ones may
// crowd them out.
const deliveryTime = time.Second

// inbox is where the router delivers the reports of one shell.
type inbox struct {
	owner attached
	token string // of the process that is the shell now; guarded by router.mu
	// reports come from the router. The capacity is more than a shell ever sends
	// without being asked; what exceeds it was forged, and is dropped.
	reports      chan report
	staleReports uint64 // an earlier daemon acted on the reports up to here
	staleSeq     int    // an earlier daemon asked the questions up to this number,
	awaitedSeq   int    // and only this answer is still wanted

	// exiting is true once the shell has reported that it exits, which may not have
	// been handled yet.
	exiting atomic.Bool
}

// attached is a shell, as the router and the driver see it.
type attached interface {
	// driverStarted is called by Driver.Start.
	driverStarted()
	// handleIdleReports handles the delivered reports if the shell is idle.
	handleIdleReports()
	// held returns the descriptors that the shell's state names.
	held() []heldFD
}

func newInbox(owner attached) *inbox { return &inbox{owner: owner, reports: make(chan report, 16)} }

// attachedShells returns all shells that have a token.
func (r *router) attachedShells() []attached {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []attached
	for _, in := range r.inboxes {
		all = append(all, in.owner)
	}
	return all
}

// start begins to read reports.
func (r *router) start() {
	r.status = os.NewFile(uintptr(r.statusR.fd), "status")
	r.rounds.Add(1)
	r.begin(r.read)
}

// stop makes read return.
func (r *router) stop() error {
	if r.status == nil {
		return nil
	}
	r.statusR.fd = -1 // it belongs to the file
	return r.status.Close()
}

// held returns the descriptors that every driver state names.
func (r *router) held() []heldFD { return []heldFD{r.statusR, r.statusW, r.ring.heldFD} }

// slotsOf returns the slots of valid descriptors.
func slotsOf(held []heldFD) []holder.Slot {
	var slots []holder.Slot
	for _, h := range held {
		if h.valid() {
			slots = append(slots, h.slot)
		}
	}
	return slots
}

// read delivers each report to its shell until the status pipe is closed. It never
// blocks on a shell: one that is flooded with forged reports loses them.
func (r *router) read() {
	raw, err := r.status.SyscallConn()
	if err != nil || r.deliverAll() != nil { // what an earlier daemon left in the ring
		return
	}
	r.rounds.Add(1)
	// All in one Read, which returns at the end: the poller then signals what comes
	// after a pull that took everything. Another Read would first poll the pipe, and
	// delay the shell that the last report is for.
	_ = raw.Read(func(fd uintptr) (ended bool) {
		for {
			room := ringSize - r.ring.end
			n, err := r.round(int(fd))
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil || n == 0:
				return true
			case n < room:
				return false
			}
		}
	})
}

// round moves what is in the status pipe to the ring, and delivers it.
func (r *router) round(pipe int) (n int, err error) {
	r.rounds.Add(1)
	defer r.rounds.Add(1)
	if n, err = r.ring.pull(pipe); n > 0 {
		err = r.deliverAll()
	}
	return n, err
}

// awaitDelivery waits until the reports that were written before the call have been
// delivered, at most deliveryTime. It costs a microsecond if there are none.
func (r *router) awaitDelivery() {
	begun := r.rounds.Load()
	begun += begun % 2
	for end := time.Now().Add(deliveryTime); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		now := r.rounds.Load()
		if now >= begun+2 {
			return // a round that began after the call is over
		}
		unread, err := unix.IoctlGetInt(r.statusW.fd, unix.TIOCINQ) // the kernel's FIONREAD
		if err != nil || unread == 0 && now%2 == 0 && r.rounds.Load() == now {
			return
		}
	}
}

// deliverAll delivers what is in the ring.
func (r *router) deliverAll() error {
	r.ring.each(r.deliver)
	if r.ring.needsLap() {
		return r.tryLap()
	}
	return nil
}

// tryLap begins a new lap of the ring if everything delivered from it has been
// saved. Busy shells save soon; idle ones are asked to.
func (r *router) tryLap() error {
	if r.ring.full() || r.unsaved.Load() == 0 && r.ring.delivered == r.ring.end {
		return r.ring.lap()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.inboxes {
		if len(in.reports) > 0 {
			r.begin(in.owner.handleIdleReports)
		}
	}
	return nil
}

func (r *router) deliver(line []byte, at uint64) {
	rep, ok := parseReport(line)
	if !ok {
		r.log.Warn("malformed line on the status pipe", "bytes", len(line))
		return
	}
	rep.at = at
	r.mu.Lock()
	defer r.mu.Unlock() // newToken must not come between the look-up and the send
	in := r.inboxes[rep.token]
	if in == nil || at <= in.staleReports || rep.kind == reportReady && rep.a <= in.staleSeq && rep.a != in.awaitedSeq {
		// The shell is gone, or its state includes the report, or a daemon asked
		// that was killed: there may be many such answers, and they would crowd out
		// the ones that are awaited.
		return
	}
	if rep.kind == reportExit {
		in.exiting.Store(true)
	}
	r.unsaved.Add(1)
	select {
	case in.reports <- rep:
	default:
		r.unsaved.Add(-1)
		r.log.Warn("too many reports from a shell", "kind", string(rep.kind))
	}
}

// newToken gives an inbox the token of the process that becomes the shell now.
// Undelivered reports of the process before are dropped, late ones are not
// delivered.
func (r *router) newToken(in *inbox) (string, error) {
	var b [tokenLen / 2]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inboxes, in.token)
	in.token = hex.EncodeToString(b[:])
	r.inboxes[in.token] = in
	in.exiting.Store(false)
	r.discard(in)
	return in.token, nil
}

// register delivers reports with this token to the inbox.
func (r *router) register(token string, in *inbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.token = token
	r.inboxes[token] = in
}

// unregister stops delivering reports to an inbox.
func (r *router) unregister(in *inbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inboxes, in.token)
}

// empty drops what was delivered to an inbox that is no longer registered.
func (r *router) empty(in *inbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discard(in)
}

// discard drops what was delivered. The caller must hold mu, which keeps deliver
// out.
func (r *router) discard(in *inbox) {
	for len(in.reports) > 0 {
		<-in.reports
		r.unsaved.Add(-1)
	}
}

// saved notes that shells have saved what they learned from n reports.
func (r *router) saved(n int64) { r.unsaved.Add(-n) }
