package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// Word is an exported string constant of the api.
type Word struct {
	Name  string // of the constant
	Type  string // "" when it has none
	Value string
}

// Vocabulary is the information in the source of the api that reflection does
// not provide.
type Vocabulary struct {
	Words []Word
	Types map[string]string // the doc comment of each type, on one line
}

// ReadVocabulary reads the Go files in dir, except tests, in order.
func ReadVocabulary(dir string) (*Vocabulary, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{Types: map[string]string{}}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					v.Types[spec.Name.Name] = strings.Join(strings.Fields(group.Doc.Text()), " ")
				case *ast.ValueSpec:
					if err := v.addWord(group.Tok, spec); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return v, nil
}

func (v *Vocabulary) addWord(tok token.Token, spec *ast.ValueSpec) error {
	if tok != token.CONST || len(spec.Values) == 0 || !spec.Names[0].IsExported() {
		return nil
	}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return err
	}
	w := Word{Name: spec.Names[0].Name, Value: value}
	if typ, ok := spec.Type.(*ast.Ident); ok {
		w.Type = typ.Name
	}
	v.Words = append(v.Words, w)
	return nil
}

// ofType returns the values of a named string type.
func (v *Vocabulary) ofType(typ string) []string {
	return v.values(func(w Word) bool { return w.Type == typ })
}

// named returns the values of the untyped constants whose names start with
// prefix.
func (v *Vocabulary) named(prefix string) []string {
	return v.values(func(w Word) bool { return w.Type == "" && strings.HasPrefix(w.Name, prefix) })
}

func (v *Vocabulary) values(is func(Word) bool) []string {
	var values []string
	for _, w := range v.Words {
		if is(w) {
			values = append(values, w.Value)
		}
	}
	return values
}

// Marker parses the line before a generated table of a page, such as
//
//	<!-- rows: fields ExecRunParams -->
//
// and returns the name of the table.
func Marker(line string) (table string, ok bool) {
	rest, ok := strings.CutPrefix(line, "<!-- rows: ")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, " -->")
}

// Row parses a line of a table with the given number of columns. It returns the
// first cell and the last, which is written by hand and may contain bars.
func Row(line string, columns int) (first, last string) {
	cells := strings.Split(strings.Trim(line, "|"), " | ")
	return strings.TrimSpace(cells[0]), strings.TrimSpace(strings.Join(cells[min(columns-1, len(cells)):], " | "))
}

// Meanings holds the last columns of the tables of a page, by the table's
// marker and the row's first cell without its backticks.
type Meanings map[string]map[string]string

// ReadMeanings parses the generated tables of a page.
func ReadMeanings(page string) Meanings {
	all := Meanings{}
	var table map[string]string
	columns := 0
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := Marker(line); ok {
			table, columns = map[string]string{}, 0
			all[name] = table
			continue
		}
		if !strings.HasPrefix(line, "|") {
			table = nil
		}
		if table == nil || strings.HasPrefix(line, "|---") {
			continue
		}
		if columns == 0 {
			columns = strings.Count(line, "|") - 1 // the cells of the header contain no bars
			continue
		}
		first, last := Row(line, columns)
		table[strings.Trim(first, "`")] = plain(last)
	}
	return all
}

// plain removes the links from a line of Markdown; [Name](#name) becomes Name.
func plain(text string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "](")
		open := strings.LastIndexByte(before, '[')
		_, after, closed := strings.Cut(rest, ")")
		if !ok || open < 0 || !closed {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(before[:open] + before[open+1:])
		text = after
	}
}
