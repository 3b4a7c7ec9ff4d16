package cli

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// denials are the connections that the network of a session refused. A nil *denials
// has none.
type denials struct {
	events *client.Events
	id     string        // of the session
	done   chan struct{} // closed when seen is complete
	seen   []*api.NetworkDenial
}

// watchDenials follows what the network of a new session refuses, if that has an
// allow-list.
func (r *runInvocation) watchDenials(ctx context.Context, created *api.Session) (*denials, error) {
	if i := created.Isolation; r.app.json || i == nil || i.Network == nil || i.Network.Mode != "" {
		return nil, nil
	}
	// A watch of one confined session sees what happens inside of it. Its network is
	// outside.
	events, err := r.client.Watch(ctx, api.SessionWatchParams{})
	if err != nil {
		return nil, err
	}
	d := &denials{events: events, id: created.SessionID, done: make(chan struct{})}
	go d.collect()
	return d, nil
}

// maxDenials is how many different destinations are reported.
const maxDenials = 5

// collect keeps the first denial of each destination, until the session ends.
func (d *denials) collect() {
	defer close(d.done)
	told := map[string]bool{}
	for event, err := range d.events.All() {
		if err != nil || event.SessionID == d.id && event.Type == api.EventDestroyed {
			return
		}
		if event.SessionID != d.id || event.Denied == nil || told[destination(event.Denied)] {
			continue
		}
		if told[destination(event.Denied)] = true; len(d.seen) <= maxDenials {
			d.seen = append(d.seen, event.Denied)
		}
	}
}

// denialWait is how long the last events of a session that has ended may take.
const denialWait = 2 * time.Second

// print reports what was refused, after the session has been destroyed.
func (d *denials) print(a *app) {
	if d == nil {
		return
	}
	select {
	case <-d.done:
	case <-time.After(denialWait):
	}
	_ = d.events.Close() // ends collect
	<-d.done
	for i, denial := range d.seen {
		if i == maxDenials {
			a.remark("the session's network refused more; `trl events` shows all of it")
			return
		}
		text := denialText(denial)
		if denial.Host != "" && denial.Port != 0 {
			text += "; allow it with --network " + quote(destination(denial))
		}
		a.remark(text)
	}
}
