package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// file is what the rules check in one non-test Go file.
type file struct {
	dir     string // from the module's root
	name    string // of the file
	pkg     string // name of its package
	doc     string // package comment
	imports []imported
	uses    []string // "import/path.Name" for each qualified name
}

type imported struct {
	path string // directory in this module, or import path
	ours bool   // of this module
}

func (f file) String() string { return path.Join(f.dir, f.name) }

// load parses every non-test Go file of a module.
func load(tree fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f, err := read(syntax)
		f.dir, f.name = path.Dir(name), base
		files = append(files, f)
		return err
	})
	return files, err
}

func read(syntax *ast.File) (file, error) {
	f := file{pkg: syntax.Name.Name, doc: syntax.Doc.Text()}
	local := map[string]string{} // name in this file → import path
	for _, spec := range syntax.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		name := path.Base(full)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			// Its names cannot be distinguished from the package's own.
			for _, watched := range reapers.names[full] {
				f.uses = append(f.uses, full+"."+watched)
			}
		}
		local[name] = full
		inside, ours := strings.CutPrefix(full, module+"/")
		f.imports = append(f.imports, imported{path: inside, ours: ours})
	}
	ast.Inspect(syntax, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if left, ok := selector.X.(*ast.Ident); ok && local[left.Name] != "" {
				f.uses = append(f.uses, local[left.Name]+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return f, nil
}
