package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandHasAStory: every command is run by a story, which shows that it
// works with the real daemon, and is named in a document, where people find it.
func TestEveryCommandHasAStory(t *testing.T) {
	stories := textOf(t, "../../cmd/trl/testdata/script/*.txtar", "../../cmd/trl/*_test.go")
	documents := textOf(t, "../../README.md", "../../docs/*.md")
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "trl ")
		run := regexp.MustCompile(`\btrl( --?[a-z-]+(=\S+)?)* ` + regexp.QuoteMeta(path) + `\b`) // after global flags
		if !run.MatchString(stories) {
			t.Errorf("no story runs trl %s: write one in cmd/trl/testdata/script", path)
		}
		if !cmd.Hidden && !cmd.Parent().Hidden && !strings.Contains(documents, "trl "+path) {
			t.Errorf("no document names `trl %s`: add it to a page in docs", path)
		}
	}
	visit((&app{}).rootCommand())
}

// textOf returns the files that match the patterns as one text.
func textOf(t *testing.T, patterns ...string) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if at := strings.TrimSpace(line); strings.HasPrefix(at, "//") || strings.HasSuffix(name, ".txtar") && strings.HasPrefix(at, "#") {
					continue // a comment runs nothing
				}
				b.WriteString(line)
			}
		}
	}
	return b.String()
}
