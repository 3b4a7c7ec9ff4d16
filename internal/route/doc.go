// Package route decides which place serves a request. A place is a TRL of its own:
// this machine, or one that runs in a container, on another machine or behind a
// command.
//
// A Router stands in front of the method table and works on raw calls, a method
// name and undecoded parameters: it must pass on fields that it does not know,
// because the place that serves the call may be of a later version. An id says
// where its session is; a new session says it by its runtime.
//
// A place is not trusted: its answers are passed on only if they are JSON and name
// nothing outside of it.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	route.go      finds the place of a call
//	create.go     session.create: in the place of its runtime
//	keep.go       keeps sessions that end with their client
//	list.go       lists of all places in one
//	watchall.go   the events of all places in one stream
//	watch.go      the events of a place
//	stream.go     a stream that outlives the connections to its place
//	attachment.go a stream for as long as one connection lasts
//	forward.go    a call to a place, repeated where that is safe
//	actor.go      describes to a place who makes a call
//	router.go     Router and its configuration
//	client.go     the connections of clients, as places know them
//	lane.go       keeps the calls of one client to one place in order
//	answer.go     checks and translates what a place answers
//	names.go      the place in an id
//	rawobject.go  changes single members of a JSON object
//	place.go      what the router needs of places
package route
