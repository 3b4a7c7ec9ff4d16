package place

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// Cell is a confined TRL on this machine, with one session. The registry routes to it
// as to any place, but neither lists nor notes it: internal/cell does. Its methods
// are safe for concurrent use.
type Cell interface {
	// Dial connects to its TRL.
	Dial(ctx context.Context) (net.Conn, error)
	// Touch is called before and after everything that may change its session.
	Touch()
	// SessionDestroyed ends the cell, after its TRL has answered that its session is
	// destroyed. It returns when no process of the cell is left.
	SessionDestroyed()
}

// cellLetters is how many characters the name of a cell has: more than that of
// other places, because every confined session takes a name, and keeps it until it
// is forgotten.
const cellLetters = 6

// CellName returns a name for a new cell that no place has, and the node name of its
// TRL. The name is reserved only by AddCell.
func (r *Registry) CellName() (name, node string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Node != "" && strings.Count(r.cfg.Node, "-")+1 >= maxNodeParts {
		return "", "", api.Errorf(api.CodeRuntimeUnavailable, "the node name of this daemon has too many parts for a cell below it").
			WithHint("start the daemon with a shorter --node")
	}
	name = r.drawName(cellLetters)
	return name, r.nodeOf(name), nil
}

// nodeOf returns the node name of the daemon of a place.
func (r *Registry) nodeOf(name string) string {
	if r.cfg.Node == "" {
		return name
	}
	return r.cfg.Node + "-" + name
}

// AddCell makes a cell a place. It does not connect.
func (r *Registry) AddCell(name string, c Cell) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &Place{
		reg: r, runtime: api.RuntimeHost, kind: kind{name: "cell"}, node: r.nodeOf(name), transport: cellTransport{c, r.nodeOf(name)}, cell: c,
		turn: make(chan struct{}, 1), name: name, noted: true, state: api.PlaceIdle,
	}
	r.places = append(r.places, p)
	return p
}

// RemoveCell removes a cell from the places, and drops the connections to it.
func (r *Registry) RemoveCell(p *Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.removed, p.noted = true, false
	r.places = slices.DeleteFunc(r.places, func(q *Place) bool { return q == p })
	p.shut()
}

// Node returns the node name of the place's daemon, which the ids of its sessions
// begin with; "" if it has its own name.
func (p *Place) Node() string { return p.node }

// Touch tells a cell that something may change its session. It does nothing for
// other places.
func (p *Place) Touch() {
	if p.cell != nil {
		p.cell.Touch()
	}
}

// SessionDestroyed ends a cell, or another place that was made for one session. It
// does nothing for other places.
func (p *Place) SessionDestroyed() {
	switch {
	case p.cell != nil:
		p.cell.SessionDestroyed()
	case p.single:
		p.finish(true)
	}
}

// Request makes a call of the registry itself over the connection for calls, and
// decodes the answer into result.
func (p *Place) Request(ctx context.Context, method string, params any, actor api.Actor, result any) error {
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	told, err := json.Marshal(actor)
	if err != nil {
		return err
	}
	line, err := conn.Call(ctx, peer.Request{Method: method, Params: params, Actor: told}, nil)
	if err != nil {
		return err
	}
	return peer.Decode(method, line, result)
}

// cellTransport reaches a cell over its socket.
type cellTransport struct {
	cell Cell
	node string
}

// cellGreeting is how long the TRL of a cell may take to answer its first request:
// it was just started, on a busy machine.
const cellGreeting = 20 * time.Second

func (t cellTransport) connect(ctx context.Context) (peer.Wire, *api.Hello, error) {
	nc, err := t.cell.Dial(ctx)
	if err != nil {
		return nil, nil, &refusal{reason: unreachable, message: err.Error(), hint: "create the session again"}
	}
	wire := peer.NewLimitedWire(nc, maxMessage) // what runs in the cell may have broken its TRL
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	hello, err := t.greet(nc, wire)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = wire.Close() // it is not used
		return nil, nil, &refusal{reason: silent, message: err.Error(), hint: "create the session again"}
	}
	return wire, hello, nil
}

// greet asks the TRL which version it is: an older one goes on with its session
// after this daemon was upgraded. It asks for no more, because that takes longer
// than the session's first command.
func (t cellTransport) greet(nc net.Conn, wire peer.Wire) (*api.Hello, error) {
	if err := nc.SetDeadline(time.Now().Add(cellGreeting)); err != nil {
		return nil, err
	}
	question, err := peer.Encode(1, peer.Request{Method: api.MethodSystemPing})
	if err != nil {
		return nil, err
	}
	if err := wire.Send(question); err != nil {
		return nil, err
	}
	line, err := wire.Receive()
	if err != nil {
		return nil, fmt.Errorf("the TRL of a cell: %w", err)
	}
	var pong api.PingResult
	if err := peer.Decode(api.MethodSystemPing, line, &pong); err != nil {
		return nil, err
	}
	return &api.Hello{Version: pong.Version, Protocol: pong.Protocol, Node: t.node}, nc.SetDeadline(time.Time{})
}

// remove does nothing: internal/cell ends cells.
func (t cellTransport) remove(context.Context) error { return nil }

func (t cellTransport) close() {}
