package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
	"github.com/terminal-runtime/trl/internal/printable"
)

// Place is somewhere else that sessions run. It is safe for concurrent use.
type Place struct {
	reg        *Registry
	runtime    string
	kind       kind
	adopts     bool // its daemon has its own name, which becomes the place's
	configured bool // the configuration has a table for it
	single     bool // it was made for one session, and ends with it
	node       string
	transport  transport
	cell       Cell          // nil: it is not a cell
	turn       chan struct{} // held by whoever uses the transport

	// The registry's mu guards the fields below.
	name    string // "": not known yet
	noted   bool   // it was reached once, and the notes have it
	removed bool
	note    note // as in the notes

	calls    link
	streams  [maxStreams]link
	idle     *time.Timer // nil: no connection
	failures int         // attempts in a row
	failure  *refusal    // of the last attempt; nil: it succeeded
	retryAt  time.Time   // no attempt before
	down     time.Time   // since when it can't be reached; zero: it can

	state api.PlaceState
	since time.Time

	shells, limits, isolates []string // as it last said
}

// Name returns the name of the place, which is part of the ids of its sessions.
func (p *Place) Name() string {
	p.reg.mu.Lock()
	defer p.reg.mu.Unlock()
	return p.name
}

// Runtime returns the runtime of the place, without what follows in a chain.
func (p *Place) Runtime() string { return p.runtime }

// Delegates reports whether connections to the place act for others: every request
// must name its actor.
func (p *Place) Delegates() bool { return !p.kind.foreign }

// Connected reports whether there is a connection for calls.
func (p *Place) Connected() bool {
	p.reg.mu.Lock()
	defer p.reg.mu.Unlock()
	return p.calls.live()
}

// connect opens a connection: the transport's wire, the checks of its hello, and, if
// describe is set, what the place says about itself.
func (p *Place) connect(ctx context.Context, describe bool) (*peer.Conn, *api.Hello, *api.SystemInfo, error) {
	if err := p.reg.makeDir(); err != nil {
		return nil, nil, nil, fmt.Errorf("the directory of places: %w", err)
	}
	wire, hello, err := p.transport.connect(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if hello.Protocol != api.Protocol {
		_ = wire.Close() // it is not used
		return nil, nil, nil, &refusal{
			reason:  badVersion,
			message: fmt.Sprintf("the TRL there has version %s and speaks protocol %d, this one speaks %d", shown(hello.Version), hello.Protocol, api.Protocol),
			hint:    "install the same version there and here",
		}
	}
	conn := peer.NewConn(wire)
	info, err := p.prepare(ctx, conn, describe)
	if err == nil {
		err = p.admit(hello) // last: it is noted, so it can be used
	}
	if err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	return conn, hello, info, nil
}

// prepare asks a place about itself, if describe is set, and makes the connection
// act for others.
func (p *Place) prepare(ctx context.Context, conn *peer.Conn, describe bool) (info *api.SystemInfo, err error) {
	if describe {
		info = &api.SystemInfo{}
		err = request(ctx, conn, api.MethodSystemInfo, info)
		if _, answered := errors.AsType[*api.Error](err); answered {
			info, err = nil, nil // the token of a foreign TRL may not allow it
		}
	}
	if err == nil && p.Delegates() {
		err = request(ctx, conn, api.MethodSystemDelegate, nil)
		if api.IsCode(err, api.CodeMethodNotFound) {
			err = &refusal{reason: badVersion, message: "the TRL there is too old to be a place", hint: "install the same version there and here"}
		}
	}
	return info, err
}

// request makes a call before the connection acts for others.
func request(ctx context.Context, conn *peer.Conn, method string, result any) error {
	line, err := conn.Call(ctx, peer.Request{Method: method}, nil)
	if err != nil {
		return err
	}
	return peer.Decode(method, line, result)
}

// admit checks whether the daemon that says hello is the place's, and notes what it
// says.
func (p *Place) admit(hello *api.Hello) error {
	r := p.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.adopts {
		name, err := r.nameOf(hello.Node, p)
		if err != nil {
			return err
		}
		p.name = name
	} else if hello.Node != p.node {
		return &refusal{
			reason:  refused,
			message: fmt.Sprintf("the TRL there has the node name %s, want %s", printable.Word(hello.Node), p.node),
			hint:    "remove the place with `trl place remove`, and add it again",
		}
	}
	if p.note.Boot != "" && shown(hello.Boot) != p.note.Boot {
		r.cfg.Log.Warn("the sessions of a place are gone: its daemon and their holder were started anew", "event", "place_restarted",
			"runtime", p.runtime, "name", p.name)
	}
	if !p.noted {
		p.noted = true
		p.note.Created = r.now().UTC().Truncate(time.Second)
	}
	p.note.Name, p.note.Runtime, p.note.Node = p.name, p.runtime, hello.Node
	p.note.Digest, p.note.Version, p.note.OS, p.note.Arch = shown(hello.Digest), shown(hello.Version), shown(hello.OS), shown(hello.Arch)
	p.note.User, p.note.Boot = shown(hello.User), shown(hello.Boot)
	return nil
}

// maxShown limits in bytes what a place says about itself.
const maxShown = 200

// shown returns what a place says about itself in a form that is safe to show.
func shown(s string) string { return printable.Text(s[:min(len(s), maxShown)]) }

// nameOf returns the name of a place whose daemon has its own node name: the part
// behind this daemon's, or the first. Caller must hold mu.
func (r *Registry) nameOf(node string, p *Place) (string, error) {
	hint := "start the daemon there with --node and 2 to 8 characters a-z and 0-9, such as: trl serve --node build1"
	if node == "" {
		return "", &refusal{
			reason: refused, hint: hint,
			message: "the TRL there has no node name, so the ids of its sessions do not name the place",
		}
	}
	rest := node + "-"
	if r.cfg.Node != "" {
		rest = strings.TrimPrefix(rest, r.cfg.Node+"-")
	}
	name, _, _ := strings.Cut(rest, "-")
	switch {
	case !validName.MatchString(name):
		return "", &refusal{reason: refused, message: fmt.Sprintf("the node name %s of the TRL there can't be that of a place", printable.Word(node)), hint: hint}
	case name != p.name && r.taken(name):
		return "", &refusal{reason: refused, message: fmt.Sprintf("another place has the name %s already", name), hint: hint}
	}
	return name, nil
}

// asRefusal returns the error of an attempt as a *refusal; nil for nil.
func asRefusal(err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{reason: silent, message: fmt.Sprintf("it did not answer within %s", attemptTimeout)}
	case errors.Is(err, context.Canceled):
		return &refusal{reason: refused, message: "the daemon is shutting down"}
	default:
		return &refusal{reason: unknown, message: err.Error()}
	}
}

// unavailable returns the error for a caller whose attempt failed.
func (p *Place) unavailable(err error) *api.Error {
	p.reg.mu.Lock()
	defer p.reg.mu.Unlock()
	why, _ := errors.AsType[*refusal](err)
	return p.refuse(why)
}

// refuse returns the error for a caller. Nothing of the call was sent. Caller must
// hold mu.
func (p *Place) refuse(why *refusal) *api.Error {
	now := p.reg.now()
	retry := max(p.retryAt.Sub(now), minBackoff).Round(100 * time.Millisecond)
	since := p.down
	if since.IsZero() {
		since = now
	}
	e := api.Errorf(api.CodeRuntimeUnavailable, "cannot reach %s: %s", p.runtime, why.message).
		With("runtime", p.runtime).With("reason", string(why.reason)).With("since", api.Time{Time: since}).With("sent", "no")
	if !p.noted || !why.reason.passes() {
		return e.WithHint("%s", cmp.Or(why.hint, "check the name of the place, and whether it runs"))
	}
	return e.With("retry_after_ms", retry.Milliseconds()). // clients wait, and repeat the call
								WithHint("%s", cmp.Or(why.hint, fmt.Sprintf("wait %s and repeat the call", retry)))
}

// update derives the state of the place. Caller must hold mu.
func (p *Place) update() {
	state := api.PlaceIdle
	switch {
	case p.calls.live():
		state = api.PlaceConnected
	case p.calls.attempt != nil:
		state = api.PlaceConnecting
	case p.failure != nil:
		state = api.PlaceUnreachable
	}
	if state != p.state {
		p.state, p.since = state, p.reg.now()
		p.reg.change()
	}
}

// describe returns the place as place.list shows it. Caller must hold mu.
func (p *Place) describe() api.Place {
	d := api.Place{
		Name: p.name, Runtime: p.runtime, State: p.state, Configured: p.configured,
		OS: p.note.OS, Arch: p.note.Arch, User: p.note.User, Version: p.note.Version, Digest: p.note.Digest,
		Shells: p.shells, Limits: p.limits, Isolates: p.isolates,
	}
	if !p.since.IsZero() {
		d.Since = &api.Time{Time: p.since}
	}
	if p.state == api.PlaceUnreachable {
		d.Since = &api.Time{Time: p.down}
		d.Reason, d.Message, d.Hint = string(p.failure.reason), p.failure.message, p.failure.hint
		d.RetryMS = max(0, p.retryAt.Sub(p.reg.now()).Milliseconds())
	}
	return d
}
