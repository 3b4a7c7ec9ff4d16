package mcp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
)

// contractWord matches names of the API that no tool has.
var contractWord = regexp.MustCompile(`\b(stdin_open|yield_ms|timeout_ms|exec_id|session_id|(exec|session)\.[a-z]+)\b|"rows"`)

// notForModels are hints that no call of a tool can return.
var notForModels = []string{
	"session.hold", // no tool takes the keyboard
	"exec_id cancels that exec, session_id the one that runs in the session",
	"use it when session.create has answered", // run waits for that
}

// TestEveryHint reads the hints in the daemon's source, and looks for names of the API
// in the translation for models.
func TestEveryHint(t *testing.T) {
	var files []string
	for _, dir := range []string{"session", "exec", "terminal"} {
		found, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	hints := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			hint, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || method.Sel.Name != "WithHint" {
				return true
			}
			text, err := strconv.Unquote(hint.Value)
			if err != nil {
				t.Fatal(err)
			}
			hints++
			for _, not := range notForModels {
				if strings.Contains(text, not) && !strings.Contains(text, "force: true") {
					return true
				}
			}
			shown := describe(api.Errorf(api.CodeInvalidParams, "x").WithHint("%s", text))
			if word := contractWord.FindString(shown); word != "" {
				t.Errorf("%s: the hint for a model contains %s: %s", filepath.Base(name), word, shown)
			}
			return true
		})
	}
	if hints < 30 {
		t.Errorf("found only %d hints", hints)
	}
}
