package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/internal/spelling"
)

// formatFlag is the template of --format, by which results are printed: a Go
// text/template over the names of the JSON result. It works as in docker: \n and
// \t in its text are a line break and a tab, and every result, or entry of a list,
// ends its line.
type formatFlag struct {
	template *template.Template // nil if the flag is not set
	text     string
	names    []string // of the result that it uses
}

func (f *formatFlag) String() string { return f.text }

// Type returns the placeholder for the value in help texts.
func (*formatFlag) Type() string { return "template" }

// Set parses the template.
func (f *formatFlag) Set(text string) error {
	parsed, err := template.New("template").Funcs(template.FuncMap{"json": toJSON, "join": join, showFunc: show}).Parse(text)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	f.text, f.template = text, parsed
	for _, t := range parsed.Templates() {
		f.prepare(t.Root, t.Name() == parsed.Name())
	}
	return nil
}

// showFunc is the function that every printed value goes through.
const showFunc = "show"

// show returns a value for printing: a name that the result does not have is
// empty, and objects and lists are JSON.
func show(value any) (any, error) {
	switch value.(type) {
	case nil:
		return "", nil
	case map[string]any, []any:
		return toJSON(value)
	}
	return value, nil
}

// toJSON is the template function json.
func toJSON(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// join is the template function join; nil is a list that the result does not
// have.
func join(list any, separator string) (string, error) {
	if list == nil {
		return "", nil
	}
	values, ok := list.([]any)
	if !ok {
		return "", fmt.Errorf("join needs a list")
	}
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = fmt.Sprint(value)
	}
	return strings.Join(words, separator), nil
}

// prepare adds showFunc to what the template prints, as html/template adds its
// escapers, and collects the names of the result that it uses. atResult says that
// dot is the result there.
func (f *formatFlag) prepare(node parse.Node, atResult bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return // there is no else
		}
		for _, child := range n.Nodes {
			f.prepare(child, atResult)
		}
	case *parse.TextNode:
		n.Text = []byte(strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(string(n.Text)))
	case *parse.ActionNode:
		f.collect(n.Pipe, atResult)
		if len(n.Pipe.Decl) == 0 { // it prints
			show := parse.NewIdentifier(showFunc).SetPos(n.Pos)
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{show}})
		}
	case *parse.IfNode:
		f.prepareBranch(&n.BranchNode, atResult, atResult)
	case *parse.RangeNode:
		f.prepareBranch(&n.BranchNode, atResult, false)
	case *parse.WithNode:
		f.prepareBranch(&n.BranchNode, atResult, false)
	case *parse.TemplateNode:
		f.collect(n.Pipe, atResult)
	}
}

func (f *formatFlag) prepareBranch(n *parse.BranchNode, atResult, inside bool) {
	f.collect(n.Pipe, atResult)
	f.prepare(n.List, inside)
	f.prepare(n.ElseList, atResult)
}

// collect adds the names of the result in node.
func (f *formatFlag) collect(node parse.Node, atResult bool) {
	switch n := node.(type) {
	case *parse.PipeNode:
		if n == nil {
			return
		}
		for _, command := range n.Cmds {
			for _, arg := range command.Args {
				f.collect(arg, atResult)
			}
		}
	case *parse.ChainNode:
		f.collect(n.Node, atResult)
	case *parse.FieldNode:
		if atResult {
			f.names = append(f.names, n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			f.names = append(f.names, n.Ident[1])
		}
	}
}

// checkFormat refuses --format for a command without a result, and a template
// with a name that its result never has.
func (a *app) checkFormat(cmd *cobra.Command) error {
	if a.format.template == nil {
		return nil
	}
	if cmd.Flags().Changed("json") {
		return usage("--json and --format exclude each other")
	}
	a.json = true
	names := resultNames()[commandName(cmd)]
	if names == nil {
		return usage("%s prints no result that --format could show", cmd.CommandPath())
	}
	for _, name := range a.format.names {
		if slices.Contains(names, name) {
			continue
		}
		if near, ok := spelling.Closest(name, names); ok {
			return usage("--format: the result of %s has no %q; did you mean .%s?", cmd.CommandPath(), name, near)
		}
		return usage("--format: the result of %s has no %q; it has %s", cmd.CommandPath(), name, strings.Join(names, ", "))
	}
	return nil
}

// commandName returns the name of a command without that of the program.
func commandName(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// print prints a result, or each entry of a list: an object whose only value is
// a list.
func (f *formatFlag) print(w io.Writer, raw json.RawMessage) error {
	result, err := decode(raw)
	if err != nil {
		return err
	}
	entries := []any{result}
	if object, ok := result.(map[string]any); ok && len(object) == 1 {
		for _, only := range object {
			if list, ok := only.([]any); ok {
				entries = list
			}
		}
	}
	var b bytes.Buffer
	for _, entry := range entries {
		if err := f.template.Execute(&b, entry); err != nil {
			return usage("--format: %s", strings.TrimPrefix(err.Error(), "template: "))
		}
		b.WriteByte('\n')
	}
	_, err = w.Write(b.Bytes())
	return err
}

// decode returns JSON as values for a template: whole numbers as integers, and
// text without what a terminal would interpret.
func decode(raw json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return presentable(value), nil
}

func presentable(value any) any {
	switch v := value.(type) {
	case string:
		return visible(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		n, _ := v.Float64() // out of range, it is infinite
		return n
	case []any:
		for i := range v {
			v[i] = presentable(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = presentable(v[name])
		}
	}
	return value
}

// namesOf returns the names that values of type T have in JSON.
func namesOf[T any]() []string { return jsonNames(reflect.TypeFor[T]()) }

func jsonNames(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			names = append(names, jsonNames(field.Type)...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
