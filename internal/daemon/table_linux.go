package daemon

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/route"
	"github.com/terminal-runtime/trl/internal/service"
)

// openTable makes the table of methods.
func (d *daemon) openTable() {
	cfg := service.Config{Sessions: sessions{d.pool, d.cells}, Execs: d.pool, System: newSystem(d), Log: d.log, Observe: requestObserver(d.http), DefaultIsolation: api.Profile(d.cfg.DefaultIsolation)}
	if d.places != nil {
		cfg.Places = d.places
	}
	d.table = service.New(cfg)
}

// newRouter returns the router of this daemon.
func (d *daemon) newRouter() *route.Router {
	cfg := route.Config{Local: d.table, NoHost: d.cfg.HostRuntime == HostRuntimeOff, Node: d.cfg.Node, DefaultRuntime: d.cfg.DefaultRuntime}
	if d.places != nil {
		cfg.Places, cfg.Isolation = routedPlaces{d.places}, d.places.Isolation
	}
	return route.New(cfg)
}
