package agents

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

const pageFile = "../../docs/agents.md"

// block returns the fenced block of docs/agents.md that follows the comment
// <!-- block: NAME -->.
func block(t *testing.T, name string) string {
	t.Helper()
	return blockOf(t, pageFile, name)
}

// blockOf returns a block of another page.
func blockOf(t *testing.T, page, name string) string {
	t.Helper()
	for _, b := range blocks(t, page) {
		if b.name == name {
			return b.text
		}
	}
	t.Fatalf("%s has no block %q", page, name)
	return ""
}

type fenced struct{ name, language, text string }

// blocks returns all fenced blocks of a page.
func blocks(t *testing.T, file string) []fenced {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []fenced
	var open *fenced
	name := ""
	for line := range strings.Lines(string(page)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case open != nil && trimmed == "```":
			found, open, name = append(found, *open), nil, ""
		case open != nil:
			open.text += line
		case strings.HasPrefix(trimmed, "```"):
			open = &fenced{name: name, language: strings.TrimPrefix(trimmed, "```")}
		case strings.HasPrefix(trimmed, "<!-- block: "):
			name = strings.TrimSuffix(strings.TrimPrefix(trimmed, "<!-- block: "), " -->")
		}
	}
	return found
}

// TestPage checks the configuration files in docs/agents.md: they are valid JSON or
// TOML, and start `trl mcp`.
func TestPage(t *testing.T) {
	all := blocks(t, pageFile)
	if len(all) < 9 {
		t.Errorf("found only %d blocks", len(all))
	}
	for _, b := range all {
		if b.name == "" {
			t.Errorf("a block has no comment with its name before it:\n%s", b.text)
		}
		var value map[string]any
		switch b.language {
		case "json":
			if err := json.Unmarshal([]byte(b.text), &value); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		case "toml":
			if _, err := toml.Decode(b.text, &value); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		}
		if strings.Contains(b.text, `"command"`) && !startsTRL(value) {
			t.Errorf("%s does not start `trl mcp`", b.name)
		}
	}
}

const bashToolPage = "../../docs/bash-tool.md"

// TestBashToolVersions checks that the versions in docs/bash-tool.md are those that
// its programs are run with.
func TestBashToolVersions(t *testing.T) {
	text, err := os.ReadFile("bashtool/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var project struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &project); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(bashToolPage)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([@a-z/-]+)` (\\d+\\.\\d+\\.\\d+)").FindAllStringSubmatch(string(page), -1)
	if len(named) < 4 {
		t.Errorf("the page names only %d versions", len(named))
	}
	for _, match := range named {
		if name, version := match[1], match[2]; project.Dependencies[name] != version {
			t.Errorf("the page says %s %s, but its programs are run with %q", name, version, project.Dependencies[name])
		}
	}
}

// startsTRL reports whether value contains an entry trl whose command and arguments
// are `trl mcp`.
func startsTRL(value any) bool {
	object, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for key, inner := range object {
		entry, ok := inner.(map[string]any)
		if !ok {
			continue
		}
		if key == "trl" {
			line := []any{entry["command"]}
			if words, ok := entry["command"].([]any); ok {
				line = words
			}
			if more, ok := entry["args"].([]any); ok {
				line = append(line, more...)
			}
			if len(line) == 2 && line[0] == "trl" && line[1] == "mcp" {
				return true
			}
		}
		if startsTRL(inner) {
			return true
		}
	}
	return false
}
