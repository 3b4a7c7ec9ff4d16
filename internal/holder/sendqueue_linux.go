package holder

import (
	"sync"

	"golang.org/x/sys/unix"
)

// sendQueue holds the records that wait to be sent to the daemon, so that a
// daemon that does not read never blocks the holder. It holds only replies that
// the daemon waits for and exits of processes that it tracks, which bounds its
// size.
type sendQueue struct {
	conn int

	mu     sync.Mutex
	wake   sync.Cond
	queue  []outgoing
	closed bool
}

type outgoing struct {
	record
	fd int // -1, or owned by the queue, which closes it after sending
}

func newSendQueue(conn int) *sendQueue {
	q := &sendQueue{conn: conn}
	q.wake.L = &q.mu
	return q
}

// put queues a record and takes ownership of fd.
func (q *sendQueue) put(r record, fd int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		closeFD(fd)
		return
	}
	q.queue = append(q.queue, outgoing{r, fd})
	q.wake.Signal()
}

// close ends run and discards what was not sent.
func (q *sendQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, out := range q.queue {
		closeFD(out.fd)
	}
	q.queue = nil
	q.wake.Signal()
}

// run sends until close, or until the daemon is gone.
func (q *sendQueue) run() {
	for {
		q.mu.Lock()
		for len(q.queue) == 0 && !q.closed {
			q.wake.Wait()
		}
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		q.sendAll(batch)
	}
}

// sendAll sends records, as many as fit in each packet. It ignores send errors:
// they mean that the daemon is gone, which the reading side detects.
func (q *sendQueue) sendAll(batch []outgoing) {
	packet := make([]byte, 0, recordSize*min(len(batch), packetRecords))
	flush := func(fd int) {
		if len(packet) > 0 {
			_ = send(q.conn, packet, fd)
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
