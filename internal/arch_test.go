package internal_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/terminal-runtime/trl"

// Requests travel down the layers and output travels up; every layer imports only the
// layers below it. The tables in this file enforce that. They apply to the code that
// is compiled into the daemon and its clients: test files are exempt.

// imports lists what a directory, and every directory below it, may import.
var imports = []importRule{
	{
		about: "api", only: []string{}, bare: true,
		why: "programs must be able to use TRL without linking anything else",
	},
	{
		about: "client", only: []string{"api", "internal/locate", "internal/peer"}, bare: true,
		why: "a client needs the API types, connections and where the daemon is, but not the daemon",
	},
	{
		about: "internal/peer", only: []string{"api", "internal/nowait", "internal/printable", "internal/trust"}, bare: true, but: []string{"github.com/coder/websocket"},
		why: "a connection depends neither on what is called over it nor on which calls are repeated",
	},
	{
		about: "internal/relay", only: []string{"api", "internal/peer", "internal/stdio", "internal/trust"},
		why: "a relay passes bytes on and reads none of them; what it must say first it asks the daemon",
	},
	{
		about: "internal/stdio", only: []string{"internal/nowait", "internal/peer"},
		why: "a stream with heartbeats depends neither on its bytes nor on the process that has it; only peer says how often they come",
	},
	{
		about: "internal/place", only: []string{"api", "internal/peer", "internal/printable", "internal/trust"},
		why: "a place is reached and kept; what is called in it does not matter here",
	},
	{
		about: "internal/cell", only: []string{"api", "internal/confine", "internal/holder", "internal/ledger", "internal/peer", "internal/place", "internal/process", "internal/profile", "internal/proxy", "internal/session", "internal/state", "internal/trust"},
		why: "a confined session is a process tree, a place and an entry in the list of sessions; how it is confined and what is called in it does not matter here",
	},
	{
		about: "internal/profile", only: []string{"api", "internal/proxy"},
		why: "a profile is a list of members of isolation, one of them a network allow-list; what can be enforced does not matter here",
	},
	{
		about: "internal/proxy", only: []string{}, bare: true,
		why: "what a session may connect to depends on its list alone; the caller has the listener and reports denials",
	},
	{
		about: "internal/locate", only: []string{"internal/trust"},
		why: "where a daemon is depends on the user alone: clients must find it without linking it",
	},
	{
		about: "conformance", only: []string{}, bare: true,
		why: "the conformance tests are black-box: code shared with the daemon would share its mistakes",
	},
	{
		about: "internal/holder", only: []string{},
		why: "the holder survives the daemon and must not depend on the data it keeps, which then cannot break it",
	},
	{
		about: "internal/ledger", only: []string{"internal/holder"},
		why: "a persistent map does not depend on its values",
	},
	{
		about: "internal/state", only: []string{}, bare: true,
		why: "the encoding of fields does not depend on their owner",
	},
	{
		about: "internal/freelist", only: []string{}, bare: true,
		why: "reusing values does not depend on their type",
	},
	{
		about: "internal/nowait", only: []string{},
		why: "how a descriptor is read and written does not depend on what it carries",
	},
	{
		about: "internal/process", only: []string{"api", "internal/holder", "internal/nowait"},
		why: "the lowest layer above the holder: killing processes must be testable without the layers above",
	},
	{
		about: "internal/confine", only: []string{},
		why: "how a program is confined depends neither on sessions nor on what the program is",
	},
	{
		about: "internal/contract", only: []string{"api"},
		why: "the generated documents are made from the API types and the descriptions in the method table",
	},
	{
		about: "internal/pty", only: []string{},
		why: "a pseudo-terminal is just a pair of files",
	},
	{
		about: "internal/journal", only: []string{"api", "internal/freelist", "internal/holder", "internal/nowait", "internal/state"},
		why: "a log of bytes does not depend on what wrote them",
	},
	{
		about: "internal/shell", only: []string{"api", "internal/freelist", "internal/holder", "internal/nowait", "internal/process", "internal/state"},
		why: "a shell driver needs only processes and persistent descriptors; the layers above decide what output is used for",
	},
	{
		about: "internal/vt", only: []string{"api"}, bare: true,
		why: "a screen depends only on the bytes written to it; the layers above decide what it is used for",
	},
	{
		about: "internal/notify", only: []string{"api"}, bare: true,
		why: "a stream is the same whatever opens it and whatever sends it",
	},
	{
		about: "internal/environ", only: []string{}, bare: true,
		why: "which variables are harmless does not depend on the process that passes them on",
	},
	{
		about: "internal/label", only: []string{}, bare: true,
		why: "which words of a command are harmless depends only on its text",
	},
	{
		about: "internal/spelling", only: []string{}, bare: true,
		why: "typing errors are the same in any kind of name",
	},
	{
		about: "internal/units", only: []string{}, bare: true,
		why: "a duration reads the same wherever it is shown",
	},
	{
		about: "internal/printable", only: []string{}, bare: true,
		why: "whether a character is visible does not depend on where it is shown",
	},
	{
		about: "internal/cast", only: []string{"api"}, bare: true,
		why: "recordings are made from what any client can read",
	},
	{
		about: "internal/drawing", only: []string{"api", "internal/vt"},
		why: "pictures are made from what any client can read; only vt decides how wide a character is",
	},
	{
		about: "internal/trust", only: []string{},
		why: "both ends of a socket use it, so it depends on neither",
	},
	{
		about: "internal/access", only: []string{"api", "internal/printable"}, without: []string{"net", "net/http"},
		why: "authorization does not depend on the transport of a request",
	},
	{
		about: "internal/terminal",
		only: []string{
			"api", "internal/arrival", "internal/holder", "internal/journal", "internal/process", "internal/pty", "internal/state", "internal/vt",
		},
		without: []string{"net", "net/http", "encoding/json"},
		why:     "a terminal knows the command that writes to it only by an interface, and no shell",
	},
	{
		about: "internal/exec",
		only: []string{
			"api", "internal/arrival", "internal/freelist", "internal/holder", "internal/journal", "internal/notify", "internal/nowait", "internal/printable",
			"internal/process", "internal/shell", "internal/state", "internal/terminal", "internal/vt",
		},
		without: []string{"net", "net/http", "encoding/json"},
		why:     "a command depends neither on its session nor on the pool",
	},
	{
		about:   "internal/session",
		never:   []string{"client", "internal/access", "internal/service", "internal/transport", "internal/daemon", "internal/cli"},
		without: []string{"net", "net/http", "encoding/json"},
		why:     "the core must be testable without a socket",
	},
	{
		about:   "internal/service",
		never:   []string{"client", "internal/session", "internal/transport", "internal/daemon", "internal/cli"},
		without: []string{"net", "net/http"},
		why:     "the method table declares the interface it needs and does not depend on the transport of a request",
	},
	{
		about: "internal/route", only: []string{"api", "internal/access", "internal/arrival", "internal/notify", "internal/peer", "internal/printable", "internal/service"}, without: []string{"net", "net/http"},
		why: "calls are routed as they are: a router knows neither sessions nor the transport of a request, and places by an interface of its own",
	},
	{
		about: "internal/transport",
		never: []string{"client", "internal/session", "internal/process", "internal/shell", "internal/journal", "internal/daemon", "internal/cli"},
		why:   "transports make no decisions: the method table decides what a request does",
	},
	{
		about: "internal/front", only: []string{"api", "internal/access", "internal/caller", "internal/mcp", "internal/notify", "internal/service", "internal/transport"},
		why: "what clients see of a daemon is the same on every system and in front of every place; a handler serves the requests",
	},
	{
		about: "internal/doctor", only: []string{"api", "internal/access", "internal/process", "internal/shell", "internal/trust"},
		why: "the doctor tries what a daemon would use, outside of a daemon; its caller provides the connection",
	},
	{
		about: "internal/tour", only: []string{"api", "client"},
		why: "the tour uses TRL as any user does, including the start of its daemon",
	},
	{
		about: "internal/caller", only: []string{"api", "client"},
		why: "what sits above the contract calls a daemon without knowing where it is; it does not link the method table",
	},
	{
		about: "internal/typing", only: []string{"api", "internal/vt"},
		why: "what a newline and the name of a key mean does not depend on who types",
	},
	{
		about: "internal/mcp", only: []string{"api", "internal/caller", "internal/drawing", "internal/printable", "internal/profile", "internal/spelling", "internal/typing", "internal/vt"},
		why: "tools call the methods that any client can call; only drawing and vt decide what output looks like",
	},
	{
		about: "internal/lineedit", only: []string{"internal/printable", "internal/vt"},
		why: "an editor of lines gets keys and returns bytes; its caller has the terminal",
	},
	{
		about: "internal/shellsyntax", only: []string{}, bare: true,
		why: "a command line reads the same wherever it was typed",
	},
	{
		about: "internal/console", only: []string{"api", "client", "internal/lineedit", "internal/printable", "internal/shellsyntax", "internal/units", "internal/vt"}, without: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
		why: "the interactive terminal is a client on a person's terminal; its caller parses flags and decides exit statuses",
	},
	{
		about: "internal/dialogue/fold", only: []string{"api", "internal/service/rawjson"}, bare: true, without: []string{"context", "io", "net", "os", "time"},
		why: "a transcript is made of bytes; whose they are is decided above",
	},
	{
		about: "internal/cli", only: []string{"api", "client", "internal/access", "internal/caller", "internal/cast", "internal/console", "internal/daemon", "internal/doctor", "internal/drawing", "internal/environ", "internal/mcp", "internal/printable", "internal/relay", "internal/shell", "internal/spelling", "internal/tour", "internal/trust", "internal/typing", "internal/units", "internal/vt"},
		why: "the command line uses the client, as any user does; it needs the daemon for `serve` and to signal its holder (`upgrade`, `stop`), mcp for `mcp`, doctor for `doctor`, access for `token`, shell for the names of the shells, console for `attach`, `shell`, `run` and `quickstart`, and makes recordings and pictures itself",
	},
	{
		about: "packaging/dist", only: []string{}, bare: true,
		why: "the release tool treats trl as a file that it builds, runs and packs",
	},
}

// libraries lists which directories may import a third-party module and its packages.
var libraries = []importerRule{
	{
		about: "github.com/prometheus", from: []string{"internal/front"},
		why: "other packages count in plain Go; only the daemon's front exports metrics",
	},
	{
		about: "github.com/coder/websocket", from: []string{"internal/peer", "internal/transport"},
		why: "only the two ends of a connection depend on WebSockets",
	},
	{
		about: "github.com/modelcontextprotocol", from: []string{"internal/mcp"},
		why: "only the tools for models depend on MCP",
	},
}

// reapers lists which directories may start processes or wait for them.
var reapers = useRule{
	names: map[string][]string{
		"os":                    {"StartProcess"},
		"os/exec":               {"Command", "CommandContext", "Cmd"}, // LookPath starts no process
		"syscall":               {"ForkExec", "StartProcess", "Wait4"},
		"golang.org/x/sys/unix": {"Wait4", "Waitid"},
	},
	from: []string{"client", "internal/cli", "internal/doctor", "internal/holder", "internal/peer", "internal/place", "internal/process", "internal/tour", "internal/trltest", "packaging/dist"}, // a client, the command line and the tour may start a daemon; peer and place start what reaches a place, which the reaper leaves to them; the doctor and the release tool run outside of a daemon
	why:  "there is one reaper: a second waiter would steal exit statuses, and a child unknown to the reaper could not be killed",
}

// vague lists package names that do not describe their contents, and `runtime`, which
// shadows the standard library's.
var vague = []string{"common", "helper", "helpers", "misc", "runtime", "types", "util", "utils"}

func TestArchitecture(t *testing.T) {
	files, err := load(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range check(files) {
		t.Error(violation)
	}
	// A rule about a directory that has moved enforces nothing.
	for _, dir := range ruledDirs() {
		if !slices.ContainsFunc(files, func(f file) bool { return within(f.dir, dir) }) {
			t.Errorf("a rule names %s, which does not exist", dir)
		}
	}
}

type importRule struct {
	about   string
	only    []string // allowed packages of this module; nil: any
	never   []string // forbidden packages of this module
	bare    bool     // of other modules, allow only the standard library
	but     []string // exceptions to bare
	without []string // forbidden packages of other modules; net does not include net/http
	why     string
}

type importerRule struct {
	about string
	from  []string
	why   string
}

type useRule struct {
	names map[string][]string // by import path
	from  []string
	why   string
}

// check returns one line for each violation of each rule.
func check(files []file) []string {
	var violations []string
	report := func(where fmt.Stringer, what, why string) {
		violations = append(violations, fmt.Sprintf("%s %s: %s", where, what, why))
	}
	dirs := map[string]bool{}
	for _, f := range files {
		dirs[f.dir] = true
		for _, i := range f.imports {
			for _, rule := range imports {
				if within(f.dir, rule.about) && !rule.allows(i) {
					report(f, "imports "+i.path, rule.why)
				}
			}
			for _, rule := range importers {
				if i.ours && within(i.path, rule.about) && !within(f.dir, rule.about) && !anyWithin(f.dir, rule.from) {
					report(f, "imports "+i.path, rule.why)
				}
			}
			for _, library := range libraries {
				if !i.ours && within(i.path, library.about) && !anyWithin(f.dir, library.from) {
					report(f, "imports "+i.path, library.why)
				}
			}
		}
		for full, names := range reapers.names {
			for _, name := range names {
				if slices.Contains(f.uses, full+"."+name) && !anyWithin(f.dir, reapers.from) {
					report(f, "uses "+full+"."+name, reapers.why)
				}
			}
		}
		if slices.Contains(vague, f.pkg) || slices.Contains(vague, path.Base(f.dir)) {
			report(f, "is in a package named "+f.pkg, "a name must describe the contents")
		}
	}
	for dir := range dirs {
		if !slices.ContainsFunc(files, func(f file) bool { return f.dir == dir && documents(f) }) {
			violations = append(violations, dir+" has no package comment: readers start there")
		}
	}
	slices.Sort(violations)
	return violations
}

func (r importRule) allows(i imported) bool {
	if i.ours {
		return !anyWithin(i.path, r.never) && (r.only == nil || within(i.path, r.about) || anyWithin(i.path, r.only))
	}
	return !slices.Contains(r.without, i.path) && (!r.bare || standard(i.path) || anyWithin(i.path, r.but))
}

// standard reports whether an import path is in the standard library: its first
// element is not a host name.
func standard(full string) bool {
	first, _, _ := strings.Cut(full, "/")
	return !strings.Contains(first, ".")
}

// documents reports whether the file has a package comment in the form that go doc
// expects.
func documents(f file) bool {
	if f.pkg == "main" {
		return strings.TrimSpace(f.doc) != ""
	}
	return strings.HasPrefix(f.doc, "Package "+f.pkg+" ")
}

// within reports whether a directory is root or below it.
func within(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func anyWithin(dir string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(dir, root) })
}

// ruledDirs returns the directories of this module that the rules name.
func ruledDirs() []string {
	dirs := slices.Clone(reapers.from)
	for _, rule := range imports {
		dirs = append(append(dirs, rule.about), rule.only...)
	}
	for _, rule := range importers {
		dirs = append(append(dirs, rule.about), rule.from...)
	}
	for _, library := range libraries {
		dirs = append(dirs, library.from...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
