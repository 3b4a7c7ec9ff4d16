package internal_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// These tests violate every rule in a small tree in memory, and check that the
// violation is reported: a rule that cannot fail checks nothing.

// tree is a module in memory: file name → Go source.
type tree map[string]string

func (m tree) violations(t *testing.T) []string {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range m {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	files, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return check(files)
}

// source returns a file of a package in dir with the given imports.
func source(dir string, imported ...string) string {
	name := path.Base(dir)
	if strings.HasPrefix(dir, "cmd/") {
		name = "main"
	}
	text := fmt.Sprintf("// Package %s is for a test.\npackage %s\n", name, name)
	for _, i := range imported {
		text += fmt.Sprintf("import _ %q\n", i)
	}
	return text
}

// pair returns a module in which one package imports another.
func pair(from, to string) tree {
	return tree{
		from + "/x.go": source(from, module+"/"+to),
		to + "/x.go":   source(to),
	}
}

func expect(t *testing.T, m tree, what, why string) {
	t.Helper()
	for _, violation := range m.violations(t) {
		if strings.Contains(violation, what) && strings.Contains(violation, why) {
			return
		}
	}
	t.Errorf("not reported: %s (%s); got %q", what, why, m.violations(t))
}

func expectNone(t *testing.T, m tree, why string) {
	t.Helper()
	for _, violation := range m.violations(t) {
		if strings.Contains(violation, why) {
			t.Errorf("wrongly reported: %s", violation)
		}
	}
}

func TestEveryImportRuleCanBeBroken(t *testing.T) {
	for _, rule := range imports {
		if rule.only == nil && rule.never == nil && rule.without == nil && !rule.bare {
			t.Errorf("the rule about %s forbids nothing", rule.about)
		}
		for _, forbidden := range rule.never {
			// Also in a package below it.
			for _, dir := range []string{rule.about, rule.about + "/part"} {
				expect(t, pair(dir, forbidden), dir+"/x.go imports "+forbidden, rule.why)
			}
		}
		for _, forbidden := range rule.without {
			expect(t, tree{rule.about + "/x.go": source(rule.about, forbidden)}, "imports "+forbidden, rule.why)
		}
		if rule.only != nil {
			expect(t, pair(rule.about, "internal/elsewhere"), "imports internal/elsewhere", rule.why)
			expectNone(t, pair(rule.about, rule.about+"/part"), rule.why)
			for _, allowed := range rule.only {
				expectNone(t, pair(rule.about, allowed), rule.why)
			}
		}
		foreign := tree{rule.about + "/x.go": source(rule.about, "example.com/library")}
		if rule.bare {
			expect(t, foreign, "imports example.com/library", rule.why)
		} else {
			expectNone(t, foreign, rule.why)
		}
		expectNone(t, tree{rule.about + "/x.go": source(rule.about, "strings", "testing/fstest")}, rule.why)
	}
}

func TestEveryRestrictedImportIsFound(t *testing.T) {
	for _, rule := range importers {
		expect(t, pair("internal/elsewhere", rule.about), "imports "+rule.about, rule.why)
		expect(t, pair("internal/elsewhere", rule.about+"/part"), "imports "+rule.about+"/part", rule.why)
		expectNone(t, pair(rule.about, rule.about+"/part"), rule.why)
		for _, from := range rule.from {
			expectNone(t, pair(from, rule.about), rule.why)
		}
	}
}

func TestLibraryOutsideItsPackage(t *testing.T) {
	for _, library := range libraries {
		for _, imported := range []string{library.about, library.about + "/part"} {
			expect(t, tree{"internal/elsewhere/x.go": source("internal/elsewhere", imported)}, "imports "+imported, library.why)
			for _, from := range library.from {
				expectNone(t, tree{from + "/x.go": source(from, imported)}, library.why)
			}
		}
		expectNone(t, tree{"internal/elsewhere/x.go": source("internal/elsewhere", library.about+"s")}, library.why)
	}
}

func TestASecondReaperIsNoticed(t *testing.T) {
	for imported, names := range reapers.names {
		base := path.Base(imported)
		for _, name := range names {
			plain := fmt.Sprintf("\nimport %q\nvar _ = %s.%s\n", imported, base, name)
			renamed := fmt.Sprintf("\nimport other %q\nvar _ = other.%s\n", imported, name)
			dotted := fmt.Sprintf("\nimport . %q\nvar _ = %s\n", imported, name)
			for _, text := range []string{plain, renamed, dotted} {
				expect(t, tree{"internal/elsewhere/x.go": source("internal/elsewhere") + text}, "uses "+imported+"."+name, reapers.why)
				expect(t, tree{"internal/processes/x.go": source("internal/processes") + text}, "uses "+imported+"."+name, reapers.why)
				for _, dir := range reapers.from {
					expectNone(t, tree{dir + "/x.go": source(dir) + text}, reapers.why)
				}
			}
		}
	}
	expectNone(t, tree{
		"internal/elsewhere/x.go":      source("internal/elsewhere") + "\nimport \"os/exec\"\nvar _ = exec.LookPath\n",
		"internal/elsewhere/x_test.go": source("internal/elsewhere") + "\nimport \"os/exec\"\nvar _ = exec.Command\n",
	}, reapers.why)
}

func TestPackagesAreNamedAndExplained(t *testing.T) {
	for _, name := range vague {
		expect(t, tree{"internal/" + name + "/x.go": source("internal/" + name)}, "named "+name, "a name must")
		expect(t, tree{"internal/fine/x.go": "package " + name}, "named "+name, "a name must")
	}
	expect(t, tree{"internal/mute/x.go": "package mute\n"}, "internal/mute", "no package comment")
	expect(t, tree{"internal/mute/x.go": "// Something else.\npackage mute\n"}, "internal/mute", "no package comment")
	expect(t, tree{"cmd/mute/main.go": "package main\n"}, "cmd/mute", "no package comment")
	expectNone(t, tree{
		"cmd/trl/main.go":              "// The trl command.\npackage main\n",
		"internal/good/doc.go":         source("internal/good"),
		"internal/good/rest.go":        "package good\n",
		"internal/onlytests/x_test.go": "package onlytests\n",
		"internal/good/testdata/x.go":  "package mute\n",
		".hidden/x.go":                 "package mute\n",
	}, "")
}

func TestANeighbourIsNotAPart(t *testing.T) {
	for dir, want := range map[string]bool{
		"internal/session":       true,
		"internal/session/state": true,
		"internal/sessions":      false,
		"internal":               false,
	} {
		if got := within(dir, "internal/session"); got != want {
			t.Errorf("within(%q) = %t", dir, got)
		}
	}
}
