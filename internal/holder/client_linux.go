package holder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone means that the holder has died, and that everything it kept is lost.
var ErrGone = errors.New("holder process is gone")

// Exit describes how a tracked process ended.
type Exit struct {
	PID    int
	Status syscall.WaitStatus
	CPU    time.Duration
}

// Hello is what the holder sent when the connection was made.
type Hello struct {
	PID int // of the holder, the parent of all session processes
	// Host is a random number for the holder: two holders on one machine
	// differ, and every daemon of one holder sees the same number.
	Host uint16
	// Restarted reports whether there was an earlier daemon. Slots and Tracked
	// are then what it left, and exits that it did not forget are delivered to
	// Watch.
	Restarted bool
	Slots     []Slot
	Tracked   []int // only those that are still alive
}

// Client is the daemon's end of the connection to its holder, and the daemon's
// Keeper. It is safe for concurrent use.
type Client struct {
	conn  int
	hello Hello
	fds   string // /proc directory of the holder's descriptors
	limit int    // first number that can't be a slot's; guarded by mu
	done  chan struct{}

	writeMu sync.Mutex // one packet at a time; never taken with mu held
	packet  []byte     // guarded by writeMu

	mu             sync.Mutex
	free           []int         // numbers that were freed, used from the end
	next           int           // above all numbers that were ever used
	kept           map[int]int64 // generations of the slots in use, by number
	lastGeneration int64         // last generation that any daemon used
	keepErr        error         // first refused Keep, until a Sync has returned it
	onRefusal      func(Slot, error)
	pending        map[uint32]chan<- answer
	lastID         uint32
	watch          func(Exit)
	undelivered    []Exit // exits that arrived before Watch was called
	err            error  // why done is closed
}

type answer struct {
	record
	fd int
}

// Connect takes over the descriptor that the holder passed to this process and
// waits for the holder's hello.
func Connect(fd int) (*Client, error) {
	unix.CloseOnExec(fd)
	unix.CloseOnExec(lifelineFD) // if it is open
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	c := &Client{
		conn: fd, done: make(chan struct{}), pending: map[uint32]chan<- answer{},
		next: int(Root) + 1, kept: map[int]int64{},
		limit: int(min(limit.Max, maxNumber)), // the Go runtime has raised the holder's limit to this
	}
	in := &packetReader{conn: fd}
	for ready := false; !ready; {
		err := in.next(func(r record, got int) error {
			if got >= 0 {
				_ = unix.Close(got)
				return fmt.Errorf("%w: descriptor in the hello", errMalformed)
			}
			last, err := c.handleHello(r)
			ready = ready || last // exits may follow in the same packet
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to holder: %w", err), unix.Close(fd))
		}
	}
	c.fds = "/proc/" + strconv.Itoa(c.hello.PID) + "/fd/"
	c.findFree()
	go c.readLoop(in)
	return c, nil
}

// handleHello processes one record of the hello. ready is true for the last
// one.
func (c *Client) handleHello(r record) (ready bool, err error) {
	switch r.kind {
	case gotHello:
		c.hello.PID, c.hello.Host, c.hello.Restarted = int(r.num), uint16(r.id), r.flags&helloRestarted != 0
		c.lastGeneration = r.extra
		// The holder's own score is low; neither this process nor its children
		// should inherit it.
		_ = os.WriteFile("/proc/self/oom_score_adj", strconv.AppendInt(nil, int64(r.value), 10), 0)
	case gotSlot:
		c.hello.Slots = append(c.hello.Slots, r.slot())
	case gotTrack:
		c.hello.Tracked = append(c.hello.Tracked, int(r.num))
	case gotExit:
		c.undelivered = append(c.undelivered, exitOf(r))
	case gotReady:
		return true, nil
	default:
		return false, fmt.Errorf("%w: kind %d in the hello", errMalformed, r.kind)
	}
	return false, nil
}

func exitOf(r record) Exit {
	return Exit{PID: int(r.num), Status: syscall.WaitStatus(r.value), CPU: time.Duration(r.extra)}
}

// findFree builds the free list from the slots that the holder reported.
func (c *Client) findFree() {
	for _, slot := range c.hello.Slots {
		c.kept[slot.Number()] = slot.Generation()
		c.next = max(c.next, slot.Number()+1)
	}
	for number := c.next - 1; number > int(Root); number-- {
		if _, ok := c.kept[number]; !ok {
			c.free = append(c.free, number)
		}
	}
}

// Kept returns the slots that are in use now, ordered by number: those that an
// earlier daemon left and this one has not dropped, and its own.
func (c *Client) Kept() []Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	slots := make([]Slot, 0, len(c.kept))
	for number, generation := range c.kept {
		if generation >= 0 {
			slots = append(slots, newSlot(number, generation))
		}
	}
	slices.SortFunc(slots, func(a, b Slot) int { return a.Number() - b.Number() })
	return slots
}

// Hello returns what the holder sent when the connection was made.
func (c *Client) Hello() Hello { return c.hello }

// Done returns a channel that is closed when the holder is gone, or has sent a
// malformed message.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why Done is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// readLoop delivers replies to callers and exits to Watch.
func (c *Client) readLoop(in *packetReader) {
	var err error
	for err == nil {
		err = in.next(c.handle)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.mu.Lock()
	c.err = errors.Join(ErrGone, err)
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	_ = unix.Shutdown(c.conn, unix.SHUT_RDWR) // unblock a writer that waits for buffer space
	close(c.done)
	for _, to := range pending {
		close(to)
	}
}

func (c *Client) handle(r record, fd int) error {
	switch r.kind {
	case gotExit:
		c.mu.Lock()
		watch := c.watch
		if watch == nil {
			c.undelivered = append(c.undelivered, exitOf(r))
		}
		c.mu.Unlock()
		if watch != nil {
			watch(exitOf(r))
		}
		return nil
	case gotTake, gotSync, gotGroup, gotCount:
		c.mu.Lock()
		to := c.pending[r.id]
		delete(c.pending, r.id)
		c.mu.Unlock()
		if to != nil {
			to <- answer{r, fd} // never blocks: the channel has room for one
			return nil
		}
	case gotRefused:
		c.handleRefusal(r)
		return nil
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return fmt.Errorf("%w: unexpected kind %d, request %d", errMalformed, r.kind, r.id)
}

// Watch calls fn for every exit of a tracked process: first for those that have
// not been delivered yet, then for each new one. It must be called only once.
// fn must not call methods of this client that wait for the holder.
func (c *Client) Watch(fn func(Exit)) {
	for {
		c.mu.Lock()
		unheard := c.undelivered
		c.undelivered = nil
		if len(unheard) == 0 {
			c.watch = fn
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, exit := range unheard {
			fn(exit)
		}
	}
}

func (c *Client) send(r record, fd int) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.packet = r.append(c.packet[:0])
	err := send(c.conn, c.packet, fd)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrGone
	}
	return err
}

func (c *Client) call(r record) (answer, error) {
	reply := make(chan answer, 1)
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return answer{}, ErrGone
	}
	c.lastID++
	r.id = c.lastID
	c.pending[r.id] = reply
	c.mu.Unlock()
	if err := c.send(r, -1); err != nil {
		c.mu.Lock()
		delete(c.pending, r.id)
		c.mu.Unlock()
		return answer{}, err
	}
	a, ok := <-reply
	if !ok {
		return a, ErrGone
	}
	return a, nil
}

// OnRefusal calls fn for every slot that the holder refused to keep or to drop,
// and for every Drop of a slot that is not in use. Each of these is a bug, or a
// lack of descriptors. fn must not call this client. OnRefusal must be called
// before the client is used.
func (c *Client) OnRefusal(fn func(Slot, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRefusal = fn
}

// handleRefusal processes the holder's report that it did not keep or drop a
// slot.
func (c *Client) handleRefusal(r record) {
	slot, errno := newSlot(int(r.num), r.extra), unix.Errno(r.value)
	var err error
	c.mu.Lock()
	if kind(r.flags) == wantKeep {
		err = fmt.Errorf("keep in slot %v: %w", slot, slotError(errno))
		if c.keepErr == nil {
			c.keepErr = err
		}
		switch {
		case slot.Number() <= int(Root):
		case errno == errnoStale:
			c.kept[slot.Number()] = -1 // in use for something else; never ours
		case errno == unix.EBADF:
			c.limit = min(c.limit, slot.Number()) // the holder's limit is lower than ours
		}
	} else {
		err = fmt.Errorf("drop slot %v: %w", slot, slotError(errno))
	}
	refused := c.onRefusal
	c.mu.Unlock()
	if refused != nil {
		refused(slot, err)
	}
}

// slotError converts an errno that the holder sent about a slot.
func slotError(errno unix.Errno) error {
	switch errno {
	case errnoStale:
		return ErrStale
	case unix.EBADF:
		return ErrEmpty
	}
	return errno
}

// checkSlot returns nil if this daemon may use the slot, otherwise ErrEmpty or
// ErrStale.
func (c *Client) checkSlot(slot Slot) error {
	if slot == Root {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	generation, ok := c.kept[slot.Number()]
	switch {
	case slot < Root || !ok:
		return ErrEmpty
	case generation != slot.Generation():
		return ErrStale
	}
	return nil
}

// Keep implements Keeper.
func (c *Client) Keep(fd int) (Slot, error) {
	slot, err := c.allocSlot()
	if err != nil {
		return 0, err
	}
	if err := c.sendFD(slot, fd, keepNew); err != nil {
		c.freeNumber(slot)
		return 0, err
	}
	return slot, nil
}

// allocSlot returns a free number with a new generation. If this process is
// killed before it has sent the generation to the holder, the next daemon may
// use the same one; that is safe because no caller has seen it.
func (c *Client) allocSlot() (Slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var number int
	for number == 0 {
		if n := len(c.free); n > 0 {
			number, c.free = c.free[n-1], c.free[:n-1]
			if number >= c.limit {
				number = 0
			}
			continue
		}
		if c.next >= c.limit || c.lastGeneration >= maxGeneration {
			return 0, fmt.Errorf("keep descriptor: all %d numbers are in use; raise the limit of open files (nofile): %w", c.limit, unix.EMFILE)
		}
		number = c.next
		c.next++
	}
	c.lastGeneration++
	c.kept[number] = c.lastGeneration
	return newSlot(number, c.lastGeneration), nil
}

// Replace implements Keeper.
func (c *Client) Replace(slot Slot, fd int) error {
	if err := c.checkSlot(slot); err != nil {
		return fmt.Errorf("replace slot %v: %w", slot, err)
	}
	return c.sendFD(slot, fd, 0)
}

// sendFD sends a descriptor to the holder.
func (c *Client) sendFD(slot Slot, fd int, flags uint8) error {
	if fd < 0 {
		return fmt.Errorf("keep descriptor: %w", unix.EBADF)
	}
	r := slotRecord(wantKeep, slot)
	r.flags = flags
	err := c.send(r, fd)
	if errors.Is(err, unix.ETOOMANYREFS) {
		// The kernel limits how many descriptors of a user may be in flight
		// between processes. After a Sync none of ours is in flight.
		if err = c.Sync(); err == nil {
			err = c.send(r, fd)
		}
	}
	if err != nil {
		return fmt.Errorf("keep descriptor: %w", err)
	}
	return nil
}

// Drop implements Keeper.
func (c *Client) Drop(slot Slot) {
	if slot <= 0 {
		return // a Keep that failed returns 0
	}
	if err := c.checkSlot(slot); err != nil {
		c.mu.Lock()
		refused := c.onRefusal
		c.mu.Unlock()
		if refused != nil {
			refused(slot, fmt.Errorf("drop slot %v: %w", slot, err))
		}
		return
	}
	if c.send(slotRecord(wantDrop, slot), -1) == nil {
		// Free the number only after the drop was sent: a Keep that reuses the
		// number must reach the holder later.
		c.freeNumber(slot)
	}
}

// freeNumber makes the number of a slot available again, once.
func (c *Client) freeNumber(slot Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := slot.Number()
	if generation, ok := c.kept[number]; ok && generation == slot.Generation() && number > int(Root) {
		delete(c.kept, number)
		c.free = append(c.free, number)
	}
}

// Sync implements Keeper. The first Sync after a refused Keep returns its error.
func (c *Client) Sync() error {
	if _, err := c.call(record{kind: wantSync}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.keepErr
	c.keepErr = nil
	return err
}

// Path implements Keeper. For a slot that is not in use it returns a path that
// does not exist.
func (c *Client) Path(slot Slot) string {
	if c.checkSlot(slot) != nil {
		return c.fds + "none"
	}
	return c.fds + strconv.Itoa(slot.Number())
}

// Take implements Keeper.
func (c *Client) Take(slot Slot) (int, error) {
	if slot < Root || slot.Number() < int(Root) {
		return -1, fmt.Errorf("take slot %v: %w", slot, ErrEmpty)
	}
	a, err := c.call(slotRecord(wantTake, slot))
	switch {
	case err != nil:
		return -1, err
	case a.value != 0:
		return -1, fmt.Errorf("take slot %v: %w", slot, slotError(unix.Errno(a.value)))
	case a.fd < 0: // this process had no free descriptor for it
		return -1, fmt.Errorf("take slot %v: raise the limit of open files (nofile): %w", slot, unix.EMFILE)
	}
	return a.fd, nil
}

// Track makes the holder report the exit of one of its children to Watch, even
// if it has ended already, and to every later daemon until Forget.
func (c *Client) Track(pid int) error { return c.send(record{kind: wantTrack, num: int32(pid)}, -1) }

// Forget tells the holder that the exit of a process has been recorded or is
// not needed. It does nothing for a process that is still running.
func (c *Client) Forget(pid int) { _ = c.send(record{kind: wantForget, num: int32(pid)}, -1) }

// Group makes a child of the holder the leader of a new process group, which
// only its parent may do.
func (c *Client) Group(pid int) error {
	a, err := c.call(record{kind: wantGroup, num: int32(pid)})
	if err == nil && a.value != 0 {
		err = unix.Errno(a.value)
	}
	return err
}

// Orphans returns how many processes have ended without being tracked.
func (c *Client) Orphans() (int64, error) {
	a, err := c.call(record{kind: wantCount})
	return a.extra, err
}

// AnnounceExit tells the holder that this process is about to exit on purpose,
// and what to do then. With Stop the holder exits too, with the given code.
func (c *Client) AnnounceExit(code int, how ExitMode) error {
	return c.send(record{kind: wantExitMode, value: int32(code), flags: uint8(how)}, -1)
}

// Close ends the connection, as the death of this process would.
func (c *Client) Close() error {
	_ = unix.Shutdown(c.conn, unix.SHUT_RDWR)
	<-c.done
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.conn < 0 {
		return nil
	}
	err := unix.Close(c.conn)
	c.conn = -1
	return err
}
