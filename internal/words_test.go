package internal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A word that means one thing to its author and nothing to a reader does not come
// back: each entry says what to write instead.
var avoided = []struct{ pattern, instead string }{
	{`undertak\w*`, "cleaner"},
	{`heirs?`, "exit copy"},
	{`bur(y|ies|ied)`, "kill orphans"},
	{`mourn\w*`, "cleaner"},
	{`mend(s|ed|ing)?`, "repair, recover or fix"},
	{`heed(s|ed|ing)?`, "handle, or obey"},
	{`carriers?`, "transport"},
	{`hubs?`, "driver"},
	{`outlets?`, "output pipe"},
	{`typists?`, "input writer"},
	{`rous(e|es|ed|ing)`, "promote"},
	{`prey`, "target"},
	{`doomed`, "target"},
	{`(no|some)body'?s?`, "name the actor: a client, a caller, another user"},
	{`(is|are|was|were|be|been|being) told`, "reported, or name who reports it"},
	{`hear(s|d)? out`, "wait for"},
	{`(of|for|by|to|from|with|and|or|but|after|before|than|as) who`, `"a client that", "the caller", "whoever"`},
	{`g(i|a)v(e|es|en|ing) up`, "release, abort, stop waiting"},
	{`out of (its|their) mind`, "say what is inconsistent"},
	{`unnoted|noting`, "persist"},
}

// kept are names on the wire, in the log and in kept state that stay as they are
// although they contain such a word.
var kept = strings.NewReplacer(
	`"undertaken"`, "", `"undertaker_died"`, "", "`undertaken`", "", "`undertaker_died`", "", "event=undertaken", "",
	"event=undertaker_died", "", "be-undertaker", "", `"hub"`, "", `"u/hub"`, "", "GitHub", "", `".config/hub"`, "", "http.NoBody", "",
)

// untouched are files whose words are not ours to choose: fixed bytes of earlier
// formats, generated files, licences, and this list.
var untouched = []string{"LICENSE", "internal/words_test.go", "CHANGELOG.md", "go.sum"}

// skippedDirs hold what is fetched, built or found by fuzzing.
var skippedDirs = []string{".git", "node_modules", "dist", "bin", "build", "testdata/fuzz", "__pycache__", "corpus", ".venv"}

var textFiles = []string{".go", ".md", ".sh", ".txtar", ".py", ".ts", ".mjs", ".toml", ".yml", ".yaml", ".service", ".socket", ".json", ".bash", ".zsh", ".ash", ".dash"}

// findWords returns each avoided word in the text files of a tree.
func findWords(tree fs.FS) ([]string, error) {
	var patterns []string
	for _, a := range avoided {
		patterns = append(patterns, a.pattern)
	}
	word := regexp.MustCompile(`(?i)\b(` + strings.Join(patterns, "|") + `)\b`)
	var found []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test removed it meanwhile
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			for _, skipped := range skippedDirs {
				if name == skipped || strings.HasSuffix(name, "/"+skipped) {
					return fs.SkipDir
				}
			}
			return nil
		}
		isText := slices.Contains(textFiles, path.Ext(name)) || path.Ext(name) == "" && d.Type().IsRegular()
		if !isText || slices.Contains(untouched, name) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if len(line) > 2000 || !word.MatchString(line) {
				continue
			}
			for _, a := range avoided {
				if hit := regexp.MustCompile(`(?i)\b(` + a.pattern + `)\b`).FindString(kept.Replace(line)); hit != "" {
					found = append(found, fmt.Sprintf("%s:%d: %q: write %s", name, i+1, hit, a.instead))
				}
			}
		}
		return nil
	})
	return found, err
}

func TestWords(t *testing.T) {
	found, err := findWords(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestWordsAreFound(t *testing.T) {
	found, err := findWords(fstest.MapFS{
		"a/b.go":              {Data: []byte("// The heir is told.\nlog(\"x\", \"event\", \"undertaken\")\n// for whose sake, GitHub\n")},
		"node_modules/c.md":   {Data: []byte("carrier")},
		"d/testdata/fuzz/e":   {Data: []byte("mended")},
		"binary.png":          {Data: []byte("nobody")},
		"docs/f.md":           {Data: []byte("It gives up.")},
		"internal/no/words.c": {Data: []byte("heed")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`a/b.go:1: "heir": write exit copy`, `a/b.go:1: "is told": write reported, or name who reports it`, `docs/f.md:1: "gives up": write release, abort, stop waiting`}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
