package route

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/service"
)

// listTimeout is how long a list waits for each place: a person waits for it.
const listTimeout = 5 * time.Second

// list joins the lists of this machine and of all places, the oldest entry first.
func (r *Router) list(ctx context.Context, m *service.Method, params json.RawMessage) (any, error) {
	places, runtime, ok := r.listed(ctx, params)
	if !ok || len(places) == 0 {
		return r.local.Call(ctx, m.Name, params)
	}
	return r.local.Forward(ctx, m.Name, func(ctx context.Context) (any, error) {
		all := joined{field: m.Routing.Field}
		// Also if only a place is meant: the daemon says what is wrong with
		// parameters.
		result, err := r.local.Serve(ctx, m.Name, params)
		switch {
		case err == nil:
			if err := all.addValue(result); err != nil {
				return nil, err
			}
		case !api.IsCode(err, api.CodeRuntimeUnavailable): // no sessions run on this machine
			return nil, err
		}
		inner := params
		if runtime != "" {
			if inner, err = set(params, "runtime", quote(runtime)); err != nil {
				return nil, err
			}
		}
		var asked sync.WaitGroup
		for _, p := range places {
			asked.Go(func() { r.listPlace(ctx, m, p, inner, &all) })
		}
		asked.Wait()
		return all.result(), nil
	})
}

// listed returns the places to ask, and the runtime to ask them for, "" for any.
// ok is false if the parameters are not valid.
func (r *Router) listed(ctx context.Context, params json.RawMessage) (places []Place, runtime string, ok bool) {
	if len(params) > 0 {
		raw, err := member(params, "runtime")
		if err != nil {
			return nil, "", false
		}
		if raw != nil {
			if runtime, ok = stringOf(raw); !ok {
				return nil, "", false
			}
		}
	}
	places = r.places.All()
	if actor, _ := access.From(ctx); actor.Tag != "" {
		// A place that can't tell what the caller may see shows it nothing.
		places = slices.DeleteFunc(slices.Clone(places), func(p Place) bool { return !p.Delegates() })
	}
	switch runtime {
	case "":
		return places, "", true
	case api.RuntimeHost:
		return nil, "", true
	}
	p, inner := longest(places, runtime)
	if p == nil {
		return nil, "", true
	}
	same := slices.DeleteFunc(slices.Clone(places), func(q Place) bool { return q.Runtime() != p.Runtime() })
	return same, inner, true // several, if some were made for one session each
}

// longest returns the place that a runtime begins with, nil if there is none, and
// the runtime inside of it.
func longest(places []Place, runtime string) (found Place, inner string) {
	for _, p := range places {
		if found != nil && len(p.Runtime()) <= len(found.Runtime()) {
			continue
		}
		if runtime == p.Runtime() {
			found, inner = p, api.RuntimeHost
		} else if rest, ok := strings.CutPrefix(runtime, p.Runtime()+"/"); ok {
			found, inner = p, rest
		}
	}
	return found, inner
}

// listPlace adds the list of one place.
func (r *Router) listPlace(ctx context.Context, m *service.Method, p Place, params json.RawMessage, all *joined) {
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	result, err := r.forward(bounded, m, p, params)
	if err == nil {
		err = all.add(result)
	}
	if err != nil {
		if bounded.Err() != nil && !api.IsCode(err, api.CodeRuntimeUnavailable) {
			err = unavailable(p, "silent", sentMaybe, fmt.Errorf("no answer within %s", listTimeout))
		}
		all.miss(p, api.AsError(err))
	}
}

// joined is a list from several places. It is safe for concurrent use.
type joined struct {
	field string // of the list in a result

	mu      sync.Mutex
	entries []entry
	missing [][]byte // entries of unreachable
}

// entry is one of a list.
type entry struct {
	created time.Time // zero: it does not say
	raw     json.RawMessage
}

// addValue adds the result of this machine.
func (j *joined) addValue(result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return j.add(raw)
}

// add adds the result of a place.
func (j *joined) add(result json.RawMessage) error {
	var list, missing [][]byte
	err := members(result, func(key, value []byte, _, _ int) {
		switch string(key) {
		case j.field:
			list = elements(value)
		case "unreachable":
			missing = elements(value)
		}
	})
	if err != nil {
		return err
	}
	entries := make([]entry, len(list))
	for i, raw := range list {
		entries[i].raw = raw
		if text, err := member(raw, "created_at"); err == nil && len(text) > 0 {
			_ = entries[i].created.UnmarshalJSON(text) // zero if it is no time
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entries...)
	j.missing = append(j.missing, missing...)
	return nil
}

// elements returns the elements of an array; none for another value.
func elements(raw json.RawMessage) (out [][]byte) {
	var found []json.RawMessage
	_ = json.Unmarshal(raw, &found)
	for _, e := range found {
		out = append(out, e)
	}
	return out
}

// miss records that a place gave no list.
func (j *joined) miss(p Place, err *api.Error) {
	u := api.Unreachable{Runtime: p.Runtime(), Name: p.Name(), Reason: "unknown", Message: err.Message}
	if reason, ok := err.Details["reason"].(string); ok {
		u.Reason = reason
	}
	raw, _ := json.Marshal(u)
	if since := err.Details["since"]; since != nil {
		if text, err := json.Marshal(since); err == nil {
			if with, err := set(raw, "since", text); err == nil {
				raw = with
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.missing = append(j.missing, raw)
}

// result returns the joined list.
func (j *joined) result() json.RawMessage {
	slices.SortStableFunc(j.entries, func(a, b entry) int { return a.created.Compare(b.created) })
	out := append(append([]byte(`{"`), j.field...), `":[`...)
	for i, e := range j.entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.raw...)
	}
	out = append(out, ']')
	if len(j.missing) > 0 {
		slices.SortFunc(j.missing, bytes.Compare)
		out = append(out, `,"unreachable":[`...)
		out = append(append(out, bytes.Join(j.missing, []byte(","))...), ']')
	}
	return append(out, '}')
}
