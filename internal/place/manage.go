package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// List answers place.list: the noted places and those of the configuration.
func (r *Registry) List(context.Context) *api.PlaceListResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := &api.PlaceListResult{Places: []api.Place{}}
	there := map[string]bool{}
	for _, p := range r.sorted(func(p *Place) bool { return p.cell == nil && !p.single && (p.noted || p.configured) }) {
		there[p.runtime] = true
		result.Places = append(result.Places, p.describe())
	}
	for name, c := range r.cfg.Configured {
		if runtime := c.runtime(name); !there[runtime] && allowed(r.cfg.Allowed, runtime) {
			result.Places = append(result.Places, api.Place{Runtime: runtime, State: api.PlaceIdle, Configured: true})
		}
	}
	slices.SortFunc(result.Places, func(p, q api.Place) int { return strings.Compare(p.Runtime, q.Runtime) })
	return result
}

// Isolation returns the profile of sessions in a place whose creator names none: that
// of its table [place.NAME]; "" for none.
func (r *Registry) Isolation(runtime string) api.Profile {
	for name, c := range r.cfg.Configured {
		if c.runtime(name) == runtime {
			return api.Profile(c.Isolation)
		}
	}
	return ""
}

// runtime returns the runtime of a table [place.NAME].
func (c Configured) runtime(name string) string {
	if c.URL != "" {
		return "trl:" + c.URL
	}
	return "cmd:" + name
}

// Add answers place.add: it makes the place, and connects to it.
func (r *Registry) Add(ctx context.Context, params api.PlaceParams) (*api.Place, error) {
	p, err := r.named(params.Runtime)
	if err != nil {
		return nil, err
	}
	p.want()
	if _, err := p.await(ctx, &p.calls, true); err != nil {
		return nil, err
	}
	return r.show(p), nil
}

// want lets the next attempt make the place, if it is one that is made.
func (p *Place) want() {
	if m, ok := p.transport.(maker); ok {
		m.want()
	}
}

// Check answers place.check: it connects now, whatever the backoff. A place that
// can't be reached is a result.
func (r *Registry) Check(ctx context.Context, params api.PlaceParams) (*api.Place, error) {
	p, err := r.named(params.Runtime)
	if err != nil {
		return nil, err
	}
	conn, err := p.await(ctx, &p.calls, true)
	if err == nil && !p.answers(ctx, conn) {
		conn.Fail(errors.New("it did not answer a ping"))
		_, err = p.await(ctx, &p.calls, true)
	}
	if err != nil && !api.IsCode(err, api.CodeRuntimeUnavailable) {
		return nil, err
	}
	return r.show(p), nil
}

// pingTimeout is how long a place may take to answer: a slow line, and a busy
// machine at its end.
const pingTimeout = 10 * time.Second

// answers reports whether the place answers over conn.
func (p *Place) answers(ctx context.Context, conn *peer.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := conn.Call(ctx, peer.Request{Method: api.MethodSystemPing, Actor: p.actor()}, nil)
	return err == nil
}

// actor returns who makes the registry's own requests.
func (p *Place) actor() json.RawMessage {
	if !p.Delegates() {
		return nil
	}
	return json.RawMessage(`{"scope":"admin"}`)
}

// Remove answers place.remove.
func (r *Registry) Remove(ctx context.Context, params api.PlaceRemoveParams) (*api.PlaceRemoveResult, error) {
	p := r.noted(params.Runtime)
	if p == nil {
		return nil, notFound(params.Runtime, "no such place").WithHint("`trl place list` and place.list show the places")
	}
	if params.Forget {
		r.drop(p)
	} else if err := r.remove(ctx, p, params.Force); err != nil {
		return nil, err
	}
	r.cfg.Log.Info("removed a place", "event", "place_removed", "runtime", p.runtime, "name", p.Name(), "forgotten", params.Forget)
	return &api.PlaceRemoveResult{Name: p.Name(), Runtime: p.runtime}, nil
}

// remove ends a place and forgets it. Without force it refuses if there are live
// sessions.
func (r *Registry) remove(ctx context.Context, p *Place, force bool) error {
	if !p.adopts { // else its daemon is not ours to end
		if err := p.end(ctx, force); err != nil {
			return err
		}
	}
	r.drop(p)
	return nil
}

// drop forgets a place.
func (r *Registry) drop(p *Place) {
	r.mu.Lock()
	p.forget()
	p.shut()
	r.mu.Unlock()
	p.release()
	r.save()
}

// EndAll ends the daemons of all places that this registry named, with their
// sessions. It logs what it could not end before ctx was done.
func (r *Registry) EndAll(ctx context.Context) {
	var group sync.WaitGroup
	for _, p := range r.All() {
		group.Go(func() {
			if err := r.remove(ctx, p, true); err != nil {
				r.cfg.Log.Error("cannot end a place", "event", "place_not_ended", "runtime", p.runtime, "name", p.Name(), "error", err)
			}
		})
	}
	group.Wait()
}

// end ends the place's daemon and removes what was delivered. Without force it
// refuses if there are live sessions.
func (p *Place) end(ctx context.Context, force bool) error {
	if !force {
		live, err := p.liveSessions(ctx)
		if err != nil && !api.IsCode(err, api.CodeRuntimeNotFound) {
			return err
		}
		if live > 0 {
			return api.Errorf(api.CodeSessionBusy, "the place has live sessions: %d", live).
				WithHint("destroy them, or end them with the place: `trl place remove --force`, place.remove with force").With("runtime", p.runtime).With("sessions", live)
		}
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return p.unavailable(&refusal{reason: silent, message: "another attempt was under way when the call's time was over"})
	}
	p.retire(true)
	if err := asRefusal(p.transport.remove(ctx)); err != nil {
		p.retire(false)
		failed := p.unavailable(err)
		if failed.Hint = "make it reachable, or leave what is there: `trl place remove --forget`, place.remove with forget"; ctx.Err() != nil {
			failed.Cause = ctx.Err()
		}
		return failed
	}
	return nil
}

// retire closes the connections of the place, and refuses new ones until it is called
// with false: a caller must not start the daemon again while it is removed.
func (p *Place) retire(removed bool) {
	p.reg.mu.Lock()
	defer p.reg.mu.Unlock()
	p.removed = removed
	p.shut()
}

// liveSessions asks the place how many live sessions it has.
func (p *Place) liveSessions(ctx context.Context) (int, error) {
	conn, err := p.await(ctx, &p.calls, true)
	if err != nil {
		return 0, err
	}
	line, err := conn.Call(ctx, peer.Request{Method: api.MethodSessionList, Actor: p.actor(), MaxAnswer: peer.LongAnswer}, nil)
	var list api.SessionListResult
	if err == nil {
		err = peer.Decode(api.MethodSessionList, line, &list)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.runtime, err)
	}
	live := 0
	for _, s := range list.Sessions {
		if s.State != api.StateTerminated {
			live++
		}
	}
	return live, nil
}

// Upgrade answers place.upgrade: it replaces the program in the place by this one.
func (r *Registry) Upgrade(ctx context.Context, params api.PlaceParams) (*api.Place, error) {
	p := r.noted(params.Runtime)
	if p == nil {
		return nil, notFound(params.Runtime, "no such place").WithHint("`trl place list` and place.list show the places")
	}
	u, ok := p.transport.(upgrader)
	if !ok {
		return nil, api.Errorf(api.CodeInvalidParams, "the program of this place was not delivered by TRL").
			WithHint("install the new program there, and run there: trl upgrade").With("runtime", p.runtime)
	}
	if _, err := p.await(ctx, &p.calls, true); err != nil {
		return nil, err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, p.unavailable(&refusal{reason: silent, message: "another attempt was under way when the call's time was over"})
	}
	err := asRefusal(u.upgrade(ctx))
	<-p.turn
	if err != nil {
		return nil, p.unavailable(err)
	}
	r.mu.Lock()
	p.shut()
	r.mu.Unlock()
	if _, err := p.await(ctx, &p.calls, true); err != nil {
		return nil, err
	}
	return r.show(p), nil
}

// named returns the place that a runtime or a name stands for, and makes that of a
// new runtime.
func (r *Registry) named(word string) (*Place, error) {
	if p := r.noted(word); p != nil {
		return p, nil
	}
	at, err := r.resolve(word)
	if err != nil {
		return nil, err
	}
	if at.rest != "" {
		return nil, api.Errorf(api.CodeInvalidParams, "a chain is not a place of this daemon").
			WithHint("use its first part: %s", at.first).With("runtime", word)
	}
	return r.get(at)
}

// noted returns the noted place with this runtime or name, or nil.
func (r *Registry) noted(word string) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.places {
		if p.noted && p.cell == nil && (p.runtime == word && !p.single || p.name == word) {
			return p
		}
	}
	return nil
}

func (r *Registry) show(p *Place) *api.Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := p.describe()
	return &d
}
