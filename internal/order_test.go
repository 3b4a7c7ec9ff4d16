package internal_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Inside the packages that do the work, files have an order: a file refers only to
// those below it, so that one can be read, tested and changed with nothing in mind
// but what is under it. The order is in the package comment, in doc.go.

// orderHeading begins the list of files in a package comment. The list is indented;
// a file is the first word of its line.
const orderHeading = "Files, from top to bottom; a file refers only to those below it:"

// orderedPackages must have such a list. Others are checked if they have one.
var orderedPackages = []string{"console", "exec", "route", "session", "shell", "terminal"}

// upwardReferences are those that may point up, by package and then as they are
// reported, without the line, each with its reason.
var upwardReferences = map[string]map[string]string{}

// maxUpward is how many exceptions a package may have.
const maxUpward = 5

func TestFilesPointOneWay(t *testing.T) {
	docs, err := filepath.Glob("*/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	ordered := map[string][]string{} // package → files from top to bottom
	for _, doc := range docs {
		if order := orderIn(t, doc); order != nil {
			ordered[filepath.Dir(doc)] = order
		}
	}
	for _, name := range orderedPackages {
		if ordered[name] == nil {
			t.Errorf("internal/%s/doc.go has no list of its files under %q", name, orderHeading)
		}
	}
	exports := exportData(t, slices.Sorted(maps.Keys(ordered)))
	for _, name := range slices.Sorted(maps.Keys(ordered)) {
		t.Run(name, func(t *testing.T) {
			files, missing := compareOrder(t, name, ordered[name])
			for _, m := range missing {
				t.Error(m)
			}
			refs, err := loadReferences(name, files, exports)
			if err != nil {
				t.Fatal(err)
			}
			found := checkOrder(ordered[name], refs, upwardReferences[name])
			for _, violation := range found.violations {
				t.Errorf("internal/%s/%s", name, violation)
			}
			t.Logf("internal/%s: %d files, %d edges, %d of them upward", name, len(files), found.edges, found.upward)
		})
	}
}

// orderIn returns the list of files in a package comment, nil if it has none.
func orderIn(t *testing.T, doc string) []string {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), doc, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	return parseOrder(syntax.Doc.Text())
}

var orderLine = regexp.MustCompile(`^\s+(\w+\.go)\b`)

func parseOrder(comment string) []string {
	_, list, found := strings.Cut(comment, orderHeading)
	if !found {
		return nil
	}
	order := []string{}
	for _, line := range strings.Split(strings.TrimLeft(list, "\n"), "\n") {
		if m := orderLine.FindStringSubmatch(line); m != nil {
			order = append(order, m[1])
		} else if len(order) > 0 && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, " ") {
			break // the list is over
		}
	}
	return order
}

// compareOrder returns the files of a package that are neither tests nor doc.go, and
// a line for each that is not listed, or listed and gone.
func compareOrder(t *testing.T, name string, order []string) (files, missing []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(name, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if base := filepath.Base(path); base != "doc.go" && !strings.HasSuffix(base, "_test.go") {
			files = append(files, base)
		}
	}
	for _, file := range files {
		if !slices.Contains(order, file) {
			missing = append(missing, fmt.Sprintf("internal/%s/%s has no place in the list of doc.go", name, file))
		}
	}
	for _, file := range order {
		if !slices.Contains(files, file) {
			missing = append(missing, fmt.Sprintf("internal/%s/doc.go lists %s, which does not exist", name, file))
		}
	}
	return files, missing
}

// exported is what the compiler tells of packages: by import path the file that has
// it, and by package of this module the files that are compiled.
type exported struct {
	data  map[string]string
	files map[string][]string
}

// exportData has the compiler write export data of all that the packages import.
func exportData(t *testing.T, packages []string) exported {
	t.Helper()
	const format = `{{.ImportPath}}{{"\t"}}{{.Export}}{{"\t"}}{{range .GoFiles}}{{.}} {{end}}`
	args := []string{"list", "-export", "-deps", "-f", format}
	for _, name := range packages {
		args = append(args, "./"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	all := exported{data: map[string]string{}, files: map[string][]string{}}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		all.data[fields[0]] = fields[1]
		if inside, ok := strings.CutPrefix(fields[0], module+"/internal/"); ok {
			all.files[inside] = strings.Fields(fields[2])
		}
	}
	return all
}

// reference is the use of something in one file that is declared in another.
type reference struct {
	from string // file
	line int
	name string // of what is used: a name, or a type and its method or field
	to   string // file
}

func (r reference) String() string { return fmt.Sprintf("%s refers to %s in %s", r.from, r.name, r.to) }

// loadReferences returns the references between the files of a package on Linux.
func loadReferences(name string, files []string, exports exported) ([]reference, error) {
	fset := token.NewFileSet()
	var syntax []*ast.File
	for _, file := range files {
		if !slices.Contains(exports.files[name], file) {
			continue // for another system
		}
		f, err := parser.ParseFile(fset, filepath.Join(name, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, f)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports.data[path]) }
	return references(fset, syntax, importer.ForCompiler(fset, "gc", lookup))
}

// references returns the uses of names, methods and fields that another file of the
// same package declares.
func references(fset *token.FileSet, files []*ast.File, imports types.Importer) ([]reference, error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check("ordered", fset, files, info)
	if err != nil {
		return nil, err
	}
	owners := ownersIn(pkg)
	var refs []reference
	for ident, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		switch o := object.(type) { // of a generic type, what is declared
		case *types.Var:
			object = o.Origin()
		case *types.Func:
			object = o.Origin()
		}
		from, to := fset.Position(ident.Pos()), fset.Position(object.Pos())
		if from.Filename == to.Filename {
			continue
		}
		name := object.Name()
		if owner := owners[object]; owner != "" {
			name = owner + "." + name
		}
		refs = append(refs, reference{filepath.Base(from.Filename), from.Line, name, filepath.Base(to.Filename)})
	}
	slices.SortFunc(refs, func(a, b reference) int {
		return strings.Compare(fmt.Sprintf("%s:%06d %s", a.from, a.line, a.name), fmt.Sprintf("%s:%06d %s", b.from, b.line, b.name))
	})
	return refs, nil
}

// ownersIn names the types whose methods and fields a package declares.
func ownersIn(pkg *types.Package) map[types.Object]string {
	owners := map[types.Object]string{}
	for _, name := range pkg.Scope().Names() {
		typ, ok := pkg.Scope().Lookup(name).Type().(*types.Named)
		if !ok || typ.Obj().Name() != name {
			continue
		}
		for method := range typ.Methods() {
			owners[method] = name
		}
		switch under := typ.Underlying().(type) {
		case *types.Struct:
			for field := range under.Fields() {
				owners[field] = name
			}
		case *types.Interface:
			for method := range under.ExplicitMethods() {
				owners[method] = name
			}
		}
	}
	return owners
}

// ordering is what there is to say of the references of a package.
type ordering struct {
	edges, upward int // pairs of files, of which the second is above the first
	violations    []string
}

func checkOrder(order []string, refs []reference, excepted map[string]string) ordering {
	var result ordering
	place := func(file string) int { return slices.Index(order, file) }
	edges, upward, seen := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range refs {
		edge := r.from + " → " + r.to
		edges[edge] = true
		if place(r.from) < 0 || place(r.to) < 0 || place(r.from) < place(r.to) {
			continue
		}
		if excepted[r.String()] != "" {
			seen[r.String()] = true
			continue
		}
		upward[edge] = true
		result.violations = append(result.violations, fmt.Sprintf("%s:%d refers to %s in %s above", r.from, r.line, r.name, r.to))
	}
	for _, what := range slices.Sorted(maps.Keys(excepted)) {
		if !seen[what] {
			result.violations = append(result.violations, "doc.go: there is an exception that nothing needs: "+what)
		}
	}
	if len(excepted) > maxUpward {
		result.violations = append(result.violations, fmt.Sprintf("doc.go: %d exceptions are more than %d", len(excepted), maxUpward))
	}
	result.edges, result.upward = len(edges), len(upward)
	return result
}

func TestAnUpwardReferenceIsFound(t *testing.T) {
	const doc = "Package x is one of a test.\n\n" + orderHeading + "\n\n\ttop.go     what is on top\n\tmiddle.go\n\tbottom.go\n\nMore.\n"
	order := parseOrder(doc)
	if !slices.Equal(order, []string{"top.go", "middle.go", "bottom.go"}) {
		t.Fatalf("the order is %q", order)
	}
	if none := parseOrder("Package x has no list."); none != nil {
		t.Errorf("a list was found: %q", none)
	}
	sources := map[string]string{
		"top.go":    "package x\n\ntype top struct{ field int }\n\nfunc (t *top) method() { use(middle{}) }\n",
		"middle.go": "package x\n\ntype middle struct{ list[int] }\n\nfunc use(m middle) {\n\t_ = m.items\n\tvar t top\n\tt.field++\n\tt.method()\n}\n",
		"bottom.go": "package x\n\ntype list[T any] struct{ items []T }\n\ntype caller interface{ method() }\n\nfunc (l list[T]) call(c caller) { c.method() }\n",
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range order {
		f, err := parser.ParseFile(fset, name, sources[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	refs, err := references(fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name          string
		excepted      map[string]string
		edges, upward int
		want          []string
	}{
		{"none", nil, 3, 1, []string{
			"middle.go:7 refers to top in top.go above",
			"middle.go:8 refers to top.field in top.go above",
			"middle.go:9 refers to top.method in top.go above",
		}},
		{"two", map[string]string{
			"middle.go refers to top in top.go":       "for a test",
			"middle.go refers to top.field in top.go": "for a test",
		}, 3, 1, []string{"middle.go:9 refers to top.method in top.go above"}},
		{"three and one too many", map[string]string{
			"middle.go refers to top in top.go":        "for a test",
			"middle.go refers to top.field in top.go":  "for a test",
			"middle.go refers to top.method in top.go": "for a test",
			"bottom.go refers to top in top.go":        "it does not",
		}, 3, 0, []string{"doc.go: there is an exception that nothing needs: bottom.go refers to top in top.go"}},
	} {
		got := checkOrder(order, refs, tc.excepted)
		if got.edges != tc.edges || got.upward != tc.upward || !slices.Equal(got.violations, tc.want) {
			t.Errorf("%s: %d edges, %d upward, %q", tc.name, got.edges, got.upward, got.violations)
		}
	}
	many := map[string]string{}
	for i := range maxUpward + 1 {
		many[fmt.Sprint(i)] = "for a test"
	}
	if got := checkOrder(order, nil, many).violations; len(got) != len(many)+1 {
		t.Errorf("too many exceptions: %q", got)
	}
}

// maxLines is what a reader can keep in mind of one file. A longer file is usually
// two things.
const maxLines = 600

func TestFilesAreShort(t *testing.T) {
	tree := os.DirFS("..")
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // another test removed it meanwhile
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skippedDirs, d.Name()):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, want at most %d: split it by topic", name, n, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
