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

from typing import Any, Dict, List, Literal, Optional, Tuple, TypedDict
`, generatedBy)
	for _, t := range c.Types {
		if t.Values != nil {
			pythonEnum(&b, t)
		} else {
			pythonObject(&b, t)
		}
	}
	b.WriteString(`

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
	if t.Extends != "" {
		base = t.Extends
	}
	if len(required) > 0 && len(optional) > 0 {
		base = pythonClass(b, "_"+t.Name+"Required", base, "", required, true)
		required = nil
	}
	pythonClass(b, t.Name, base, docstring(t.Doc, "    "), append(required, optional...), len(optional) == 0)
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
