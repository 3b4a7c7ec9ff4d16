package daemon

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables of docs/config.md")

const configDocument = "../../docs/config.md"

// TestConfigDocument: the page has every setting, with its default.
func TestConfigDocument(t *testing.T) {
	text, err := os.ReadFile(configDocument)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- the tables of the settings begin -->\n", "<!-- the tables of the settings end -->\n"
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s does not say where its tables are", configDocument)
	}
	want := before + begin + settingTables() + end + after
	if *update {
		if err := os.WriteFile(configDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("docs/config.md is stale: run go test ./internal/daemon -run ConfigDocument -update\n%s", diff)
	}
}

// settingTables returns a table for each group of settings, with the defaults of
// any user.
func settingTables() string {
	defaults := Defaults(Environment{Home: "~", Variables: []string{"TMPDIR=/var/tmp"}})
	var groups []string
	rows := map[string]string{}
	for _, s := range Settings() {
		if !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
		value := s.Value(&defaults)
		if value != "" {
			value = "`" + value + "`"
		}
		rows[s.Group] += fmt.Sprintf("| %#q | %s | %s |\n", s.Key, value, s.Usage)
	}
	var out strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&out, "\n## %s\n\n| Setting | Default | Meaning |\n|---|---|---|\n%s", group, rows[group])
	}
	return out.String() + "\n"
}
