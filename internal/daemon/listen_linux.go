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

// What listens is kept, so that who connects while there is no daemon waits for
// the next one and is not refused. The ledger has the slots under these keys.
const (
	listenKey = "listen" // of the socket and of its lock, and the path
	webKey    = "web"    // of the listener of HTTP, and the address it was asked for
)

// listen begins to listen on the socket, or goes on with that of a daemon that
// was here before.
func (d *daemon) listen() (err error) {
	if d.ledger == nil {
		d.listener, err = transport.ListenUnix(d.cfg.Socket)
		return err
	}
	value, again := d.ledger.Get(listenKey)
	switch {
	case again:
		if d.passed.api >= 0 {
			_ = unix.Close(d.passed.api) // another copy is kept
		}
		err = d.resumeListening(value)
	case d.passed.api >= 0:
		err = d.inherit(d.passed.api)
	default:
		d.listener, err = transport.ListenUnix(d.cfg.Socket)
	}
	if err != nil {
		return err
	}
	if d.listenSlots[0] != 0 {
		return nil
	}
	n := 0
	if err := d.listener.KeepFDs(func(fd int) (err error) {
		if d.listenSlots[n] == 0 { // a lock that was adopted is kept
			d.listenSlots[n], err = d.holder.Keep(fd)
		}
		n++
		return err
	}); err != nil {
		return err
	}
	return d.persistListening()
}

// listenAgain goes on with what is noted of an earlier daemon.
func (d *daemon) resumeListening(value []byte) error {
	var r listenState
	if err := state.Decode(value, r.fields); err != nil {
		return fmt.Errorf("read where the daemon before listened: %w", err)
	}
	d.listenSlots = [2]holder.Slot{r.socket, r.lock}
	path := r.path
	if d.listenSlots[1] == 0 { // it was passed, and has no lock
		socket, err := d.holder.Take(d.listenSlots[0])
		if err != nil {
			return err
		}
		return d.inherit(socket)
	}
	if path != d.cfg.Socket {
		// The sessions are known by it: clients would not find them elsewhere.
		d.log.Warn("the socket stays where it is until its sessions are ended", "socket", path, "configured", d.cfg.Socket)
		d.cfg.Socket = path
	}
	return d.adoptSocket()
}

// inherit serves on a socket that the service manager has made.
func (d *daemon) inherit(socket int) (err error) {
	if d.listener, err = transport.InheritUnix(socket); err == nil {
		d.cfg.Socket = d.listener.Addr().String() // as system.info shows it
	}
	return err
}

// adoptSocket goes on with the lock, and with the socket if there is one.
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

// stopListening gives up what is kept of the socket and of HTTP, so that who
// connects is refused. The lock stays.
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

// listenRecord is what the ledger has of the socket. A slot that is 0 is none.
type listenState struct {
	socket, lock holder.Slot
	path         string
}

func (r *listenState) fields(c *state.Coder) {
	state.Int(c, 1, &r.socket)
	state.Int(c, 2, &r.lock)
	state.Text(c, 3, &r.path)
}

// webNote is what the ledger has of the listener of HTTP.
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

// notedWeb returns what an earlier daemon has noted; nil: nothing.
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
		d.log.Error("cannot read where the daemon before served HTTP", "event", "unreadable", "record", webKey, "error", err)
		return nil
	}
	return n
}

// inheritWeb makes the address of HTTP that of a listener which the service
// manager has passed. All that is asked of one of our own is asked of it too.
func (d *daemon) inheritWeb() error {
	if noted := d.persistedWeb(); noted != nil && noted.passed {
		d.cfg.HTTP = noted.address
		if d.passed.web >= 0 {
			_ = unix.Close(d.passed.web) // another copy is kept
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

// listenerOf makes a listener of a descriptor, and owns it.
func listenerOf(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "http")
	defer file.Close() // net.FileListener works on a copy
	return net.FileListener(file)
}

// dropWeb gives up the kept listener of HTTP. Its port is free then.
func (d *daemon) dropWeb() error {
	noted := d.persistedWeb()
	if noted == nil {
		return nil
	}
	if err := d.ledger.Delete(webKey); err != nil {
		return err
	}
	d.holder.Drop(noted.slot)
	return d.holder.Sync()
}

// listenWeb begins to listen for HTTP, if that is asked for, or goes on with the
// listener of a daemon that was here before if it was asked for the same address:
// so port 0 stays the port that was found.
func (d *daemon) listenWeb() error {
	noted := d.persistedWeb()
	if noted != nil && (d.web.address == nil || noted.address != d.cfg.HTTP) {
		if err := d.dropWeb(); err != nil {
			return err
		}
		noted = nil
	}
	if d.web.address == nil {
		return nil
	}
	var err error
	if noted != nil {
		d.web.listener, err = d.adoptWeb(noted.slot)
	} else {
		d.web.listener, err = d.openWeb()
	}
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	if d.web.address.Port == 0 {
		d.cfg.HTTP = d.web.listener.Addr().String() // as system.info shows it
	}
	return nil
}

func (d *daemon) adoptWeb(slot holder.Slot) (net.Listener, error) {
	fd, err := d.holder.Take(slot)
	if err != nil {
		return nil, err
	}
	return listenerOf(fd)
}

// openWeb listens anew, or where the service manager does, and keeps that.
func (d *daemon) openWeb() (net.Listener, error) {
	l := d.inheritedWeb
	if l == nil {
		var err error
		if l, err = net.ListenTCP("tcp", d.web.address); err != nil {
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
