package place

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trust"
)

// Config has the parameters of a registry.
type Config struct {
	Node       string                // of this daemon; "": none
	Configured map[string]Configured // tables [place.NAME], by name
	Allowed    []string              // patterns of runtimes; empty: all
	TTLMS      int64                 // after which a place's daemon ends without sessions and connections
	Dir        string                // private directory for sockets of transports; made when needed
	Env        []string              // of the commands that transports start; nil: ours
	Version    string                // of this program
	Log        *slog.Logger          // required

	// File has the notes; "" keeps them in memory only. Load and Save, if they are
	// set, keep a copy of them: Load returns nil if there is none, and Save(nil)
	// removes it.
	File string
	Load func() []byte
	Save func([]byte) error
}

// Configured is a table [place.NAME] of the configuration.
type Configured struct {
	Command   []string // of cmd:NAME
	Deliver   bool     // Command is a prefix: words that run in the place are appended to it
	URL       string   // of trl:NAME
	TokenFile string
	Isolation string // the profile of its sessions whose creator names none
}

// Registry has the places of a daemon. It is safe for concurrent use.
type Registry struct {
	cfg      Config
	delivery *delivery
	now      func() time.Time
	ctx      context.Context // of the attempts to connect
	cancel   context.CancelFunc
	running  sync.WaitGroup // attempts, and one for each connection

	saving sync.Mutex // held while notes are written; before mu
	frozen error      // why the notes must not be written; set by Open only

	mu      sync.Mutex // guards the fields below and those of the places; never held during I/O
	closed  bool
	places  []*Place      // in no order
	unknown []note        // of kinds that this program does not know
	read    notes         // as they were read: without places
	changed chan struct{} // closed at the next change
}

// Open returns the registry with the noted places. It connects to none of them. The
// caller must call Close.
func Open(cfg Config) *Registry {
	r := &Registry{cfg: cfg, delivery: newDelivery(), now: time.Now, changed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	n := r.load()
	for _, note := range n.places {
		at, err := parse(note.Runtime)
		if err != nil || at.rest != "" {
			r.unknown = append(r.unknown, note)
			r.cfg.Log.Warn("a noted place is of a kind that this program does not know", "event", "place_unknown", "runtime", note.Runtime, "name", note.Name)
			continue
		}
		p := r.newPlace(at, note)
		p.noted = true
		r.places = append(r.places, p)
	}
	n.places = nil
	r.read = *n
	return r
}

// Close closes all connections. The places and their sessions live on.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	places := r.places
	for _, p := range places {
		p.shut()
	}
	r.change()
	r.mu.Unlock()
	r.cancel()
	for _, p := range places {
		p.release()
	}
	r.running.Wait()
	if r.cfg.Dir != "" {
		_ = os.Remove(r.cfg.Dir) // unless a transport left something in it
	}
}

// forget removes the place from the registry. Caller must hold mu.
func (p *Place) forget() {
	p.removed, p.noted = true, false
	p.reg.places = slices.DeleteFunc(p.reg.places, func(q *Place) bool { return q == p })
	p.reg.change()
}

// shut drops the connections of a place. Caller must hold mu.
func (p *Place) shut() {
	if p.idle != nil && p.idle.Stop() {
		p.idle = nil
	}
	for l := range p.links() {
		p.drop(l)
	}
	p.update()
}

// newPlace returns a place that is not in the registry yet. Of a new one n has only
// the name.
func (r *Registry) newPlace(at parsed, n note) *Place {
	name := n.Name
	if n.ID == "" {
		n.ID = crand.Text()[:idLength]
	}
	p := &Place{
		reg: r, runtime: at.first, kind: at.kind, name: name, note: n, turn: make(chan struct{}, 1), state: api.PlaceIdle,
		adopts: at.kind.adopts && !r.cfg.Configured[at.address].Deliver, single: n.Limits != nil,
	}
	for name, c := range r.cfg.Configured {
		p.configured = p.configured || c.runtime(name) == p.runtime
	}
	if !p.adopts {
		p.node = r.nodeOf(name)
	}
	p.transport = at.kind.open(r, target{
		name: name, id: n.ID, node: p.node, runtime: at.first, address: at.address,
		ttlMS: r.cfg.TTLMS, dir: r.cfg.Dir, env: r.cfg.Env, limits: n.Limits,
	})
	return p
}

// Find returns the noted place with this name, or nil.
func (r *Registry) Find(name string) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.places {
		if p.noted && p.name == name {
			return p
		}
	}
	return nil
}

// All returns the noted places, connected or not, in the order of their runtimes.
// Cells are not among them.
func (r *Registry) All() []*Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sorted(func(p *Place) bool { return p.noted && p.cell == nil })
}

// sorted returns the places that include returns true for. Caller must hold mu.
func (r *Registry) sorted(include func(*Place) bool) []*Place {
	var places []*Place
	for _, p := range r.places {
		if include(p) {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(p, q *Place) int { return strings.Compare(p.runtime, q.runtime) })
	return places
}

// Changed returns a channel that is closed when a place is added or removed, or its
// state changes.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// change announces a change. Caller must hold mu.
func (r *Registry) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Get returns the place for a runtime, and makes it if it is new. rest is the runtime
// to ask for in the place; "" means its host. A new place whose daemon has its own
// name is connected first: nothing can be routed to a place without a name.
func (r *Registry) Get(ctx context.Context, runtime string) (p *Place, rest string, err error) {
	at, err := r.resolve(runtime)
	if err != nil {
		return nil, "", err
	}
	if p, err = r.get(at); err != nil {
		return nil, "", err
	}
	p.want()
	if p.Name() == "" {
		if _, err := p.Conn(ctx); err != nil {
			return nil, "", err
		}
	}
	return p, at.rest, nil
}

// resolve parses a runtime, and checks whether it may be used.
func (r *Registry) resolve(runtime string) (parsed, error) {
	at, err := parse(runtime)
	if err != nil {
		return parsed{}, err
	}
	if !allowed(r.cfg.Allowed, runtime) {
		return parsed{}, api.Errorf(api.CodeForbidden, "allowed_runtimes of this daemon does not include the runtime").
			WithHint("use a runtime that matches one of: %s", strings.Join(r.cfg.Allowed, ", ")).With("runtime", runtime)
	}
	if _, known := r.cfg.Configured[at.address]; at.kind.configured && !known {
		return parsed{}, notFound(runtime, "the configuration has no such place").
			WithHint("add a table [place.%s] to the configuration of the daemon", at.address)
	}
	return at, nil
}

// get returns the place that at names, and makes it if it is new.
func (r *Registry) get(at parsed) (*Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.places {
		if p.runtime == at.first && p.cell == nil && !p.single {
			return p, nil
		}
	}
	if err := r.accepts(at); err != nil {
		return nil, err
	}
	name := ""
	if !at.kind.adopts || r.cfg.Configured[at.address].Deliver {
		name = r.drawName(nameLength)
	}
	p := r.newPlace(at, note{Name: name})
	r.places = append(r.places, p)
	return p, nil
}

// accepts returns an error if no new place can be made now, and makes room for one.
// Caller must hold mu.
func (r *Registry) accepts(at parsed) error {
	switch {
	case r.closed:
		return api.Errorf(api.CodeShuttingDown, "the daemon is shutting down")
	case r.frozen != nil:
		return api.Errorf(api.CodeRuntimeUnavailable, "no new place is accepted: the notes of places can't be used: %w", r.frozen).
			WithHint("upgrade trl, or move the file away: %s", r.cfg.File).With("runtime", at.first).With("reason", string(refused)).With("sent", "no")
	case r.cfg.Node != "" && strings.Count(r.cfg.Node, "-")+1 >= maxNodeParts && !at.kind.adopts:
		return notFound(at.first, "the node name of this daemon has too many parts for a place below it").
			WithHint("start the daemon with a shorter --node")
	}
	r.forgetUnreached()
	return nil
}

// maxNodeParts is how many parts the node name of a daemon may have.
const maxNodeParts = 4

// makeDir makes the private directory of the transports.
func (r *Registry) makeDir() error {
	if r.cfg.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	return trust.Directory(r.cfg.Dir, os.Geteuid())
}

// maxUnreached is how many places that were never reached are remembered, with their
// backoff: typing errors of callers.
const maxUnreached = 100

// forgetUnreached makes room for a new place that may never be reached. Caller must
// hold mu.
func (r *Registry) forgetUnreached() {
	unreached := 0
	for i := len(r.places) - 1; i >= 0; i-- {
		p := r.places[i]
		if p.noted {
			continue
		}
		if unreached++; unreached >= maxUnreached && p.calls.attempt == nil {
			p.removed = true
			r.places = slices.Delete(r.places, i, i+1)
		}
	}
}

// idLength is the length of a place's id: 60 random bits, which no other user can guess.
const idLength = 12

// nameLetters leaves out what looks like another letter.
const (
	nameLetters = "abcdefghjkmnpqrstuvwxyz"
	nameDigits  = nameLetters + "23456789"
)

// nameLength is how many characters a drawn name has: it is part of every id.
const nameLength = 3

// drawName returns a name of so many characters that no place has. Caller must hold
// mu.
func (r *Registry) drawName(length int) string {
	for {
		name := []byte{nameLetters[rand.IntN(len(nameLetters))]}
		for len(name) < length {
			name = append(name, nameDigits[rand.IntN(len(nameDigits))])
		}
		if !r.taken(string(name)) {
			return string(name)
		}
	}
}

// taken reports whether a place has the name, or whether it is part of this daemon's
// own. Caller must hold mu.
func (r *Registry) taken(name string) bool {
	return slices.ContainsFunc(r.places, func(p *Place) bool { return p.name == name }) ||
		slices.ContainsFunc(r.unknown, func(n note) bool { return n.Name == name }) ||
		slices.Contains(strings.Split(r.cfg.Node, "-"), name)
}

// notesNow returns the notes as they are to be saved. Caller must hold mu.
func (r *Registry) notesNow() notes {
	r.read.serial++
	n := r.read
	for _, p := range r.places {
		if p.noted && p.cell == nil {
			n.places = append(n.places, p.note)
		}
	}
	n.places = append(n.places, r.unknown...)
	slices.SortFunc(n.places, func(p, q note) int { return cmp.Compare(p.Runtime, q.Runtime) })
	return n
}
