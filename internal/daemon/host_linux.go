package daemon

import (
	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/process"
)

// openHost opens the host of all processes. It returns the limits of the container
// that this process is in, if it was made for one session.
func (d *daemon) openHost() (*place.Container, error) {
	container, err := d.opts.Environment.container()
	if err != nil {
		return nil, err
	}
	d.host, err = process.NewHost(process.Config{
		NoCgroup: d.cfg.Cgroup == CgroupOff, Log: d.log, Holder: d.holder, MemoryLimited: container.Limits.MemoryBytes > 0,
		Meter: process.NewMeter(d.files),
	})
	return container, err
}
