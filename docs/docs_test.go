package docs_test

import (
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// root is the repository.
const root = ".."

var (
	link = regexp.MustCompile(`\[[^\]\n]*\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("`([^`\n]+)`")
	// A path in this repository, as documents write it.
	inside = regexp.MustCompile(`^(api|client|cmd|conformance|docs|internal|packaging)(/[\w.-]+)*/?$`)
	test   = regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*$`)
	// A test in a Go file.
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestDocuments keeps the documents from naming what is not there: every
// relative link leads to a file, and to a heading in it; every path and every
// test in backticks exists.
func TestDocuments(t *testing.T) {
	documents, tests := repository(t)
	if len(documents) < 9 {
		t.Errorf("only %d documents were found", len(documents))
	}
	outside := map[string]bool{}
	for name, text := range documents {
		prose := withoutFences(text)
		for _, match := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(match[1], "://") {
				outside[match[1]] = true
			}
			if problem := follow(documents, name, match[1]); problem != "" {
				t.Errorf("%s: the link %s %s", name, match[1], problem)
			}
		}
		for _, match := range code.FindAllStringSubmatch(prose, -1) {
			word := match[1]
			if inside.MatchString(word) && !exists(word) {
				t.Errorf("%s mentions %s, which does not exist", name, word)
			}
			if test.MatchString(word) && !tests[word] {
				t.Errorf("%s mentions the test %s, which does not exist", name, word)
			}
		}
	}
	t.Logf("links to other places, which are not followed:\n%s", strings.Join(slices.Sorted(maps.Keys(outside)), "\n"))
}

// repository returns the text of every document by its path, and the names of
// all tests.
func repository(t *testing.T) (documents map[string]string, tests map[string]bool) {
	documents, tests = map[string]string{}, map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (base[0] == '.' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		document := path.Ext(name) == ".md"
		if !document && !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if document {
			documents[name] = string(text)
		}
		for _, match := range declared.FindAllSubmatch(text, -1) {
			tests[string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return documents, tests
}

// follow says what is wrong with a link in the document from.
func follow(documents map[string]string, from, target string) (problem string) {
	if strings.Contains(target, "://") {
		if address, err := url.Parse(target); err != nil || address.Scheme != "https" || address.Host == "" {
			return "is no address of the form https://host/…"
		}
		return ""
	}
	file, heading, hasHeading := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	if !exists(to) {
		return "leads nowhere"
	}
	if hasHeading && !headings(documents[to])[heading] {
		return "leads to no heading"
	}
	return ""
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// headings returns the anchors of a document, as they are made of headings:
// lower case, words joined by hyphens, without punctuation.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(withoutFences(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line || title[0] != ' ' {
			continue
		}
		anchors[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			default:
				return -1
			}
		}, strings.TrimSpace(title))] = true
	}
	return anchors
}

// withoutFences leaves out what is between lines of three backticks.
func withoutFences(text string) string {
	var out strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			out.WriteString(line)
		}
	}
	return out.String()
}
