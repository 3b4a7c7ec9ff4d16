// Package session is the core of TRL: the Pool that owns every session, and the
// Session that owns one shell or one direct command, its state, its terminal and
// its execs.
//
// It knows no socket, no HTTP and no JSON: requests come in as api values and
// results leave as api values. A request's context bounds how long the caller
// waits, never how long a command runs: an exec belongs to its session, and goes on
// when its caller is gone.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	format2_linux.go       records of format 2
//	pool_linux.go          NewPool, Shutdown, Close, Stats
//	adopt_linux.go         sessions of an earlier process
//	readledger_linux.go    finding them in the ledger
//	housekeep_linux.go     TTLs and retention
//	remote_linux.go        sessions that run in cells
//	create_linux.go        session.create, list, info, destroy
//	execs_linux.go         exec.*
//	screen_linux.go        session.resize, screen, hold, release
//	watch_linux.go         session.watch
//	tags_linux.go          what a tag may see
//	registry_linux.go      Pool: the list of sessions
//	start_linux.go         checking params, starting a session
//	direct_linux.go        sessions of one command
//	run_linux.go           queueing and running commands
//	lifetime_linux.go      sessions that end with their connections
//	destroy_linux.go       ending a session
//	listed_linux.go        such sessions as they are listed
//	limits_linux.go        what a session may use
//	lease_linux.go         the keyboard lease and the terminal's size
//	describe_linux.go      a session as the api shows it
//	retain_linux.go        execs of a session
//	transition_linux.go    persisting a session, changing its state
//	session_linux.go       Session, and what sessions share
//	prompts_linux.go       commands that wait for input
//	config_linux.go        Config, Observer
//	ledgerreader_linux.go  records to sessions
//	stateformat_linux.go   what the ledger has of a session
//	keyboardlease.go
//	connections.go
//	history.go             callers that must wait for ended sessions
//	events.go              for watchers
//	ledgerwriter_linux.go
//	index.go
//	usedkeys.go            keys of forgotten execs and sessions
//	keys.go                keys, checksums of params
//	env.go                 environments
//	checks_linux.go
//	ids.go
//	state.go               the transition table
package session
