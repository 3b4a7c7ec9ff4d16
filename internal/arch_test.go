package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/terminal-runtime/trl"

// A request travels one way down and its output one way up; every floor knows
// only the floor below it. This file is that sentence as tables. The rules are
// about what is compiled into the daemon and its clients: test files are free.

// imports says what a directory, and every directory below it, may import.
var imports = []importRule{
	{
		about: "api", only: []string{}, bare: true,
		why: "a program must be able to speak to TRL without linking anything else",
	},
	{
		about: "client", only: []string{"api", "internal/trust"}, bare: true, but: []string{"github.com/coder/websocket"},
		why: "a client knows the vocabulary, whom to believe on its machine, and not the daemon; of others, only what carries it",
	},
	{
		about: "conformance", only: []string{}, bare: true,
		why: "the judge is black-box: sharing code with the daemon, it would share its mistakes",
	},
	{
		about: "internal/holder", only: []string{},
		why: "what survives the daemon knows nothing of what it keeps, so that nothing in there can break it",
	},
	{
		about: "internal/ledger", only: []string{"internal/holder"},
		why: "a map that is kept knows nothing of its values",
	},
	{
		about: "internal/state", only: []string{}, bare: true,
		why: "how fields are written does not depend on whose they are",
	},
	{
		about: "internal/freelist", only: []string{}, bare: true,
		why: "how values are reused does not depend on what they are",
	},
	{
		about: "internal/process", only: []string{"api", "internal/holder"},
		why: "the lowest floor but what outlives it: killing must be testable with nothing above it",
	},
	{
		about: "internal/contract", only: []string{"api"},
		why: "the artefacts are made of the vocabulary and of what the method table says of itself",
	},
	{
		about: "internal/pty", only: []string{},
		why: "a pseudo-terminal is a pair of files",
	},
	{
		about: "internal/journal", only: []string{"api", "internal/freelist", "internal/holder", "internal/state"},
		why: "a log of bytes does not know whose they are",
	},
	{
		about: "internal/shell", only: []string{"api", "internal/freelist", "internal/holder", "internal/process", "internal/state"},
		why: "a shell driver needs processes, kept descriptors and nothing else; what output is for is decided above",
	},
	{
		about: "internal/vt", only: []string{"api"}, bare: true,
		why: "a terminal is bytes and a screen; what it is for, and whose it is, is decided above",
	},
	{
		about: "internal/spelling", only: []string{}, bare: true,
		why: "a slip of the pen is one whatever was written",
	},
	{
		about: "internal/printable", only: []string{}, bare: true,
		why: "what can be seen does not depend on who shows it",
	},
	{
		about: "internal/cast", only: []string{"api"}, bare: true,
		why: "a recording is made of what any client is told",
	},
	{
		about: "internal/drawing", only: []string{"api", "internal/vt"},
		why: "a picture is made of what any client is told; how wide a character is, is decided in one place",
	},
	{
		about: "internal/trust", only: []string{},
		why: "both ends of a socket ask it, so it knows neither",
	},
	{
		about: "internal/access", only: []string{"api", "internal/printable"}, without: []string{"net", "net/http"},
		why: "who may do what does not depend on how a request came",
	},
	{
		about:   "internal/session",
		never:   []string{"client", "internal/access", "internal/service", "internal/transport", "internal/daemon", "internal/cli"},
		without: []string{"net", "net/http", "encoding/json"},
		why:     "the heart must be testable without a socket",
	},
	{
		about:   "internal/service",
		never:   []string{"client", "internal/session", "internal/transport", "internal/daemon", "internal/cli"},
		without: []string{"net", "net/http"},
		why:     "the method table declares the interface it needs, and does not care how a request came",
	},
	{
		about: "internal/transport",
		never: []string{"client", "internal/session", "internal/process", "internal/shell", "internal/journal", "internal/daemon", "internal/cli"},
		why:   "carriers only, no decisions: what a request does is the method table's",
	},
	{
		about: "internal/doctor", only: []string{"api", "internal/access", "internal/process", "internal/shell", "internal/trust"},
		why: "what is tried is what a daemon would use; whom to ask, and where, it is told",
	},
	{
		about: "internal/tour", only: []string{"api", "client"},
		why: "the tour shows what any user sees, of a daemon that is started as any user does",
	},
	{
		about: "internal/mcp", only: []string{"api", "internal/drawing", "internal/printable", "internal/spelling", "internal/vt"},
		why: "tools are made of the methods that any client has, whoever calls them and from where; what output looks like is decided in one place",
	},
	{
		about: "internal/cli", only: []string{"api", "client", "internal/access", "internal/cast", "internal/daemon", "internal/doctor", "internal/drawing", "internal/mcp", "internal/printable", "internal/spelling", "internal/tour", "internal/trust", "internal/vt"},
		why: "the command line speaks through the client as any user does; the daemon is there for `serve` and for who must signal it, `upgrade` and `stop`, the tools for models for `mcp`, the doctor for `doctor`, the token file for `token`, the screen for showing one to a person, and what answers are made into is made here",
	},
	{
		about: "packaging/dist", only: []string{}, bare: true,
		why: "what makes a release knows the program as a file that it builds, runs and packs",
	},
}

// doors says who may import a directory, besides itself.
var doors = []doorRule{
	{
		about: "internal/holder", from: []string{"internal/daemon", "internal/journal", "internal/ledger", "internal/process", "internal/session", "internal/shell"},
		why: "descriptors are kept by those who own them",
	},
	{
		about: "internal/state", from: []string{"internal/daemon", "internal/journal", "internal/session", "internal/shell"},
		why: "each owner describes what it keeps; nobody else reads it",
	},
	{
		about: "internal/process", from: []string{"cmd/trl", "internal/daemon", "internal/doctor", "internal/session", "internal/shell"},
		why: "processes are the floor below shells and sessions; the doctor tries the floor itself",
	},
	{
		about: "internal/shell", from: []string{"internal/daemon", "internal/doctor", "internal/session"},
		why: "a shell has one owner, its session; the doctor only looks for them",
	},
	{
		about: "internal/journal", from: []string{"internal/daemon", "internal/session"},
		why: "output is reached through the session that captured it",
	},
	{
		about: "internal/pty", from: []string{"internal/session"},
		why: "a terminal has one owner, its session",
	},
	{
		about: "internal/vt", from: []string{"internal/cli", "internal/drawing", "internal/mcp", "internal/session"},
		why: "what a screen shows is asked of the session that has it; a person's terminal is painted from one too, a picture needs to know what is wide, and a model gets output without escapes",
	},
	{
		about: "internal/cast", from: []string{"internal/cli"},
		why: "the daemon tells output and times; what is made of them is for who asks",
	},
	{
		about: "internal/drawing", from: []string{"internal/cli", "internal/mcp"},
		why: "the daemon tells what is on a screen; what is made of it is for who asks",
	},
	{
		about: "internal/session", from: []string{"internal/daemon"},
		why: "wired in one place; the service sees it through an interface of its own",
	},
	{
		about: "internal/access", from: []string{"internal/cli", "internal/daemon", "internal/doctor", "internal/service", "internal/transport"},
		why: "asked at the doors and in the method table; below it everybody has been let in",
	},
	{
		about: "internal/trust", from: []string{"client", "internal/cli", "internal/daemon", "internal/doctor", "internal/transport"},
		why: "asked where a path of this machine is opened; the command line explains its refusals",
	},
	{
		about: "internal/service", from: []string{"internal/daemon", "internal/transport"},
		why: "a request becomes work only through a transport",
	},
	{
		about: "internal/transport", from: []string{"internal/daemon"},
		why: "wired in one place",
	},
	{
		about: "internal/daemon", from: []string{"cmd/trl", "internal/cli"},
		why: "the daemon is the top floor",
	},
	{
		about: "internal/mcp", from: []string{"internal/cli", "internal/daemon"},
		why: "it is served on stdio by the one, and over HTTP by the other",
	},
	{
		about: "internal/doctor", from: []string{"internal/cli"},
		why: "a daemon does not examine itself; a person asks",
	},
	{
		about: "internal/cli", from: []string{"cmd/trl"},
		why: "nothing is built on a command line",
	},
	{
		about: "internal/tour", from: []string{"internal/cli"},
		why: "it is a command",
	},
	{
		about: "internal/trltest", from: []string{},
		why: "it is for tests",
	},
	{
		about: "internal/contract", from: []string{},
		why: "what is generated is checked by tests, and not made at run time",
	},
}

// libraries says who may import a module of others, and what is below it.
var libraries = []doorRule{
	{
		about: "github.com/prometheus", from: []string{"internal/daemon"},
		why: "what is counted is counted in plain Go; how it is shown is decided in one place",
	},
	{
		about: "github.com/coder/websocket", from: []string{"client", "internal/transport"},
		why: "only the two ends of a connection know that it is a WebSocket",
	},
	{
		about: "github.com/modelcontextprotocol", from: []string{"internal/mcp"},
		why: "only the tools for models know how models are spoken to",
	},
}

// reapers says who may start a process, or wait for any.
var reapers = useRule{
	names: map[string][]string{
		"os":                    {"StartProcess"},
		"os/exec":               {"Command", "CommandContext", "Cmd"}, // LookPath starts nothing
		"syscall":               {"ForkExec", "StartProcess", "Wait4"},
		"golang.org/x/sys/unix": {"Wait4", "Waitid"},
	},
	from: []string{"client", "internal/cli", "internal/doctor", "internal/holder", "internal/process", "internal/tour", "internal/trltest", "packaging/dist"}, // a client, the command line and the tour may start a daemon; the doctor and what makes a release are in none
	why:  "there is one reaper: a second waiter would steal statuses, and a child it does not know could not be killed",
}

// vague are names that say nothing of what is inside, and `runtime`, which
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
	// A rule about something that has moved away guards nothing.
	for _, dir := range ruledDirs() {
		if !slices.ContainsFunc(files, func(f file) bool { return within(f.dir, dir) }) {
			t.Errorf("there is a rule about %s, which does not exist", dir)
		}
	}
}

type importRule struct {
	about   string
	only    []string // of this module it imports nothing but these; nil: anything
	never   []string // of this module it does not import these
	bare    bool     // of others it imports the standard library alone
	but     []string // and these
	without []string // of others it does not import these; net/http is not a part of net
	why     string
}

type doorRule struct {
	about string
	from  []string
	why   string
}

type useRule struct {
	names map[string][]string // by import path
	from  []string
	why   string
}

// file is what the rules look at in one Go file that is not a test.
type file struct {
	dir     string // from the module's root
	name    string // of the file
	pkg     string // name of its package
	doc     string // package comment
	imports []imported
	uses    []string // "import/path.Name" for each qualified name
}

type imported struct {
	path string // directory in this module, or import path
	ours bool   // of this module
}

func (f file) String() string { return path.Join(f.dir, f.name) }

// load parses every Go file of a module that is not a test.
func load(tree fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f, err := read(syntax)
		f.dir, f.name = path.Dir(name), base
		files = append(files, f)
		return err
	})
	return files, err
}

func read(syntax *ast.File) (file, error) {
	f := file{pkg: syntax.Name.Name, doc: syntax.Doc.Text()}
	local := map[string]string{} // name in this file → import path
	for _, spec := range syntax.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		name := path.Base(full)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			// Its names can't be told from the package's own.
			for _, watched := range reapers.names[full] {
				f.uses = append(f.uses, full+"."+watched)
			}
		}
		local[name] = full
		inside, ours := strings.CutPrefix(full, module+"/")
		f.imports = append(f.imports, imported{path: inside, ours: ours})
	}
	ast.Inspect(syntax, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if left, ok := selector.X.(*ast.Ident); ok && local[left.Name] != "" {
				f.uses = append(f.uses, local[left.Name]+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return f, nil
}

// check returns one line for each breach of each rule.
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
			for _, door := range doors {
				if i.ours && within(i.path, door.about) && !within(f.dir, door.about) && !anyWithin(f.dir, door.from) {
					report(f, "imports "+i.path, door.why)
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
			report(f, "is in a package named "+f.pkg, "a name must say what is inside")
		}
	}
	for dir := range dirs {
		if !slices.ContainsFunc(files, func(f file) bool { return f.dir == dir && documents(f) }) {
			violations = append(violations, dir+" has no package comment: a reader begins there")
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

// standard reports whether an import path is the standard library's: its first
// element is no host name.
func standard(full string) bool {
	first, _, _ := strings.Cut(full, "/")
	return !strings.Contains(first, ".")
}

// documents reports whether the file has a package comment in the form that
// documentation tools expect.
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

// ruledDirs are the directories of this module that the rules name.
func ruledDirs() []string {
	dirs := slices.Clone(reapers.from)
	for _, rule := range imports {
		dirs = append(append(dirs, rule.about), rule.only...)
	}
	for _, door := range doors {
		dirs = append(append(dirs, door.about), door.from...)
	}
	for _, library := range libraries {
		dirs = append(dirs, library.from...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
