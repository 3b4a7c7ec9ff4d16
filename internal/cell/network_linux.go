package cell

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/proxy"
)

// proxyPort is where a session with an allow-list finds its proxy, on its own
// loopback interface. People know the number from other proxies.
const proxyPort = 3128

// planNetwork sets what a session can connect to.
func (p *plan) planNetwork(wanted *api.Network) error {
	if wanted == nil {
		return nil
	}
	if wanted.Mode != "" {
		p.spec.Network = confine.Network(wanted.Mode)
		return nil
	}
	if _, err := proxy.Parse(wanted.Allow); err != nil {
		e := api.Errorf(api.CodeInvalidParams, "isolation: %w", err).With("field", "isolation.network.allow")
		if entry, ok := errors.AsType[*proxy.EntryError](err); ok {
			e = e.WithHint("%s", entry.Hint)
		}
		return e
	}
	p.allow, p.spec.Network, p.spec.ProxyPort = wanted.Allow, confine.NetworkProxy, proxyPort
	p.addEnv(proxy.Environ(fmt.Sprintf("127.0.0.1:%d", proxyPort)))
	return nil
}

// serveNetwork lets the session connect to what its allow-list has, through a
// listener in its network namespace, until the cell ends.
func (c *cell) serveNetwork(listener *os.File, allow []string) error {
	list, err := proxy.Parse(allow)
	if err != nil {
		return err
	}
	l, err := net.FileListener(listener)
	if err != nil {
		return err
	}
	p := proxy.New(proxy.Config{Allow: list, Denied: c.denied, Every: c.logDenial, Log: c.cells.cfg.Log})
	c.cells.running.Go(func() {
		defer p.Close()
		if err := p.Serve(c.ctx, l); err != nil && c.ctx.Err() == nil {
			c.cells.cfg.Log.Error("a confined session has lost its network", "event", "proxy_failed", "cell", c.name, "error", err)
		}
	})
	return nil
}

// adoptNetwork goes on to serve the network of a cell that an earlier daemon made.
// Connections through that daemon have ended with it.
func (c *Cells) adoptNetwork(cell *cell) error {
	if cell.record.proxy == 0 {
		return nil
	}
	fd, err := c.cfg.Keeper.Take(cell.record.proxy)
	if err != nil {
		return err
	}
	listener := os.NewFile(uintptr(fd), "proxy")
	defer listener.Close() // serveNetwork has its own copy
	if cell.record.denials != 0 {
		fd, err := c.cfg.Keeper.Take(cell.record.denials)
		if err != nil {
			return err
		}
		cell.denials = adoptDenialLog(fd)
	}
	force := cell.record.session.Last.Isolation
	if force == nil || force.Network == nil {
		return errors.New("its record has no allow-list")
	}
	return cell.serveNetwork(listener, force.Network.Allow)
}

// logDenial tells the TRL in the cell what the session was not allowed to connect to:
// it knows which command ran.
func (c *cell) logDenial(d proxy.Denial) {
	if c.denials == nil { // of a daemon that had no log
		return
	}
	if err := c.denials.add(api.NetworkDenial{Host: d.Host, Port: d.Port, Message: d.Detail}); err != nil && c.ctx.Err() == nil {
		c.cells.cfg.Log.Error("cannot tell a confined session what its network refused", "event", "proxy_failed", "cell", c.name, "error", err)
	}
}

// denied reports what the session was not allowed to connect to.
func (c *cell) denied(d proxy.Denial) {
	listed := c.list()
	if listed == nil {
		return
	}
	listed.Event(api.SessionEvent{
		Type: api.EventNetworkDenied, SessionID: c.id(), At: api.Time{Time: time.Now()}, Reason: string(d.Reason),
		Denied: &api.NetworkDenial{Host: d.Host, Port: d.Port, Message: d.Detail, Suppressed: d.Suppressed},
	})
}
