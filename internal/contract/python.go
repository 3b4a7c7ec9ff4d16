package contract

import (
	"fmt"
	"slices"
	"strings"
)

// pythonKeywords lists the words that cannot be attribute names in Python.
var pythonKeywords = []string{
	"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
	"else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
	"nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
}

const generatedBy = "Generated from the method table and the types of the daemon; do not edit. To regenerate it:\n\n" +
	"    go test ./internal/contract -run Fresh -update\n"

// Python generates the types as TypedDicts, for Python 3.9 and later. Members
// that may be absent are in a subclass with total=False, since Required and
// NotRequired need 3.11.
func (c *Contract) Python() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `"""The types of the TRL contract, version 1.

%s
Later versions may add members to results. Ignore members that are not listed
here.
"""

# ruff: noqa: E501

import os
from datetime import datetime, timezone
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union
`, generatedBy)
	for _, t := range c.Types {
		if t.Values != nil {
			pythonEnum(&b, t)
		} else {
			pythonObject(&b, t)
		}
		if t.Name == "ErrorCode" {
			b.WriteString(pythonErrors)
		}
	}
	b.WriteString(`

#: The JSON-RPC number of each error code.
ERROR_NUMBERS: Dict[str, int] = {
`)
	for _, code := range c.Codes {
		fmt.Fprintf(&b, "    %q: %d,\n", code.Name, code.Number)
	}
	b.WriteString("}\n\n#: Method name: (type of its params, type of its result, scope).\nMETHODS: Dict[str, Tuple[str, str, str]] = {\n")
	for _, m := range c.Methods {
		fmt.Fprintf(&b, "    %q: (%q, %q, %q),\n", m.Name, nameOf(m.Params), nameOf(m.Result), m.Scope)
	}
	b.WriteString("}\n\n#: Name of a notification: type of its params.\nNOTIFICATIONS: Dict[str, str] = {\n")
	for _, n := range c.Notifications {
		fmt.Fprintf(&b, "    %q: %q,\n", n.Name, nameOf(n.Params))
	}
	b.WriteString("}\n")
	c.pythonOptions(&b)
	c.pythonResult(&b)
	return []byte(b.String())
}

func pythonEnum(b *strings.Builder, t *Type) {
	fmt.Fprintf(b, "\n\n%s = Literal[\n", t.Name)
	for _, value := range t.Values {
		fmt.Fprintf(b, "    %q,", value)
		if means := t.Means[value]; means != "" {
			fmt.Fprintf(b, "  # %s", means)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "]\n%s\n", docstring(t.Doc, ""))
}

func pythonObject(b *strings.Builder, t *Type) {
	required, optional := t.split()
	base := "TypedDict"
	if t.Extends != nil {
		base = t.Extends.objectName()
	}
	if len(required) > 0 && len(optional) > 0 {
		base = pythonClass(b, "_"+t.Name+"Required", base, "", required, true)
		required = nil
	}
	pythonClass(b, t.objectName(), base, docstring(t.Doc, "    "), append(required, optional...), len(optional) == 0)
	if t.Word != nil {
		fmt.Fprintf(b, "\n\n%s = Union[%s, %s]\n%s\n", t.Name, pythonShape(t.Word), t.objectName(), docstring(t.Doc, ""))
	}
}

// pythonClass writes one class and returns its name. Members whose names are
// keywords go into a base that is created without the class statement.
func pythonClass(b *strings.Builder, name, base, doc string, fields []Field, total bool) string {
	suffix := ", total=False"
	if total {
		suffix = ""
	}
	var words []string
	for _, f := range fields {
		if slices.Contains(pythonKeywords, f.Name) {
			words = append(words, fmt.Sprintf("%q: %s", f.Name, pythonType(f)))
		}
	}
	if words != nil {
		keywords := "_" + strings.TrimPrefix(name, "_") + "Keywords"
		fmt.Fprintf(b, "\n\n%s = TypedDict(%q, {%s}%s)\n", keywords, keywords, strings.Join(words, ", "), suffix)
		if base == "TypedDict" {
			base = keywords
		} else {
			base += ", " + keywords
		}
	}
	fmt.Fprintf(b, "\n\nclass %s(%s%s):\n", name, base, suffix)
	body := doc
	for _, f := range fields {
		if slices.Contains(pythonKeywords, f.Name) {
			continue
		}
		if body == doc && doc != "" {
			body += "\n\n"
		}
		for _, line := range wrapped(f.Meaning, 92) {
			body += "    #: " + line + "\n"
		}
		body += fmt.Sprintf("    %s: %s\n", f.Name, pythonType(f))
	}
	if body == "" {
		body = "    pass\n"
	}
	b.WriteString(strings.TrimSuffix(body, "\n") + "\n")
	return name
}

// pythonFunctions lists the functions of the Python client whose keyword
// arguments are generated: each takes the optional params of its method.
var pythonFunctions = []struct{ name, method, options string }{
	{"session", "session.create", "SessionOptions"},
	{"run", "exec.run", "RunOptions"},
	{"stream", "exec.stream", "StreamOptions"},
}

// pythonOption is a keyword argument of a function and the param it sets.
type pythonOption struct {
	name    string
	param   string
	convert string // how its value becomes that of the param: see convert in _options.py
	typ     string
	unit    string
	meaning string
}

// pythonOptions generates the keyword arguments of each function: a TypedDict,
// whose docstring has the meanings since help() cannot read comments, and the
// table that the client converts them with.
func (c *Contract) pythonOptions(b *strings.Builder) {
	var table strings.Builder
	for _, f := range pythonFunctions {
		i := slices.IndexFunc(c.Methods, func(m Method) bool { return m.Name == f.method })
		options := pythonOptionsOf(c.byName[nameOf(c.Methods[i].Params)])
		fmt.Fprintf(b, "\n\nclass %s(TypedDict, total=False):\n", f.options)
		fmt.Fprintf(b, "    \"\"\"The keyword arguments of %s(). None is the same as leaving one out.\n\n    Options:\n", f.name)
		fmt.Fprintf(&table, "    %q: {\n", f.name)
		members := ""
		for _, o := range options {
			b.WriteString("        " + strings.Join(wrapped(o.name+o.unit+": "+o.meaning, 88), "\n            ") + "\n")
			members += fmt.Sprintf("    %s: Optional[%s]\n", o.name, o.typ)
			if o.param != "" {
				fmt.Fprintf(&table, "        %q: (%q, %q),\n", o.name, o.param, o.convert)
			}
		}
		b.WriteString("    \"\"\"\n\n" + members)
		table.WriteString("    },\n")
	}
	b.WriteString("\n\n#: Function: {keyword argument: (param, conversion)}; call_timeout is not sent.\n")
	b.WriteString("OPTIONS: Dict[str, Dict[str, Tuple[str, str]]] = {\n" + table.String() + "}\n")
}

// pythonOptionsOf returns the keyword arguments for the optional params of a
// type, and the client's own.
func pythonOptionsOf(t *Type) []pythonOption {
	_, fields := t.split()
	has := func(name string) bool {
		return slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name })
	}
	var options []pythonOption
	for _, f := range fields {
		if of, ok := strings.CutSuffix(f.Name, "_encoding"); ok && has(of) {
			continue // the client sets it
		}
		o := pythonOption{name: f.Name, param: f.Name, typ: pythonShape(f.Shape), meaning: f.Meaning}
		seconds, isTime := strings.CutSuffix(f.Name, "_ms")
		switch {
		case isTime:
			o.name, o.convert, o.typ, o.unit = seconds, "milliseconds", "float", " (seconds)"
		case has(f.Name + "_encoding"):
			o.convert, o.typ = "bytes", "Union[str, bytes]"
		case f.Name == "cwd":
			o.convert, o.typ = "path", "Union[str, os.PathLike[str]]"
		case f.Shape.Kind == Boolean && !f.Zero:
			o.convert = "flag"
		case f.Shape.Kind == List:
			o.convert, o.typ = "list", "Sequence"+strings.TrimPrefix(o.typ, "List")
		case f.Shape.Kind == Map:
			o.convert, o.typ = "dict", "Mapping"+strings.TrimPrefix(o.typ, "Dict")
		}
		switch {
		case o.name == "yield":
			o.name = "yield_after"
		case slices.Contains(pythonKeywords, o.name):
			o.name += "_"
		}
		o.meaning = strings.NewReplacer("`null`", "`None`", `\`, `\\`).Replace(o.meaning)
		options = append(options, o)
	}
	return append(options, pythonOption{
		name: "call_timeout", typ: "float", unit: " (seconds)",
		meaning: "how long to wait for the daemon's answer before `CallTimeout` is raised; default that of `connect`",
	})
}

// pythonResult generates the base of the client's Result: a property for each
// field of ExecResult. Result itself has the texts that may be encoded.
func (c *Contract) pythonResult(b *strings.Builder) {
	b.WriteString(`

def parse_time(text: str) -> datetime:
    """Parses a time of the contract: RFC 3339 with milliseconds in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


class ResultFields:
    """What is known of a command. Durations are in seconds."""

    __slots__ = ("raw",)
    raw: ExecResult
`)
	fields := c.byName["ExecResult"].Fields
	has := func(name string) bool {
		return slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name })
	}
	for _, f := range fields {
		of, isEncoding := strings.CutSuffix(f.Name, "_encoding")
		if isEncoding && has(of) || has(f.Name+"_encoding") {
			continue
		}
		name, typ, value := f.Name, pythonType(f), fmt.Sprintf("self.raw[%q]", f.Name)
		if !f.Required {
			switch f.Shape.Kind {
			case Boolean:
				value = fmt.Sprintf("self.raw.get(%q, False)", f.Name)
			case Integer:
				value = fmt.Sprintf("self.raw.get(%q, 0)", f.Name)
			case List:
				value = fmt.Sprintf("self.raw.get(%q, [])", f.Name)
			default:
				typ, value = "Optional["+typ+"]", fmt.Sprintf("self.raw.get(%q)", f.Name)
			}
		}
		if f.Shape.Kind == Time {
			typ, value = "datetime", "parse_time("+value+")"
		}
		if seconds, ok := strings.CutSuffix(f.Name, "_ms"); ok {
			name, typ, value = seconds, "float", value+" / 1000"
		}
		meaning := strings.NewReplacer("`null`", "`None`", `\`, `\\`).Replace(f.Meaning)
		fmt.Fprintf(b, "\n    @property\n    def %s(self) -> %s:\n%s\n        return %s\n", name, typ, docstring(meaning, "        "), value)
	}
}

func docstring(doc, indent string) string {
	lines := wrapped(doc, 92)
	text := indent + `"""` + strings.Join(lines, "\n"+indent)
	if len(lines) > 1 {
		text += "\n" + indent
	}
	return text + `"""`
}

func pythonType(f Field) string {
	text := pythonShape(f.Shape)
	if f.Nullable {
		return "Optional[" + text + "]"
	}
	return text
}

func pythonShape(s *Shape) string {
	switch s.Kind {
	case String, Time:
		if len(s.Values) > 0 {
			return "Literal[" + quoted(s.Values, ", ") + "]"
		}
		return "str"
	case Integer:
		return "int"
	case Number:
		return "float"
	case Boolean:
		return "bool"
	case List:
		return "List[" + pythonShape(s.Elem) + "]"
	case Map:
		elem := pythonShape(s.Elem)
		if s.Nulls {
			elem = "Optional[" + elem + "]"
		}
		return "Dict[str, " + elem + "]"
	case Named:
		return s.Name
	default:
		return "Any"
	}
}

func quoted(values []string, separator string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(out, separator)
}

// pythonErrors are the types of errors, which follow the type of their codes.
const pythonErrors = `

class _ErrorDataRequired(TypedDict):
    #: The stable name: switch on this.
    code: ErrorCode


class ErrorData(_ErrorDataRequired, total=False):
    """The data of an error besides its message; each detail has its own name."""

    #: A sentence for a model: the next call to make.
    hint: str


class ErrorObject(TypedDict):
    """The JSON-RPC error object."""

    #: The JSON-RPC number.
    code: int
    message: str
    data: ErrorData
`
