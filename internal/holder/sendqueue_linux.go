package holder

import (
	"sync"

	"golang.org/x/sys/unix"
)

// outbox is what waits to be sent to the daemon, so that a daemon that does not
// read keeps the holder from nothing. It holds answers to what the daemon waits
// for and exits of what it tracks, and is bounded by these.
type sendQueue struct {
	conn int

	mu     sync.Mutex
	wake   sync.Cond
	queue  []outgoing
	closed bool
}

type outgoing struct {
	record
	fd int // -1, or the outbox's own, closed when it is sent
}

func newSendQueue(conn int) *sendQueue {
	o := &sendQueue{conn: conn}
	o.wake.L = &o.mu
	return o
}

// put queues a record. A descriptor becomes the outbox's.
func (o *sendQueue) put(r record, fd int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		closeFD(fd)
		return
	}
	o.queue = append(o.queue, outgoing{r, fd})
	o.wake.Signal()
}

// close ends run, and gives up what was not sent.
func (o *sendQueue) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, out := range o.queue {
		closeFD(out.fd)
	}
	o.queue = nil
	o.wake.Signal()
}

// run sends until close, or until the daemon is gone.
func (o *sendQueue) run() {
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.wake.Wait()
		}
		batch := o.queue
		o.queue = nil
		o.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		o.sendAll(batch)
	}
}

// sendAll sends records, as many as fit in a packet. A failed send is not told:
// the daemon is gone then, and its end is noticed where it is read from.
func (o *sendQueue) sendAll(batch []outgoing) {
	packet := make([]byte, 0, recordSize*min(len(batch), packetRecords))
	flush := func(fd int) {
		if len(packet) > 0 {
			_ = send(o.conn, packet, fd)
			packet = packet[:0]
		}
	}
	for _, out := range batch {
		if out.fd >= 0 {
			flush(-1)
		}
		packet = out.append(packet)
		if out.fd >= 0 || len(packet) == recordSize*packetRecords {
			flush(out.fd)
			closeFD(out.fd)
		}
	}
	flush(-1)
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
