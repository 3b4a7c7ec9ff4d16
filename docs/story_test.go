package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// TestStories types what the documents show, and compares what comes with what
// they say.
//
// The blocks of one document are one story, told in order in one bash with a
// home of its own and `trl` on its PATH. In a block of console a line that
// begins with "$ " is typed, with those after it as long as the shell would ask
// for more; the lines up to the next are its output. Programs in Python are run
// with the client of this tree. A document that starts no daemon finds one.
//
// In output … stands for anything, within a line or, alone on one, for any
// lines; ids, times, durations and the width of columns may differ.
func TestStories(t *testing.T) {
	documents, _ := repository(t)
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		steps := told(t, name, documents[name])
		if len(steps) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, name, steps)
		})
	}
}

// step is a command of a story, and what it prints; any means that the page does not say.
type step struct {
	line    int
	command string
	prints  string
	any     bool
}

func told(t *testing.T, name, text string) []step {
	var steps []step
	for _, b := range blocks(text) {
		switch {
		case b.mark.kind == itPrints && len(steps) > 0:
			last := &steps[len(steps)-1]
			last.prints, last.any = b.text, false
		case b.mark.kind != "":
		case b.language == "console":
			typed, err := typedIn(b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			steps = append(steps, typed...)
		case b.language == "python":
			// In a file, for a program may read its own input.
			file := fmt.Sprintf("line%d.py", b.line)
			steps = append(steps, step{
				line: b.line, any: true,
				command: "cat >" + file + " <<'END-OF-PROGRAM'\n" + b.text + "END-OF-PROGRAM\npython3 -W error " + file + " || echo " + "'" + failed + "'",
			})
		}
	}
	return steps
}

// failed is what a program that failed is said to print.
const failed = "the program failed"

const prompt = "$ "

// typedIn cuts a block of console into what is typed and what is printed.
func typedIn(b block) ([]step, error) {
	var steps []step
	more := false // the command goes on
	for i, line := range strings.SplitAfter(b.text, "\n") {
		if line == "" {
			continue
		}
		command, typed := strings.CutPrefix(line, prompt)
		switch {
		case more:
			last := &steps[len(steps)-1]
			last.command += line
			more = unfinished(last.command)
		case typed:
			steps = append(steps, step{line: b.line + 1 + i, command: command})
			more = unfinished(command)
		case len(steps) == 0:
			return nil, fmt.Errorf("line %d: the block begins with no command", b.line)
		default:
			steps[len(steps)-1].prints += line
		}
	}
	if more {
		return nil, fmt.Errorf("line %d: the last command does not end", b.line)
	}
	return steps, nil
}

var endMissing = regexp.MustCompile(`unexpected (EOF|end of file)|here-document .* delimited by end-of-file`)

// unfinished says whether a shell would ask for another line.
func unfinished(command string) bool {
	if strings.HasSuffix(command, "\\\n") {
		return true
	}
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(command)
	check.Env = append(os.Environ(), "LC_ALL=C")
	out, _ := check.CombinedOutput() // other errors show when it is run
	return endMissing.Match(out)
}

// patience is how long the story of one document may take, on a machine that
// is busy with others.
const patience = 3 * trltest.Patience

// separator stands before the output of each step.
const separator = "\x1e"

func tell(t *testing.T, name string, steps []step) {
	dir, env := home(t)
	if !slices.ContainsFunc(steps, func(s step) bool { return strings.Contains(s.command, "trl serve") }) {
		d, err := trltest.Start(trltest.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Kill)
		env = append(env, "TRL_SOCKET="+d.Socket)
	}
	script := filepath.Join(dir, "story.sh")
	own := ownNumbers(t, scriptOf(steps))
	if err := os.WriteFile(script, []byte(own.instead(scriptOf(steps))), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", script)
	bash.Dir, bash.Env = filepath.Join(dir, "home"), env
	var printed bytes.Buffer
	bash.Stdout, bash.Stderr = &printed, &printed
	bash.WaitDelay = time.Second // what it left running has its output open
	err := bash.Run()
	if ctx.Err() != nil {
		t.Errorf("%s: not told within %s", name, patience)
	}
	outputs := strings.Split(own.shown(printed.String()), separator)[1:]
	for i, s := range steps {
		if i >= len(outputs) {
			t.Errorf("%s:%d: not run: %v\n%s", name, s.line, err, s.command)
			break
		}
		if s.any && strings.Contains(outputs[i], failed) || !s.any && !matches(s.prints, outputs[i]) {
			t.Errorf("%s:%d: %sprints\n%s\ninstead of\n%s", name, s.line, s.command, outputs[i], s.prints)
		}
	}
	leavesNothing(t, "HOME="+filepath.Join(dir, "home"))
}

// shownPort is the one in the documents. A story has another, for two may be
// told at once.
const shownPort = "7040"

// sleeps are the lengths by which the documents find their own processes: four
// digits, or a fraction that no author would write.
var sleeps = regexp.MustCompile(`\bsleep (\d{4}|\d\.0\d)\b`)

// numbers maps those in a document to those in its story. Others may tell the
// same story on this machine.
type numbers map[string]string

func ownNumbers(t *testing.T, script string) numbers {
	own := numbers{shownPort: freePort(t)}
	for _, match := range sleeps.FindAllStringSubmatch(script, -1) {
		if shown := match[1]; own[shown] == "" {
			own[shown] = trltest.Token()
			if whole, fraction, ok := strings.Cut(shown, "."); ok {
				own[shown] = whole + "." + fraction + trltest.Token()
			}
		}
	}
	return own
}

// number is a whole one: no part of it is taken for another.
var number = regexp.MustCompile(`\b\d+(\.\d+)?\b`)

func (n numbers) instead(text string) string {
	return exchanged(text, n)
}

func (n numbers) shown(text string) string {
	back := numbers{}
	for shown, own := range n {
		back[own] = shown
	}
	return exchanged(text, back)
}

func exchanged(text string, others numbers) string {
	return number.ReplaceAllStringFunc(text, func(old string) string {
		if other, ok := others[old]; ok {
			return other
		}
		return old
	})
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// leavesNothing waits until no process of a story is there, and ends those that
// do not end by themselves.
func leavesNothing(t *testing.T, variable string) {
	const moment = 30 * time.Second                                               // some times what a daemon gives its sessions to end
	for deadline := time.Now().Add(moment); ; time.Sleep(20 * time.Millisecond) { // poll: until all have ended
		left := trltest.WithEnv(variable)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("processes are left behind: %v", left)
			for _, p := range left {
				_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
			}
			return
		}
	}
}

// home makes a directory for a story, and its environment.
func home(t *testing.T) (dir string, env []string) {
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sdk, err := filepath.Abs(filepath.Join(root, "sdk", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range trltest.Environ(dir) {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			entry = "PATH=" + filepath.Dir(binary(t)) + string(os.PathListSeparator) + path
		}
		env = append(env, entry)
	}
	return dir, append(env, "PYTHONPATH="+sdk, "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8", "TERM=dumb", "USER=you")
}

func binary(t *testing.T) string {
	path, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// scriptOf is the story as a script. Its commands read nothing, as those of a
// person who types no more.
func scriptOf(steps []step) string {
	var script strings.Builder
	// The status of a command is there for the next one.
	script.WriteString("step() { local status=$?; printf '" + separator + "'; return $status; }\n" +
		"serving() { for try in {1..3000}; do trl info >/dev/null 2>&1 && return; sleep 0.02; done; }\nexec </dev/null\n")
	for _, s := range steps {
		script.WriteString("step\n" + s.command)
		if !strings.HasSuffix(s.command, "\n") {
			script.WriteString("\n")
		}
		// A person who types the next command is slower than a daemon that starts.
		if command := strings.TrimSpace(s.command); strings.Contains(command, "trl serve") && strings.HasSuffix(command, "&") {
			script.WriteString("serving\n")
		}
	}
	// The last daemon may be left running for the reader.
	script.WriteString("step\ntrl stop >/dev/null 2>&1\n")
	return script.String()
}

// varies is what is different each time and says nothing.
var varies = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b([se]|st)-[a-z0-9]{10}\b`), "$1-ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "DURATION"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m)[ \r]+$`), ""},
	// A copy of a shell that is being replaced by a newer one is there for a moment.
	{regexp.MustCompile(`(?m)^(.* standby .*\n)+`), "… standby …\n"},
}

func settled(text string) string {
	for _, v := range varies {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return strings.TrimRight(text, "\n")
}

// matches compares what is shown with what was printed.
func matches(shown, printed string) bool {
	pattern := regexp.QuoteMeta(settled(shown))
	pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllString(pattern, `(?s:.*)`)
	pattern = strings.ReplaceAll(pattern, "…", `.*`)
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(settled(printed))
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "a", true},
		{"a\n", "b\n", false},
		{"", "a\n", false},
		{"a\n", "", false},
		{"a.c\n", "abc\n", false},
		{"pid …, up\n", "pid 12, up\n", true},
		{"pid …\n", "pid 1\n2\n", false},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"a\n…\nz\n", "a\nb\nc\n", false},
		{"s-ob2sihehvq  idle\n", "s-0000000000 idle\n", true},
		{"s-ob2sihehvq  idle\n", "e-0000000000 idle\n", false},
		{"at 2026-11-15 03:33:51\n", "at 2027-01-01 00:00:00\n", true},
		{"after 1s\n", "after 1.2s\n", true},
		{"after 1s\n", "after all\n", false},
		{"… shell sh\n… standby sh …\n", "1 shell sh\n2 standby sh -c\n3 standby sh -c\n", true},
		{"… shell sh\n… standby sh …\n", "1 shell sh\n", false},
	} {
		if got := matches(c.shown, c.printed); got != c.want {
			t.Errorf("%q for %q: %t", c.printed, c.shown, got)
		}
	}
}

func TestOwnNumbers(t *testing.T) {
	own := ownNumbers(t, "sleep 4322 & sleep 2.01; sleep 60; curl localhost:7040")
	if len(own) != 3 || own["4322"] == "" || own["2.01"] == "" || own[shownPort] == "" {
		t.Errorf("a story has of its own %v", own)
	}
	own = numbers{"4322": "9996543", "2": "8888765", "2.01": "2.017654321", "7040": "6543"}
	const (
		text = "sleep 4322 & ps | grep 'sleep 4322'; sleep 2; sleep 2.01; sleep 60; echo 43221 6543a; curl localhost:7040"
		want = "sleep 9996543 & ps | grep 'sleep 9996543'; sleep 8888765; sleep 2.017654321; sleep 60; echo 43221 6543a; curl localhost:6543"
	)
	if got := own.instead(text); got != want {
		t.Errorf("it is %q", got)
	}
	if back := own.shown(want); back != text {
		t.Errorf("back it is %q", back)
	}
}

func TestTypedIn(t *testing.T) {
	steps, err := typedIn(block{text: "$ echo 'a\nb'\na\nb\n$ x=1 \\\n  y=2\n$ cat <<END\n$ no\nEND\n$ no\n"})
	want := []step{
		{line: 1, command: "echo 'a\nb'\n", prints: "a\nb\n"},
		{line: 5, command: "x=1 \\\n  y=2\n"},
		{line: 7, command: "cat <<END\n$ no\nEND\n"},
		{line: 10, command: "no\n"},
	}
	if err != nil || !slices.Equal(steps, want) {
		t.Errorf("%+v, %v", steps, err)
	}
	for _, text := range []string{"no command\n", "$ echo 'a\n"} {
		if _, err := typedIn(block{text: text}); err == nil {
			t.Errorf("%q is taken for a story", text)
		}
	}
}
