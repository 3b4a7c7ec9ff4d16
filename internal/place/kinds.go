package place

import (
	"context"
	"strings"
	"time"
)

// kind is one way to reach a place: the part of a runtime before its first colon.
type kind struct {
	name string
	// open returns the transport of one place. It does not connect yet.
	open func(r *Registry, t target) transport
	// check returns what is wrong with an address; "" if nothing is. nil means that
	// any is good.
	check func(address string) string
	// configured says that the address is the NAME of a table [place.NAME].
	configured bool
	// adopts says that another person started the daemon of such a place, under its
	// own name. The registry uses that name for the place, instead of one that it
	// draws. A place with deliver = true is an exception.
	adopts bool
	// foreign says that connections do not act for others: the place decides by
	// their token what they may do.
	foreign bool
	// limits says that the place can be made for one session, with limits of its own.
	limits bool
	// whole says that the address may contain slashes, so no chain begins in it.
	whole bool
}

// kinds returns the ways to reach a place. It is a function, since a variable would
// depend on itself: transports use the registry.
func kinds() []kind {
	return []kind{
		{name: "cmd", open: openCommand, configured: true, adopts: true},
		{name: "docker", open: openContainer("docker")},
		{name: "podman", open: openContainer("podman")},
		{name: "docker-image", open: openImage("docker"), whole: true, limits: true},
		{name: "podman-image", open: openImage("podman"), whole: true, limits: true},
		{name: "ssh", open: openSSH, check: checkHost},
		{name: "trl", open: openURL, adopts: true, foreign: true, whole: true, check: checkURL},
	}
}

func kindOf(name string) (kind, bool) {
	for _, k := range kinds() {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

// kindNames returns the kinds for a message: cmd:, docker:, ….
func kindNames() string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name+":")
	}
	return strings.Join(names, ", ")
}

// maker is a transport that makes its place. connect makes it only after a call of
// want: a list of sessions must not bring back a place that has ended.
type maker interface{ want() }

// stopper is a transport whose place can be asked to end by itself.
type stopper interface {
	// stop returns when the place has ended, or has had its grace. Failures show later.
	stop(ctx context.Context, grace time.Duration)
}

// upgrader is a transport that can replace the program in its place.
type upgrader interface {
	// upgrade delivers this program and has the place's daemon replace itself by it.
	// Sessions go on. Connections end.
	upgrade(ctx context.Context) error
}
