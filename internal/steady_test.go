package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// A failing test must mean that the code is wrong, even on a busy or shared machine.
// The rules in this file forbid patterns that have caused failures there although the
// code was right. A test waits for a condition where it can (trltest.Eventually),
// blocks a command at a known point with trltest.Gate, and repeats measurements of
// time (trltest.Undisturbed).

// sleepMarks are the allowed first words of the comment after a time.Sleep in a test.
var sleepMarks = map[string]string{
	"poll":    "a pause between two checks of a condition, in a bounded loop",
	"absence": "the test waits to see that nothing happens",
	"pace":    "the time itself is tested, or the clock is synctest's",
}

var sleepMark = regexp.MustCompile(`^// (\w+): \S`)

const (
	whySleep   = "a sleep is not synchronisation: wait for the condition, or explain the sleep in a comment on the same line: // poll: …, // absence: … or // pace: …"
	whyPoll    = "a poll must be in a loop"
	whyMachine = "other tests may run the same command on this machine: find a process by the test's own token, such as $TOKEN"
	whyForever = "a loop in a shell must end even if its condition never becomes true: count, and compare with -gt"
)

// ownTokens matches text that makes a command line unique to one test: the stories'
// number and directories, the torture table's number, a variable of a program.
var ownTokens = regexp.MustCompile(`\$\{?(TOKEN|WORK|TMPDIR)\b|\{\{N\}\}|"\s*\+|\{(name|seconds)\}`)

// storyNumber matches a number that docs/story_test.go replaces.
var storyNumber = regexp.MustCompile(`'sleep (\d{4}|\d\.0\d)'`)

var (
	// byCommandLine matches a search in the command lines of all processes.
	byCommandLine = regexp.MustCompile(`\bpgrep\b["', ]+-\w*f`)
	// killsByName matches commands that also kill other processes of the same name.
	killsByName = regexp.MustCompile(`\b(pkill|killall)\b["', ]+-?\w`)
	// forever matches an unbounded loop that waits for a file or a process.
	forever = regexp.MustCompile(`\b(until|while) (! )?(\[|test |pgrep )[^;]*; do sleep`)
)

// steadiness returns one line for each violation of these rules in a file.
func steadiness(name, text string) []string {
	var found []string
	report := func(line int, why string) { found = append(found, fmt.Sprintf("%s:%d: %s", name, line, why)) }
	story, document := path.Ext(name) == ".txtar", path.Ext(name) == ".md"
	for i, line := range strings.Split(text, "\n") {
		own := ownTokens.MatchString(line) || document && storyNumber.MatchString(line)
		if killsByName.MatchString(line) || byCommandLine.MatchString(line) && !own {
			report(i+1, whyMachine)
		}
		if (story || strings.HasSuffix(name, "_test.go")) && forever.MatchString(line) && !strings.Contains(line, "-gt") {
			report(i+1, whyForever)
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		for line, why := range sleeps(name, text) {
			report(line, why)
		}
	}
	slices.Sort(found)
	return found
}

// sleeps returns the violations in calls of time.Sleep, by line.
func sleeps(name, text string) map[int]string {
	wrong := map[int]string{}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return map[int]string{1: err.Error()}
	}
	local := ""
	for _, spec := range syntax.Imports {
		if full, err := strconv.Unquote(spec.Path.Value); err == nil && full == "time" {
			local = "time"
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	comments := map[int]string{} // by line
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			comments[set.Position(c.Pos()).Line] = c.Text
		}
	}
	var loops []ast.Node
	ast.Inspect(syntax, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			loops = append(loops, node)
		}
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Sleep" {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); !ok || x.Name != local {
			return true
		}
		line := set.Position(selector.Pos()).Line
		mark := sleepMark.FindStringSubmatch(comments[line])
		switch {
		case len(mark) == 0 || sleepMarks[mark[1]] == "":
			wrong[line] = whySleep
		case mark[1] == "poll" && !slices.ContainsFunc(loops, func(l ast.Node) bool { return l.Pos() <= selector.Pos() && selector.Pos() < l.End() }):
			wrong[line] = whyPoll
		}
		return true
	})
	return wrong
}

// ofTests reports whether a file is a test, or is run by tests.
func ofTests(name string) bool {
	switch {
	case name == "internal/steady_test.go": // it violates the rules on purpose
		return false
	case strings.HasSuffix(name, "_test.go"), path.Ext(name) == ".txtar", name == "conformance/torture.json":
		return true
	case strings.HasPrefix(name, "sdk/"):
		return path.Ext(name) == ".py" || path.Ext(name) == ".mjs"
	}
	return path.Ext(name) == ".md" // a test runs the commands in documents
}

// unsteady returns the violations in a tree.
func unsteady(tree fs.FS) (found []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := path.Base(name); entry.IsDir() {
			if name != "." && (base[0] == '.' || base == "node_modules" || base == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if !ofTests(name) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err == nil {
			found = append(found, steadiness(name, string(text))...)
		}
		return err
	})
	return found, err
}

func TestTestsAreSteady(t *testing.T) {
	found, err := unsteady(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range found {
		t.Error(violation)
	}
}

func TestUnsteadyTestsAreNoticed(t *testing.T) {
	test := func(body string) string {
		return "package p\n\nimport \"time\"\n\nfunc f() {\n" + body + "\n}\n"
	}
	for _, c := range []struct{ name, text, why string }{
		{"a_test.go", test("time.Sleep(1)"), whySleep},
		{"a_test.go", test("for { time.Sleep(1) }"), whySleep},
		{"a_test.go", test("time.Sleep(1) // it takes a moment"), whySleep},
		{"a_test.go", test("time.Sleep(1) // poll:"), whySleep},
		{"a_test.go", test("time.Sleep(1) // poll: until it is there"), whyPoll},
		{"a_test.go", strings.Replace(test("other.Sleep(1)"), "\"time\"", "other \"time\"", 1), whySleep},
		{"a_test.go", test("defer time.AfterFunc(1, func() { time.Sleep(1) })"), whySleep},
		{"a_test.go", test("for { time.Sleep(1) // poll: until it is there\n}"), ""},
		{"a_test.go", test("for ; ; time.Sleep(1) { // poll: until it is there\n}"), ""},
		{"a_test.go", test("time.Sleep(1) // absence: no client hangs up"), ""},
		{"a_test.go", test("time.Sleep(1) // pace: the clock is the bubble's"), ""},
		{"a_test.go", test("other.Sleep(1)"), ""},
		{"a.go", test("time.Sleep(1)"), ""}, // not a test
		{"a_test.go", test("run(\"pgrep\", \"-f\", \"sleep 1234\")"), whyMachine},
		{"a_test.go", test("run(\"pgrep\", \"-f\", \"sleep \"+token)"), ""},
		{"a_test.go", test("run(\"pgrep\", \"-P\", \"17\")"), ""},
		{"a_test.go", test("run(`until [ -e go ]; do sleep 0.1; done`)"), whyForever},
		{"testdata/a.txtar", "! exec pgrep -f 'sleep 9876[3]'\n", whyMachine},
		{"testdata/a.txtar", "until '^3$' pgrep -fc 'sleep 98763'\n", whyMachine},
		{"testdata/a.txtar", "exec pkill -f trl\n", whyMachine},
		{"testdata/a.txtar", "exec killall trl\n", whyMachine},
		{"testdata/a.txtar", "! exec pgrep -fx 'sleep '${TOKEN}'3'\n! exec pgrep -f $TMPDIR/quickstart-\n", ""},
		{"testdata/a.txtar", "exec sh -c 'until [ -e go ]; do sleep 0.02; done'\n", whyForever},
		{"testdata/a.txtar", "until pgrep -f $TOKEN >/dev/null; do sleep 0.02; done\n", whyForever},
		{"testdata/a.txtar", "exec sh -c 'until [ -e go ] || [ $((n+=1)) -gt 100 ]; do sleep 0.02; done'\n", ""},
		{"testdata/a.txtar", "exec trl run -- 'while :; do sleep 1; done'\n", ""}, // the story stops it
		{"sdk/python/tests/a.py", "run(['pgrep', '-fc', 'sleep 5'])\n", whyMachine},
		{"docs/a.md", "$ pgrep -f 'sleep 60'\n", whyMachine},
		{"docs/a.md", "$ pgrep -fx 'sleep 4322'\n", ""},
		{"conformance/torture.json", "pgrep -fc 'sleep 424[6]'", whyMachine},
		{"conformance/torture.json", "pgrep -fc 'sleep 424[6].{{N}}'", ""},
	} {
		found, err := unsteady(fstest.MapFS{c.name: &fstest.MapFile{Data: []byte(c.text)}})
		if err != nil {
			t.Fatal(err)
		}
		noticed := len(found) == 1 && strings.Contains(found[0], c.why)
		if (c.why == "") != (len(found) == 0) || c.why != "" && !noticed {
			t.Errorf("%s with %q: %q, want %q", c.name, c.text, found, c.why)
		}
	}
}
