package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/transport"
)

// The holder keeps the listening sockets, so that clients that connect while there
// is no daemon wait for the next one and are not refused. These are the ledger keys
// of their slots.
const (
	listenKey = "listen" // listenState
	webKey    = "web"    // webState
)

// listen begins to listen on the socket, or continues with that of an earlier
// daemon.
func (d *daemon) listen() (err error) {
	if d.ledger == nil {
		d.listener, err = listenUnix(d.cfg, d.opts)
		return err
	}
	value, found := d.ledger.Get(listenKey)
	switch {
	case found:
		if d.passed.api >= 0 {
			_ = unix.Close(d.passed.api) // the holder keeps another copy
		}
		err = d.resumeListening(value)
	case d.passed.api >= 0:
		err = d.inherit(d.passed.api)
	default:
		d.listener, err = listenUnix(d.cfg, d.opts)
	}
	if err != nil {
		return err
	}
	if d.listenSlots[0] != 0 {
		return nil
	}
	n := 0
	if err := d.listener.KeepFDs(func(fd int) (err error) {
		if d.listenSlots[n] == 0 { // the holder already keeps an adopted lock
			d.listenSlots[n], err = d.holder.Keep(fd)
		}
		n++
		return err
	}); err != nil {
		return err
	}
	return d.persistListening()
}

// resumeListening continues with the socket that an earlier daemon persisted.
func (d *daemon) resumeListening(value []byte) error {
	var r listenState
	if err := state.Decode(value, r.fields); err != nil {
		return fmt.Errorf("read the listen state of the previous daemon: %w", err)
	}
	d.listenSlots = [2]holder.Slot{r.socket, r.lock}
	path := r.path
	if d.listenSlots[1] == 0 { // the service manager passed it, so it has no lock
		socket, err := d.holder.Take(d.listenSlots[0])
		if err != nil {
			return err
		}
		return d.inherit(socket)
	}
	if path != d.cfg.Socket {
		// Clients would not find the sessions on another socket.
		d.log.Warn("keeping the socket of the existing sessions until they end", "socket", path, "configured", d.cfg.Socket)
		d.cfg.Socket = path
	}
	return d.adoptSocket()
}

// inherit serves on a socket that the service manager made.
func (d *daemon) inherit(socket int) (err error) {
	if d.listener, err = transport.InheritUnix(socket); err == nil {
		d.cfg.Socket = d.listener.Addr().String() // as system.info shows it
	}
	return err
}

// adoptSocket continues with the lock, and with the socket if there is one.
func (d *daemon) adoptSocket() error {
	lock, err := d.holder.Take(d.listenSlots[1])
	if err != nil {
		return err
	}
	socket := -1
	if d.listenSlots[0] != 0 {
		if socket, err = d.holder.Take(d.listenSlots[0]); err != nil {
			return err
		}
	}
	d.listener, err = transport.AdoptUnix(d.cfg.Socket, socket, lock)
	return err
}

func (d *daemon) persistListening() error {
	r := listenState{d.listenSlots[0], d.listenSlots[1], d.cfg.Socket}
	return d.ledger.Put(listenKey, state.Encode(r.fields))
}

// stopListening makes the holder drop the listening sockets, so that new clients
// are refused. The lock stays.
func (d *daemon) stopListening() error {
	if d.ledger == nil || d.listenSlots[0] == 0 {
		return nil
	}
	socket := d.listenSlots[0]
	d.listenSlots[0] = 0
	if err := errors.Join(d.persistListening(), d.dropWeb()); err != nil {
		return err
	}
	d.holder.Drop(socket)
	return d.holder.Sync()
}

// listenState is the persisted state of the socket. Slot 0 means none.
type listenState struct {
	socket, lock holder.Slot
	path         string
}

func (r *listenState) fields(c *state.Coder) {
	state.Int(c, 1, &r.socket)
	state.Int(c, 2, &r.lock)
	state.Text(c, 3, &r.path)
}

// webState is the persisted state of the HTTP listener.
type webState struct {
	slot    holder.Slot
	address string // as it was configured
	passed  bool   // by the service manager
}

func (n *webState) fields(c *state.Coder) {
	state.Int(c, 1, &n.slot)
	state.Text(c, 2, &n.address)
	state.Bool(c, 3, &n.passed)
}

// persistedWeb returns the HTTP listener that an earlier daemon persisted; nil if
// there is none.
func (d *daemon) persistedWeb() *webState {
	if d.ledger == nil {
		return nil
	}
	value, ok := d.ledger.Get(webKey)
	if !ok {
		return nil
	}
	n := &webState{}
	if err := state.Decode(value, n.fields); err != nil {
		d.log.Error("cannot read the HTTP state of the previous daemon", "event", "unreadable", "record", webKey, "error", err)
		return nil
	}
	return n
}

// inheritWeb sets the HTTP address to that of a listener that the service manager
// passed. It must meet the same requirements as one that the daemon opens itself.
func (d *daemon) inheritWeb() error {
	if saved := d.persistedWeb(); saved != nil && saved.passed {
		d.cfg.HTTP = saved.address
		if d.passed.web >= 0 {
			_ = unix.Close(d.passed.web) // the holder keeps another copy
			d.passed.web = -1
		}
		return nil
	}
	if d.passed.web < 0 {
		return nil
	}
	l, err := listenerOf(d.passed.web)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	d.cfg.HTTP, d.inheritedWeb = l.Addr().String(), l
	return nil
}

// listenerOf returns a listener on fd, which it takes ownership of.
func listenerOf(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "http")
	defer file.Close() // net.FileListener works on a copy
	return net.FileListener(file)
}

// dropWeb makes the holder drop the HTTP listener, which frees its port.
func (d *daemon) dropWeb() error {
	saved := d.persistedWeb()
	if saved == nil {
		return nil
	}
	if err := d.ledger.Delete(webKey); err != nil {
		return err
	}
	d.holder.Drop(saved.slot)
	return d.holder.Sync()
}

// listenWeb begins to listen for HTTP if that is configured. It continues with the
// listener of an earlier daemon if that was configured with the same address, so
// that port 0 stays the port that was found.
func (d *daemon) listenWeb() error {
	saved := d.persistedWeb()
	if saved != nil && (d.http == nil || saved.address != d.cfg.HTTP) {
		if err := d.dropWeb(); err != nil {
			return err
		}
		saved = nil
	}
	if d.http == nil {
		return nil
	}
	var l net.Listener
	var err error
	if saved != nil {
		l, err = d.adoptWeb(saved.slot)
	} else {
		l, err = d.openWeb()
	}
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	d.webListener = l
	d.cfg.HTTP = d.http.Use(l) // as system.info shows it
	return nil
}

func (d *daemon) adoptWeb(slot holder.Slot) (net.Listener, error) {
	fd, err := d.holder.Take(slot)
	if err != nil {
		return nil, err
	}
	return listenerOf(fd)
}

// openWeb opens the HTTP listener, or takes the one that the service manager
// passed, and makes the holder keep it.
func (d *daemon) openWeb() (net.Listener, error) {
	l := d.inheritedWeb
	if l == nil {
		var err error
		if l, err = d.http.Listen(); err != nil {
			return nil, err
		}
	}
	if d.ledger == nil {
		return l, nil
	}
	if err := d.keepWeb(l.(*net.TCPListener)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (d *daemon) keepWeb(l syscall.Conn) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var slot holder.Slot
	var failed error
	if err := raw.Control(func(fd uintptr) { slot, failed = d.holder.Keep(int(fd)) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	n := webState{slot, d.cfg.HTTP, d.inheritedWeb != nil}
	return d.ledger.Put(webKey, state.Encode(n.fields))
}
