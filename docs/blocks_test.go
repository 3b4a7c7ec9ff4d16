package docs_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/daemon"
)

// block is a piece of code in a document.
type block struct {
	line     int // of its fence, from 1
	language string
	text     string
	mark     mark
}

// mark is a comment before a block that says what becomes of it:
//
//	<!-- not run: WHY -->     it is not run
//	<!-- run by: FILE -->     a test elsewhere does
//	<!-- it prints -->        it is what the program before it prints
type mark struct{ kind, says string }

const (
	notRun   = "not run"
	runBy    = "run by"
	itPrints = "it prints"
)

var (
	fence   = regexp.MustCompile("^( *)```([a-z]*)$")
	comment = regexp.MustCompile(`^ *<!-- (not run|run by|it prints)(?:: (.+))? -->$`)
)

// blocks returns the blocks of a document, in order.
func blocks(text string) []block {
	var found []block
	var at mark
	var open *block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		opening := fence.FindStringSubmatch(line)
		switch {
		case open != nil && opening != nil:
			found = append(found, *open)
			open, at = nil, mark{}
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case opening != nil:
			indent = opening[1]
			open = &block{line: i + 1, language: opening[2], mark: at}
		case strings.TrimSpace(line) != "":
			at = mark{}
			if match := comment.FindStringSubmatch(line); match != nil {
				at = mark{kind: match[1], says: match[2]}
			}
		}
	}
	return found
}

// TestBlocks sees that every block of code is run or read by a test, or says
// why not: code that is never run is wrong sooner or later.
func TestBlocks(t *testing.T) {
	documents, _ := repository(t)
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		before := ""
		for _, b := range blocks(documents[name]) {
			if problem := unread(name, b, before); problem != "" {
				t.Errorf("%s:%d: a block of %q %s", name, b.line, b.language, problem)
			}
			before = b.language
		}
	}
}

// unread says what is wrong with a block that no story runs.
func unread(name string, b block, before string) string {
	switch {
	case b.mark.kind == notRun && b.mark.says == "":
		return "is not run, and does not say why"
	case b.mark.kind == notRun:
		return ""
	case b.mark.kind == runBy:
		if !exists(b.mark.says) {
			return "is run by " + b.mark.says + ", which does not exist"
		}
		return ""
	case b.mark.kind == itPrints && before != "python":
		return "is what a program prints, and there is none before it"
	}
	switch b.language {
	case "text", "console", "python": // prose, and what TestStories runs
		return ""
	case "json":
		return notJSON(b.text)
	case "toml":
		return notSettings(b.text)
	}
	return "is not run: mark it, see docs/blocks_test.go"
}

// TestUnrunPython compiles the Python programs that no test runs.
func TestUnrunPython(t *testing.T) {
	documents, _ := repository(t)
	compiled := 0
	for name, text := range documents {
		for _, b := range blocks(text) {
			if b.language != "python" || b.mark.kind != notRun {
				continue
			}
			compiled++
			python := exec.CommandContext(t.Context(), "python3", "-W", "error", "-c", "import sys; compile(sys.stdin.read(), 'block', 'exec')")
			python.Stdin = strings.NewReader(b.text)
			if out, err := python.CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s", name, b.line, err, out)
			}
		}
	}
	if compiled < 4 {
		t.Errorf("only %d programs were found", compiled)
	}
}

func notJSON(text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var value any
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return ""
		case err != nil:
			return "is not JSON: " + err.Error()
		}
	}
}

// notSettings reads a block as the configuration of a daemon.
func notSettings(text string) string {
	dir, err := os.MkdirTemp("", "docs-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err.Error()
	}
	if _, err := daemon.Load(daemon.Sources{File: file, Environment: daemon.Environment{Home: dir}}); err != nil {
		return "is no configuration: " + err.Error()
	}
	return ""
}

func TestBlocksAreFound(t *testing.T) {
	const text = "a\n```console\n$ true\n```\n\n<!-- not run: it is a joke -->\n\n   ```sh\n   rm -rf /\n   ```\n" +
		"```\nx\n```\n<!-- not run: far away -->\nprose\n```go\n```\n```json\n{\n```\n```toml\nno_such = 1\n```\n" +
		"<!-- run by: docs/missing.go -->\n```ts\n```\n<!-- not run -->\n```ts\n```\n<!-- it prints -->\n```text\n```\n"
	found := blocks(text)
	want := []struct {
		line     int
		language string
		problem  string
	}{
		{2, "console", ""},
		{8, "sh", ""},
		{11, "", "is not run"},
		{16, "go", "is not run"},
		{18, "json", "not JSON"},
		{21, "toml", "no configuration"},
		{25, "ts", "does not exist"},
		{28, "ts", "does not say why"},
		{31, "text", "there is none before it"},
	}
	if len(found) != len(want) {
		t.Fatalf("%d blocks: %+v", len(found), found)
	}
	for i, w := range want {
		b := found[i]
		problem := unread("a.md", b, "")
		if b.line != w.line || b.language != w.language || !strings.Contains(problem, w.problem) || (problem == "") != (w.problem == "") {
			t.Errorf("block %d: line %d, %q: %q; want %+v", i, b.line, b.language, problem, w)
		}
	}
	if found[1].text != "rm -rf /\n" {
		t.Errorf("an indented block is %q", found[1].text)
	}
}
