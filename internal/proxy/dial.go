package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// maxAttempts is how many addresses of a name are tried; more do not help.
const maxAttempts = 8

// deny reports a refused request.
func (p *Proxy) deny(r request, why *refusal) {
	p.denials.add(Denial{Host: r.host, Port: int(r.port), Reason: why.reason, Detail: why.detail, Protocol: r.protocol})
}

// check returns the destination of a request if the list has it.
func (p *Proxy) check(h host, port uint16) (target, *refusal) {
	t, ok := p.cfg.Allow.find(h, port)
	if ok {
		return t, nil
	}
	if ports := p.cfg.Allow.ports(h); len(ports) > 0 {
		return t, refuse(ReasonPort, fmt.Sprintf("the list has this host with other ports only: %v", ports))
	}
	if h.addr.IsValid() {
		return t, refuse(ReasonNotListed, "the list does not have this address; an allowed host is reached by its name")
	}
	return t, refuse(ReasonNotListed, "the list does not have this host")
}

// dial connects to an allowed destination. The addresses that it checks are those
// that it dials: nothing is looked up twice. The error is a *refusal, or says why
// there is no connection.
func (p *Proxy) dial(ctx context.Context, t target) (net.Conn, error) {
	addrs := []netip.Addr{t.addr}
	if !t.addr.IsValid() {
		var err error
		if addrs, err = p.lookUp(ctx, t.host.name); err != nil {
			return nil, err
		}
	}
	addrs = addrs[:min(len(addrs), maxAttempts)]
	deadline := time.Now().Add(p.cfg.Limits.Dial)
	var failed error
	for i, addr := range addrs {
		// One address that does not answer leaves time for the others.
		each, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)-i))
		conn, err := p.cfg.Dial(each, netip.AddrPortFrom(addr, t.port))
		cancel()
		if err == nil {
			return conn, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("no connection to %s: %w", t.host, cause(failed))
}

// lookUp returns the addresses of a name if every one of them is public: a name with
// a public and a private address is an attempt to reach the private one.
func (p *Proxy) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limits.Lookup)
	defer cancel()
	// The dot keeps the resolver from trying the search domains of this machine.
	addrs, err := p.cfg.Resolver.LookupNetIP(ctx, "ip", name+".")
	if err != nil || len(addrs) == 0 {
		return nil, fmt.Errorf("the name %s can't be resolved", name)
	}
	own, err := p.cfg.own()
	if err != nil {
		return nil, errors.New("the addresses of this machine can't be listed, so none can be checked")
	}
	for i, addr := range addrs {
		addr = addr.Unmap()
		addrs[i] = addr
		kind := kindOf(addr)
		if kind == "" && isOwn(own, addr) {
			kind = kindOwn
		}
		if kind != "" {
			return nil, refuse(ReasonAddress, "the name resolves to an address that is not public ("+kind+"); the list can name the address itself, as NAME=ADDRESS:PORT")
		}
	}
	return addrs, nil
}

func isOwn(own []net.Addr, addr netip.Addr) bool {
	for _, o := range own {
		if prefix, err := netip.ParsePrefix(o.String()); err == nil && prefix.Addr().Unmap() == addr {
			return true
		}
	}
	return false
}

// cause returns the system's part of a network error, which has no addresses in it.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
