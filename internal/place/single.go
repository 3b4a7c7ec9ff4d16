package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
)

// This file is about places that are made for one session each, because limits of
// the session hold for all of the place.

// What the TRL of a place that is limited as a whole may use besides its session. The
// kernel counts it too, so the limits of the place are higher than those that a
// caller asks for.
const (
	// MemoryOfTRL is enough for the holder and the daemon, and for output that is not
	// spilled: both together take some 20 MiB.
	MemoryOfTRL = 48 << 20
	// PIDsOfTRL is enough for the threads of both, and for the shell and its copies.
	PIDsOfTRL = 64
)

// ContainerVariable is the environment variable that tells a TRL which limits its
// container has: a Container as JSON. Sessions do not get it.
const ContainerVariable = "TRL_CONTAINER"

// Container is what the registry tells the TRL in a container that was made for one
// session.
type Container struct {
	Asked  api.Limits        `json:"asked"`  // those of its session that hold for the container
	Limits api.LimitsInForce `json:"limits"` // the same as they are in force
}

// ParseContainer reads the value of ContainerVariable.
func ParseContainer(text string) (*Container, error) {
	c := &Container{}
	if err := json.Unmarshal([]byte(text), c); err != nil {
		return nil, fmt.Errorf("%s: %w", ContainerVariable, err)
	}
	return c, nil
}

// containerOf returns the limits that the engine enforces for asked. Shares of a
// processor are rounded to what the kernel can tell apart.
func containerOf(asked api.Limits) Container {
	c := Container{Asked: asked}
	if asked.MemoryBytes > 0 {
		c.Limits.MemoryBytes = asked.MemoryBytes + MemoryOfTRL
	}
	c.Limits.CPU = math.Round(asked.CPU*1e5) / 1e5
	if asked.PIDs > 0 {
		c.Limits.PIDs, c.Limits.PIDsReserved = asked.PIDs, PIDsOfTRL
	}
	return c
}

// options returns the options with which an engine makes the container.
func (c Container) options() ([]string, error) {
	told, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	options := []string{"--env", ContainerVariable + "=" + string(told)}
	if c.Limits.MemoryBytes > 0 {
		bytes := strconv.FormatInt(c.Limits.MemoryBytes, 10)
		options = append(options, "--memory", bytes, "--memory-swap", bytes)
	}
	if c.Limits.CPU > 0 {
		options = append(options, "--cpus", strconv.FormatFloat(c.Limits.CPU, 'f', -1, 64))
	}
	if c.Limits.PIDs > 0 {
		options = append(options, "--pids-limit", strconv.FormatInt(c.Limits.PIDs+c.Limits.PIDsReserved, 10))
	}
	return options, nil
}

// checkLimits returns a refusal if the engine has left out or changed a limit of a
// container that it has made: engines only warn about what the kernel lacks.
func (e engine) checkLimits(ctx context.Context, name string, c Container) error {
	const format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}"
	out, err := e.run(ctx, nil, "inspect", "--type", "container", "--format", format, name)
	if err != nil {
		return err
	}
	var got [4]int64
	for i, word := range strings.Fields(out) {
		if i < len(got) {
			got[i], _ = strconv.ParseInt(word, 10, 64) // what is no number is no limit
		}
	}
	var missing []string
	if want := c.Limits.MemoryBytes; want > 0 && (got[0] != want || got[1] != want) {
		missing = append(missing, "memory_bytes")
	}
	if want := c.Limits.CPU; want > 0 && math.Abs(float64(got[2])-want*1e9) > 1e4 { // a unit of the kernel
		missing = append(missing, "cpu")
	}
	if want := c.Limits.PIDs; want > 0 && got[3] != want+c.Limits.PIDsReserved {
		missing = append(missing, "pids")
	}
	if missing == nil {
		return nil
	}
	return &refusal{
		reason: noLimits, limits: missing, message: e.program + " does not enforce these limits on its machine",
		hint: fmt.Sprintf("see the warnings of `%s info`, or leave these limits out to run without", e.program),
	}
}

// limitComplaints are what engines say when they refuse a limit, in lower case: docker
// about more processors than there are, runtimes about a controller that is missing.
var limitComplaints = []string{"range of cpus", "cgroup controller"}

// explain returns the error of an engine, as a refusal of limits if it is one.
func (c Container) explain(err error) error {
	why, ok := errors.AsType[*refusal](err)
	if !ok || c == (Container{}) {
		return err
	}
	said := strings.ToLower(why.message)
	if !slices.ContainsFunc(limitComplaints, func(words string) bool { return strings.Contains(said, words) }) {
		return err
	}
	return &refusal{
		reason: noLimits, limits: c.Asked.Names(), message: why.message,
		hint: "lower these limits, or leave them out to run without",
	}
}

// MakesSingle reports whether Single can make a place for a runtime.
func (r *Registry) MakesSingle(runtime string) bool {
	at, err := parse(runtime)
	return err == nil && at.kind.limits
}

// Single returns a new place for one session with limits of memory, processor time or
// processes, which hold for all of it. It is connected, and ends with its session. If
// key is not empty, and a place was made with it before, that one is returned. discard
// must be called if no session could be created.
func (r *Registry) Single(ctx context.Context, runtime string, asked api.Limits, key string) (p *Place, discard func(), err error) {
	at, err := r.resolve(runtime)
	if err != nil {
		return nil, nil, err
	}
	if p = r.withKey(at, key); p != nil {
		if _, err = p.Conn(ctx); !api.IsCode(err, api.CodeRuntimeNotFound) { // else it has ended
			return p, func() {}, err
		}
	}
	if p, err = r.addSingle(at, asked, key); err != nil {
		return nil, nil, err
	}
	discard = func() { p.finish(false) }
	if _, err := p.Conn(ctx); err != nil {
		discard()
		return nil, nil, err
	}
	return p, discard, nil
}

// withKey returns the place that was made for the session with this key, or nil.
func (r *Registry) withKey(at parsed, key string) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findKey(at, key)
}

// findKey is withKey. Caller must hold mu.
func (r *Registry) findKey(at parsed, key string) *Place {
	for _, p := range r.places {
		if key != "" && p.single && p.runtime == at.first && p.note.Key == key {
			return p
		}
	}
	return nil
}

// addSingle makes a place for one session, or returns the one that another call has
// made with the same key meanwhile.
func (r *Registry) addSingle(at parsed, asked api.Limits, key string) (*Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.findKey(at, key); p != nil {
		return p, nil
	}
	if err := r.accepts(at); err != nil {
		return nil, err
	}
	p := r.newPlace(at, note{Name: r.drawName(cellLetters), Limits: &asked, Key: key})
	p.want()
	r.places = append(r.places, p)
	return p, nil
}

const (
	// finishTimeout bounds how long an engine may take to end the container of a
	// session: some 300 ms, and seconds on a machine that swaps.
	finishTimeout = 30 * time.Second
	// stopGrace is how long the TRL of a place whose session has ended may take to
	// deliver the last chunks, answers and events: milliseconds.
	stopGrace = time.Second
)

// finish ends a place that was made for one session. Without force it leaves a place
// with a live session. A place that can't be ended now ends by itself, because no
// session is in it.
func (p *Place) finish(force bool) {
	r := p.reg
	ctx, cancel := context.WithTimeout(r.ctx, finishTimeout)
	defer cancel()
	r.mu.Lock()
	reached := p.noted
	if !reached && p.calls.attempt == nil {
		p.forget()
	}
	r.mu.Unlock()
	if !reached {
		return // there is nothing, or the attempt goes on for others
	}
	if s, ok := p.transport.(stopper); ok && force {
		s.stop(ctx, stopGrace)
	}
	err := r.remove(ctx, p, force)
	if err != nil && !api.IsCode(err, api.CodeSessionBusy) && !api.IsCode(err, api.CodeRuntimeNotFound) {
		r.cfg.Log.Error("cannot end a place", "event", "place_not_ended", "runtime", p.runtime, "name", p.Name(), "error", err)
	}
}
