package daemon

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
)

// openLedger makes the ledger, or opens that of an earlier daemon. The error is
// ledger.ErrLost if no daemon can read the state that the holder keeps.
func (d *daemon) openLedger() (err error) {
	if !d.isRestart() || !slices.Contains(d.holder.Hello().Slots, holder.Root) {
		return d.newLedger()
	}
	d.ledger, err = ledger.Open(d.holder)
	if errors.Is(err, ledger.ErrLost) && len(d.holder.Hello().Tracked) == 0 {
		// No session has live processes, so only ended sessions are lost.
		d.log.Error("session state cannot be read; starting without it", "event", "ledger_lost", "error", err)
		if err := d.newLedger(); err != nil {
			return err
		}
		return d.checkListenState()
	}
	if err != nil {
		return err
	}
	for _, part := range d.ledger.Damage() {
		d.log.Error("part of the session state cannot be read", "event", "ledger_damaged", "part", part.String())
	}
	if err := d.convertLedger(); err != nil {
		return err
	}
	return d.checkListenState()
}

func (d *daemon) newLedger() (err error) {
	if d.ledger, err = ledger.New(d.holder); err != nil {
		return err
	}
	return d.ledger.Put(formatKey, formatRecord())
}

// checkListenState makes sure that the ledger says where the daemon listens, which
// is the first state that a daemon persists.
func (d *daemon) checkListenState() error {
	if _, listens := d.ledger.Get(listenKey); listens {
		return nil
	}
	for key := range d.ledger.All("") {
		if key != formatKey {
			return fmt.Errorf("ledger: %w: the listen address is missing", ledger.ErrLost)
		}
	}
	// The first daemon died before it persisted anything. The descriptors it kept,
	// such as the lock of the socket, would be in the way.
	for _, slot := range d.holder.Kept() {
		if slot != holder.Root {
			d.holder.Drop(slot)
		}
	}
	return d.holder.Sync()
}

// placesKey is the ledger key of the notes of places.
const placesKey = "places"

// loadPlaces returns what reads the copy of the notes of places; nil without a
// ledger.
func (d *daemon) loadPlaces() func() []byte {
	if d.ledger == nil {
		return nil
	}
	return func() []byte {
		text, _ := d.ledger.Get(placesKey)
		return text
	}
}

// savePlaces returns what writes that copy; nil without a ledger.
func (d *daemon) savePlaces() func([]byte) error {
	if d.ledger == nil {
		return nil
	}
	return func(text []byte) error {
		if text == nil {
			return d.ledger.Delete(placesKey)
		}
		return d.ledger.Put(placesKey, text)
	}
}

// abandon ends this daemon when no daemon can take over the sessions. The holder
// keeps their processes until it is stopped, and starts no daemon meanwhile; a
// client that connects is refused instead of waiting for a daemon.
func (d *daemon) abandon(err error) error {
	d.log.Error("session state is lost and no daemon can take over; run `trl stop` to kill the remaining processes", "event", "ledger_lost", "error", err, "holder", d.holder.Hello().PID)
	for _, slot := range d.holder.Kept() {
		if d.listensIn(slot) {
			d.holder.Drop(slot)
		}
	}
	return errors.Join(err, d.holder.Sync(), d.holder.AnnounceExit(1, holder.Detach))
}

// listensIn reports whether slot holds a listening socket.
func (d *daemon) listensIn(slot holder.Slot) bool {
	fd, err := d.holder.Take(slot)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && listens != 0
}
