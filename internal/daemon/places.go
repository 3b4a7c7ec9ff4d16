package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/environ"
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/route"
)

// openPlaces returns the places of a daemon. load and save keep a copy of their
// notes; nil without a holder.
func openPlaces(cfg Config, opts Options, log *slog.Logger, load func() []byte, save func([]byte) error) *place.Registry {
	c := place.Config{
		Node: cfg.Node, Configured: cfg.Places, Allowed: cfg.AllowedRuntimes, TTLMS: cfg.PlaceTTLMS,
		Env: environ.ForPlaces(opts.Environment.Variables), Version: opts.Version, Log: log, Load: load, Save: save,
	}
	if opts.Stdio { // it ends with its client, and so do its places
		c.Dir = filepath.Join(opts.Environment.stateDir(), fmt.Sprintf(".places-%d", os.Getpid()))
	} else {
		// Near the socket: a path of the transports' own sockets is limited to about
		// a hundred bytes too.
		sum := sha256.Sum256([]byte(cfg.Socket))
		c.Dir = filepath.Join(filepath.Dir(cfg.Socket), fmt.Sprintf(".places-%x", sum[:4]))
		c.File = opts.Environment.placesFile(cfg.Socket)
	}
	return place.Open(c)
}

// stdioPlacesGrace is how long the places of a daemon on stdio have to end.
const stdioPlacesGrace = 10 * time.Second

// closePlaces closes the connections to places. Their sessions live on, except on
// stdio, where no later daemon could find them.
func closePlaces(places *place.Registry, stdio bool) {
	if places == nil {
		return
	}
	if stdio {
		ctx, cancel := context.WithTimeout(context.Background(), stdioPlacesGrace)
		defer cancel()
		places.EndAll(ctx)
	}
	places.Close()
}

// routedPlaces are the places as the router knows them.
type routedPlaces struct{ *place.Registry }

// Find returns the place with this name, or nil.
func (p routedPlaces) Find(name string) route.Place {
	if found := p.Registry.Find(name); found != nil {
		return found
	}
	return nil
}

// Get returns the place for a runtime.
func (p routedPlaces) Get(ctx context.Context, runtime string) (route.Place, string, error) {
	found, rest, err := p.Registry.Get(ctx, runtime)
	if err != nil {
		return nil, "", err
	}
	return found, rest, nil
}

// Single returns the place that is made for one session.
func (p routedPlaces) Single(ctx context.Context, runtime string, limits api.Limits, key string) (route.Place, func(), error) {
	found, discard, err := p.Registry.Single(ctx, runtime, limits, key)
	if err != nil {
		return nil, nil, err
	}
	return found, discard, nil
}

// All returns the noted places.
func (p routedPlaces) All() []route.Place {
	var all []route.Place
	for _, found := range p.Registry.All() {
		all = append(all, found)
	}
	return all
}
