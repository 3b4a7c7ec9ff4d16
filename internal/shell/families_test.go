package shell

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// optionalOfFamily are the fields of family whose zero value has a meaning.
var optionalOfFamily = []string{
	"fallback", "version", "standbyScript", "exitScript", "print", "packetPipe", "copyReopensControl",
	"source", "done", "undoIsHarmless", "emergency", "exports",
}

// TestEveryFamilyIsComplete: a family is listed, says everything that the driver
// needs to know, and is known to the tests and documents that go through the shells.
func TestEveryFamilyIsComplete(t *testing.T) {
	files, err := filepath.Glob("family_*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "family_"), ".go")
		if !strings.HasSuffix(name, "_test") && !slices.Contains(Names(), name) {
			t.Errorf("%s is no family that is driven: add it to families, internal/shell/families.go", file)
		}
	}
	for _, f := range families() {
		v := reflect.ValueOf(f).Elem()
		for i := range v.NumField() {
			if field := v.Type().Field(i).Name; v.Field(i).IsZero() && !slices.Contains(optionalOfFamily, field) {
				t.Errorf("the family %s has no %s: set it in internal/shell/family_%[1]s.go", f.name, field)
			}
		}
		for _, script := range append([]bootScript{{file: f.login}}, f.boot...) {
			if _, err := bootFiles.ReadFile("boot/" + script.file); err != nil {
				t.Errorf("the family %s names boot/%s, which does not exist", f.name, script.file)
			}
		}
		for file, what := range map[string]string{
			".ci/run":                         "install it",
			"conformance/torture.json":        "add it to the shells of each case that applies to it",
			"docs/protocol.md":                "name it where the shells are",
			"docs/shell-driver.md":            "describe how it is driven",
			"internal/must/rig_linux_test.go": "add it to shells",
		} {
			text, err := os.ReadFile(filepath.Join("..", "..", file))
			if err != nil {
				t.Fatal(err)
			}
			word := string(f.name)
			if f.fallback != "" {
				word += "|" + f.fallback
			}
			if !regexp.MustCompile(`\b(` + word + `)\b`).Match(text) {
				t.Errorf("%s does not have the family %s: %s", file, f.name, what)
			}
		}
	}
}
