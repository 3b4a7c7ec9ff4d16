package internal_test

// importers lists which directories may import a directory, apart from itself.
var importers = []importerRule{
	{
		about: "internal/holder", from: []string{"internal/cell", "internal/daemon", "internal/exec", "internal/journal", "internal/ledger", "internal/process", "internal/session", "internal/shell", "internal/terminal"},
		why: "the owners of descriptors persist them",
	},
	{
		about: "internal/state", from: []string{"internal/cell", "internal/daemon", "internal/exec", "internal/journal", "internal/session", "internal/shell", "internal/terminal"},
		why: "each owner encodes its own state; no other package reads it",
	},
	{
		about: "internal/process", from: []string{"cmd/trl", "internal/cell", "internal/daemon", "internal/doctor", "internal/exec", "internal/session", "internal/shell", "internal/terminal"},
		why: "processes are the layer below shells and sessions; the doctor checks that layer directly",
	},
	{
		about: "internal/confine", from: []string{"cmd/trl", "internal/cell", "internal/doctor"},
		why: "cells confine; the doctor tells what a machine can enforce",
	},
	{
		about: "internal/shell", from: []string{"internal/cli", "internal/daemon", "internal/doctor", "internal/exec", "internal/session"},
		why: "a shell has one owner, its session; the doctor only finds the installed shells, and the command line names them",
	},
	{
		about: "internal/journal", from: []string{"internal/daemon", "internal/exec", "internal/session", "internal/terminal"},
		why: "output is read through the session that captured it",
	},
	{
		about: "internal/pty", from: []string{"internal/terminal"},
		why: "a terminal has one owner, its session",
	},
	{
		about: "internal/vt", from: []string{"internal/cli", "internal/console", "internal/drawing", "internal/exec", "internal/lineedit", "internal/mcp", "internal/terminal", "internal/typing"},
		why: "a session owns its screen; the console paints one, pictures, tables and the line editor need character widths, mcp removes escapes from output, and typing knows the keys",
	},
	{
		about: "internal/cast", from: []string{"internal/cli"},
		why: "the daemon returns output and times; clients make recordings from them",
	},
	{
		about: "internal/drawing", from: []string{"internal/cli", "internal/mcp"},
		why: "the daemon returns the contents of a screen; clients make pictures from it",
	},
	{
		about: "internal/typing", from: []string{"internal/cli", "internal/mcp"},
		why: "the daemon types what it is sent; clients decide what to send",
	},
	{
		about: "internal/terminal", from: []string{"internal/exec", "internal/session"},
		why: "a session owns its terminal; its commands write to it",
	},
	{
		about: "internal/exec", from: []string{"internal/session"},
		why: "a command is reached through its session",
	},
	{
		about: "internal/session", from: []string{"internal/cell", "internal/daemon"},
		why: "wired in one place; cells list their sessions, and the service uses its own interface",
	},
	{
		about: "internal/access", from: []string{"internal/cli", "internal/doctor", "internal/front", "internal/route", "internal/service", "internal/transport"},
		why: "used by the transports, the router and the method table; the layers below serve authorized requests only",
	},
	{
		about: "internal/locate", from: []string{"client", "internal/daemon"},
		why: "the daemon and its clients agree on where it is; the command line asks the daemon's settings",
	},
	{
		about: "internal/peer", from: []string{"client", "internal/cell", "internal/place", "internal/relay", "internal/route", "internal/stdio"},
		why: "programs use the client, which repeats calls where that is safe; a router decides that itself",
	},
	{
		about: "internal/nowait", from: []string{"internal/exec", "internal/journal", "internal/peer", "internal/process", "internal/shell", "internal/stdio", "internal/transport"},
		why: "it matters only for the messages of connections and for what a short command does",
	},
	{
		about: "internal/relay", from: []string{"internal/cli"},
		why: "a relay is a command",
	},
	{
		about: "internal/stdio", from: []string{"internal/relay", "internal/transport"},
		why: "the relay and the daemon treat the relay's files alike",
	},
	{
		about: "internal/place", from: []string{"internal/cell", "internal/daemon"},
		why: "wired in one place; cells are places, and the router uses its own interface",
	},
	{
		about: "internal/profile", from: []string{"internal/cell", "internal/daemon", "internal/mcp", "internal/service"},
		why: "settings, tokens and tools name profiles; they are expanded where a session is confined",
	},
	{
		about: "internal/proxy", from: []string{"internal/cell", "internal/profile"},
		why: "only a confined session has a list of hosts",
	},
	{
		about: "internal/cell", from: []string{"internal/daemon"},
		why: "wired in one place; the layers above do not know that a session is confined",
	},
	{
		about: "internal/trust", from: []string{"internal/cell", "internal/cli", "internal/daemon", "internal/doctor", "internal/locate", "internal/peer", "internal/place", "internal/relay", "internal/transport"},
		why: "used where a local path is opened; the command line explains its errors",
	},
	{
		about: "internal/service", from: []string{"internal/daemon", "internal/dialogue/fold", "internal/front", "internal/route", "internal/transport"},
		why: "a request becomes work only through a transport and the router; a fold uses the scanner of JSON alone",
	},
	{
		about: "internal/route", from: []string{"internal/daemon"},
		why: "the layers below do not know that there are several places",
	},
	{
		about: "internal/transport", from: []string{"internal/daemon", "internal/front"},
		why: "the daemon opens and keeps the listeners, and front serves them",
	},
	{
		about: "internal/front", from: []string{"internal/daemon"},
		why: "wired in one place",
	},
	{
		about: "internal/daemon", from: []string{"cmd/trl", "internal/cli"},
		why: "the daemon is the top layer",
	},
	{
		about: "internal/caller", from: []string{"internal/cli", "internal/front", "internal/mcp"},
		why: "for what sits above the contract",
	},
	{
		about: "internal/mcp", from: []string{"internal/cli", "internal/front"},
		why: "the command line serves it on stdio, and the daemon's front over HTTP",
	},
	{
		about: "internal/doctor", from: []string{"internal/cli"},
		why: "a person runs the doctor; a daemon does not check itself",
	},
	{
		about: "internal/console", from: []string{"internal/cli"},
		why: "a person attaches and opens a prompt with a command",
	},
	{
		about: "internal/cli", from: []string{"cmd/trl"},
		why: "nothing depends on the command line",
	},
	{
		about: "internal/tour", from: []string{"internal/cli"},
		why: "the tour is a command",
	},
	{
		about: "internal/trltest", from: []string{},
		why: "only for tests",
	},
	{
		about: "internal/contract", from: []string{},
		why: "tests check the generated documents; nothing generates them at run time",
	},
}
