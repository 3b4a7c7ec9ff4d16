package mcp_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

var update = flag.Bool("update", false, "update the golden replies that differ")

// maxReply is the maximum size of a reply on the wire, text and structured content
// together: what a model can read in one step.
const maxReply = 16 << 10

// replies are real commands, and the lines that a person would look for in the
// replies. The whole replies are in testdata/replies.
var replies = []struct {
	name  string
	files map[string]string
	args  args
	then  []step // calls that follow
	want  []string
}{
	{
		name: "go-test", files: goSuite(),
		args: args{"command": "go test -v ./..."},
		want: []string{"exit 1", "--- FAIL: TestTotal/case_617", "total(617) = 618, want 617", "FAIL"},
	},
	{
		name: "python-unittest", files: pythonSuite(),
		args: args{"command": "python3 -m unittest -v suite 2>&1"},
		want: []string{"exit 1", "AssertionError: 'kaputt' != 'fine'", "FAILED (failures=1)"},
	},
	{
		name: "log-200MB",
		args: args{"command": `yes '2026-11-15 INFO request served in 3 ms by worker 7' | head -c 100000000; echo; echo '2026-11-15 ERROR disk sda1 is full'; yes '2026-11-15 INFO request served in 4 ms by worker 8' | head -c 100000000`},
		want: []string{"exit 0", "ERROR disk sda1 is full", "left out"},
	},
	{
		name: "log-200MB-search",
		args: args{"command": `yes '2026-11-15 INFO request served in 3 ms by worker 7' | head -c 180000000; echo; echo 'user 4711 logged in'; yes x | head -c 20000000`},
		then: []step{{"output", args{"search": "user [0-9]+ logged in", "context": 1}}},
		want: []string{"user 4711 logged in", "1 line matches"},
	},
	{
		name: "npm-install", files: map[string]string{
			"left/package.json": `{"name":"left","version":"1.0.0"}`,
			"package.json":      `{"name":"app","version":"1.0.0","dependencies":{"left":"file:left"}}`,
		},
		args: args{"command": "npm install --no-audit --no-fund --offline --no-update-notifier"},
		want: []string{"exit 0", "added 1 package"},
	},
	{
		name: "npm-missing-script", files: map[string]string{"package.json": `{"name":"app","version":"1.0.0"}`},
		args: args{"command": "npm run --offline --no-update-notifier build"},
		want: []string{"exit 1", `Missing script: "build"`},
	},
	{
		name: "gcc-error", files: map[string]string{"main.c": "#include <stdio.h>\n\nint main(void) {\n\tprintf(\"%d\\n\", cuont);\n\treturn 0;\n}\n"},
		args: args{"command": "gcc -fdiagnostics-color=always -o main main.c"},
		want: []string{"exit 1", "main.c:4:", "cuont", "undeclared"},
	},
	{
		name: "go-build-error", files: map[string]string{"go.mod": "module m\n\ngo 1.24\n", "main.go": "package main\n\nfunc main() { println(answer) }\n"},
		args: args{"command": "go build ./..."},
		want: []string{"exit 1", "main.go:3:23: undefined: answer"},
	},
	{
		name: "make-k", files: map[string]string{"Makefile": makefile()},
		args: args{"command": "make -k all 2>&1"},
		want: []string{"exit 2", "cannot compile unit 137: out of register space", "left out"},
	},
	{
		name: "progress-bar", files: map[string]string{"bar.py": "import sys\nfor i in range(20001):\n    sys.stdout.write('\\r\\033[K\\033[36mdownloading\\033[0m %3d%% [%-20s]' % (i // 200, '#' * (i // 1000)))\nprint('\\ninstalled 20000 packages')\n"},
		args: args{"command": "python3 bar.py"},
		want: []string{"exit 0", "\ndownloading 100% [####################]\n", "installed 20000 packages"},
	},
	{
		name: "curl-progress",
		args: args{"command": `head -c 3000000 /dev/zero > big; curl -o copy "file://$PWD/big" 2>&1; cmp big copy && echo same`},
		want: []string{"exit 0", "% Total", "same"},
	},
	{
		name: "git-color", files: map[string]string{"a.txt": "one\n"},
		args: args{"command": `export GIT_AUTHOR_DATE=2026-11-15T00:00:00Z GIT_COMMITTER_DATE=2026-11-15T00:00:00Z; git -c init.defaultBranch=main init -q . && git -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m 'Say hello' && echo two > a.txt && git add a.txt && git -c color.ui=always diff --cached && git -c color.ui=always log --oneline`},
		want: []string{"exit 0", "+two", "Say hello"},
	},
	{
		name: "binary",
		args: args{"command": `printf '\177ELF\002\001\001\000'; head -c 100000 /dev/zero`},
		want: []string{"exit 0", "7f 45 4c 46", "not text", "99,752 bytes left out"},
	},
	{
		name: "yes", args: args{"command": "yes | head -c 5000000; echo ready"},
		want: []string{"exit 0", "y\n[trl: the same line ", "more times]", "left out", "ready"},
	},
	{
		name: "broken-utf8",
		args: args{"command": `printf 'caf\351 and caf\303\251\n'`},
		want: []string{"exit 0", "caf\uFFFD and café"},
	},
	{
		name: "one-long-line", files: map[string]string{"line.py": "print('{\"items\": [' + ', '.join(str(i) for i in range(700000)) + ']}')\n"},
		args: args{"command": "python3 line.py"},
		want: []string{"exit 0", `{"items": [0, 1, 2`, "699999]}", "left out"},
	},
	{
		name: "hung-prompt",
		args: args{"command": `read -p 'Overwrite config.toml? [y/N] ' answer`, "tty": true},
		want: []string{"running", "Overwrite config.toml? [y/N]", "waits for input", `input {"exec": `},
	},
	{
		name: "password",
		args: args{"command": "openssl enc -aes-256-cbc -pbkdf2 -in /dev/null -out secret.enc", "tty": true},
		want: []string{"running", "encryption password", "waits for a password"},
	},
	{
		name: "background-server",
		args: args{"command": "python3 -u -m http.server --bind 127.0.0.1 PORT & "},
		then: []step{{"output", args{"pattern": "Serving HTTP"}}},
		want: []string{"exit 0", "left running", "http.server", "matched at offset 0: Serving HTTP on 127.0.0.1 port"},
	},
	{
		name: "still-running", args: args{"command": "for i in 1 2 3; do echo step $i of 500; done; sleep 1000", "wait_s": 1},
		want: []string{"running for", "step 3 of 500", "it is still running"},
	},
	{
		name: "timed-out", args: args{"command": "echo connecting to db.example...; sleep 1000", "timeout_s": 1},
		want: []string{"timed out and stopped after", "connecting to db.example"},
	},
	{
		name: "crash", args: args{"command": `{ python3 -c 'import os, signal; print("about to crash", flush=True); os.kill(os.getpid(), signal.SIGSEGV)'; } 2>&1`},
		want: []string{"exit 139 (SIGSEGV)", "about to crash"},
	},
	{
		name: "traceback", files: map[string]string{"deep.py": "def f(n):\n    return 1 / n if n == 0 else f(n - 1)\n\nf(900)\n"},
		args: args{"command": "python3 deep.py"},
		want: []string{"exit 1", "ZeroDivisionError: division by zero"},
	},
	{
		name: "not-found", args: args{"command": "pytset -q"},
		want: []string{"exit 127", "pytset: command not found"},
	},
	{
		name: "exit", args: args{"command": "cd /usr && exit 3"},
		want: []string{"exit 3", "the session continues", "/usr"},
	},
	{
		name: "editor", args: args{"command": "vim.tiny -u NONE notes.txt", "tty": true}, files: map[string]string{"notes.txt": "remember the milk\n"},
		then: []step{{"screen", args{}}},
		want: []string{"remember the milk", "a program uses the whole screen", "waits for input"},
	},
}

// step is a call that follows; exec is added to its arguments.
type step struct {
	tool string
	args args
}

func goSuite() map[string]string {
	return map[string]string{
		"go.mod": "module suite\n\ngo 1.24\n",
		"a_test.go": `package suite

import (
	"fmt"
	"testing"
)

func total(n int) int {
	if n == 617 {
		return n + 1
	}
	return n
}

func TestTotal(t *testing.T) {
	for i := range 2000 {
		t.Run(fmt.Sprintf("case_%d", i), func(t *testing.T) {
			if got := total(i); got != i {
				t.Errorf("total(%d) = %d, want %d", i, got, i)
			}
		})
	}
}
`,
	}
}

func pythonSuite() map[string]string {
	return map[string]string{"suite.py": `import unittest

class Suite(unittest.TestCase):
    pass

def make(i):
    def test(self):
        self.assertEqual('kaputt' if i == 123 else 'fine', 'fine')
    return test

for i in range(800):
    setattr(Suite, 'test_%03d' % i, make(i))
`}
}

func makefile() string {
	var b strings.Builder
	b.WriteString("all:")
	for i := range 400 {
		fmt.Fprintf(&b, " u%d", i)
	}
	for i := range 400 {
		fmt.Fprintf(&b, "\nu%d:\n\t@echo compiling unit %d of 400 with all the optimisations there are", i, i)
		if i == 137 {
			b.WriteString("\n\t@echo 'error: cannot compile unit 137: out of register space' >&2; exit 1")
		}
	}
	return b.String() + "\n"
}

func TestReplies(t *testing.T) {
	daemon := startDaemon(t)
	for _, c := range replies {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				transport: overStdio, daemon: daemon, args: []string{"--scope", c.name, "--env", "GOFLAGS=-mod=mod -buildvcs=false", "--env", "GOCACHE", "--env", "GOPATH"},
				env: []string{"GOCACHE=" + goCache(), "GOPATH=" + filepath.Join(goCache(), "path")},
			})
			for name, text := range c.files {
				r.write(name, text)
			}
			port := freePort(t)
			command := strings.ReplaceAll(c.args["command"].(string), "PORT", port)
			a := args{"label": c.name}
			for name, value := range c.args {
				a[name] = value
			}
			a["command"] = command
			got := r.ask("run", a)
			text, bytes := got.text, []int{got.bytes}
			r.checkAgainstJournal(got)
			if _, stopped := continuation(text); stopped {
				// On a busy machine a scan may reach its time limit, and the reply
				// says so. The call it suggests must find the rest.
				if len(c.then) == 0 {
					all, _ := r.followContinuations(got)
					r.contains(all, c.want...)
					return
				}
				text = stoppedNote.ReplaceAllString(text, "")
			}
			whole := true // no call reached its time limit
			for _, s := range c.then {
				if s.tool != "screen" {
					s.args["exec"] = got.exec()
				}
				got = r.ask(s.tool, s.args)
				all, stops := r.followContinuations(got)
				whole = whole && stops == 0
				text, bytes = text+"\n\n"+all, append(bytes, got.bytes)
			}
			r.contains(text, c.want...)
			for _, n := range bytes {
				if n > maxReply {
					t.Errorf("a reply of %d bytes", n)
				}
			}
			if whole {
				compare(t, c.name, r.normalize(text, port))
			}
			for _, session := range []string{"main", "terminal"} {
				r.call("stop", args{"session": session})
			}
		})
	}
}

var stoppedNote = regexp.MustCompile(`\n\[trl: [^\n]* stopped after \S+, at offset \d+ of \d+; output (\{[^\n]*\}) continues\]`)

// continuation returns the arguments of the call that a reply suggests because a
// search reached its time limit.
func continuation(text string) (a args, stopped bool) {
	match := stoppedNote.FindStringSubmatch(text)
	if match == nil {
		return nil, false
	}
	return a, json.Unmarshal([]byte(match[1]), &a) == nil
}

// followContinuations makes the calls that replies suggest until no search reaches
// its time limit, and returns all replies and how many did.
func (r *rig) followContinuations(got answer) (all string, stops int) {
	r.Helper()
	all = got.text
	for ; stops < 50; stops++ {
		next, stopped := continuation(got.text)
		if !stopped {
			return all, stops
		}
		got = r.ask("output", next)
		all += "\n\n" + got.text
	}
	r.Fatalf("the search keeps stopping: %s", got.text)
	return all, stops
}

// goCache returns the build cache of the tests, so that nothing is rebuilt.
func goCache() string {
	if dir := os.Getenv("GOCACHE"); dir != "" {
		return dir
	}
	dir, _ := os.UserCacheDir()
	return filepath.Join(dir, "go-build")
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// sameLine matches the note in place of repeats of a line.
var sameLine = regexp.MustCompile(`^\[trl: the same line ([\d,]+) more times\]$`)

// unfold restores the repeats of folded lines.
func unfold(text string) string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		note := sameLine.FindStringSubmatch(line)
		if note == nil {
			all = append(all, line)
			continue
		}
		times, _ := strconv.Atoi(strings.ReplaceAll(note[1], ",", ""))
		for range times {
			all = append(all, all[len(all)-1])
		}
	}
	return strings.Join(all, "\n")
}

// leftOutNote matches the note in place of output that is left out.
var leftOutNote = regexp.MustCompile(`\n\[trl: [\d,]+ bytes left out, .*\]\n`)

// checkAgainstJournal compares a reply with the journal: it must show exactly the
// output before and after the part that it says is left out.
func (r *rig) checkAgainstJournal(a answer) {
	r.Helper()
	if _, binary := a.fields["binary"]; binary || strings.Contains(a.text, "uses the whole screen") {
		return
	}
	size := int64(a.fields["size"].(float64))
	output := a.fields["output"].(string)
	cuts, _ := a.fields["left_out"].([]any)
	if len(cuts) == 0 {
		if want := r.plain(a.exec(), 0, size); unfold(output) != want {
			r.Errorf("the reply claims to be complete: got\n%q\nwant\n%q", output, want)
		}
		return
	}
	cut := cuts[0].(map[string]any)
	from, to := int64(cut["from"].(float64)), int64(cut["to"].(float64))
	var head, note, tail string
	at := leftOutNote.FindStringIndex(output)
	if at != nil {
		head, note, tail = output[:at[0]], output[at[0]:at[1]], output[at[1]:]
	}
	if at == nil || !strings.Contains(strings.ReplaceAll(note, ",", ""), fmt.Sprintf("%d bytes left out from offset %d to %d", to-from, from, to)) {
		r.Fatalf("no note on the %d bytes left out: %q", to-from, note)
	}
	if want := r.plain(a.exec(), 0, from); unfold(head) != want {
		r.Errorf("before the cut at %d: got\n%q\nwant\n%q", from, head, want)
	}
	if want := r.plain(a.exec(), to, size); unfold(tail) != want {
		r.Errorf("after the cut at %d: got\n%q\nwant\n%q", to, tail, want)
	}
}

// plain returns a part of a journal as text, read from the daemon itself.
func (r *rig) plain(exec string, from, to int64) string {
	r.Helper()
	c := r.direct()
	var raw []byte
	for from < to {
		most := to - from
		got, err := c.Output(r.Context(), api.ExecOutputParams{ExecID: exec, From: from, MaxBytes: &most})
		if err != nil {
			r.Fatal(err)
		}
		for _, chunk := range got.Chunks {
			b, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
			if err != nil {
				r.Fatal(err)
			}
			raw = append(raw, b...)
		}
		from = got.Next
	}
	return bashScript.ReplaceAllString(strings.TrimRight(string(vt.PlainText(raw)), "\n"), "bash: line")
}

// bashScript matches the path that bash shows of a command's script.
var bashScript = regexp.MustCompile(`(?m)^/proc/\d+/fd/\d+: line`)

// normalize replaces the parts of a text that differ from run to run.
func (r *rig) normalize(text, port string) string {
	for _, s := range []struct{ like, become string }{
		{regexp.QuoteMeta(r.work), "$$WORK"},
		{`\b([es])-[0-9a-z]{10}\b`, "$1-…"},
		{`\b(in|for|after) [0-9.]+(ms|s)\b`, "$1 …"},
		{`\(\S*python3\S* `, "(python3 "},
		{`[\d,]+ bytes left out, from offset \d+ to \d+`, "… bytes left out, from offset … to …"},
		{`("from": )\d+`, "${1}…"},
		{`(?m)^  @\d+: `, "  @…: "},
		{`\b\d+\.\d+s\b`, "…s"},
		{`\b` + port + `\b`, "$$PORT"},
	} {
		text = regexp.MustCompile(s.like).ReplaceAllString(text, s.become)
	}
	return text
}

// compare compares a reply with its golden file, which a person has reviewed. In the
// file "…" matches anything within a line, and alone on a line any lines.
func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "replies", name+".txt")
	want, err := os.ReadFile(path)
	pattern := regexp.QuoteMeta(strings.TrimSuffix(string(want), "\n"))
	pattern = strings.ReplaceAll(pattern, "\n…\n", "\n(?:.*\n)*?")
	pattern = "^" + strings.ReplaceAll(pattern, "…", "[^\n]*") + "$"
	if err == nil && regexp.MustCompile(pattern).MatchString(got) {
		return
	}
	if !*update {
		t.Errorf("the reply differs from %s:\n%s", path, got)
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
