package contract

import (
	"fmt"
	"strings"
)

// TypeScript generates the types as interfaces and unions of string literals.
func (c *Contract) TypeScript() []byte {
	var b strings.Builder
	b.WriteString("/**\n * The types of the TRL contract, version 1.\n *\n")
	for line := range strings.Lines(generatedBy) {
		b.WriteString(strings.TrimRight(" * "+line, " \n") + "\n")
	}
	b.WriteString(" *\n * Later versions may add members to results. Ignore members that are not listed\n * here.\n */\n")
	for _, t := range c.Types {
		b.WriteByte('\n')
		comment(&b, t.Doc, "")
		if t.Values != nil {
			fmt.Fprintf(&b, "export type %s =", t.Name)
			for _, value := range t.Values {
				b.WriteByte('\n')
				comment(&b, t.Means[value], "  ")
				fmt.Fprintf(&b, "  | %q", value)
			}
			b.WriteString(";\n")
			continue
		}
		if len(t.Fields) == 0 && t.Extends == nil {
			fmt.Fprintf(&b, "export type %s = Record<string, never>;\n", t.Name)
			continue
		}
		if t.Word != nil {
			fmt.Fprintf(&b, "export type %s = %s | %s;\n\n", t.Name, typescriptShape(t.Word), t.objectName())
			comment(&b, t.Doc, "")
		}
		fmt.Fprintf(&b, "export interface %s ", t.objectName())
		if t.Extends != nil {
			fmt.Fprintf(&b, "extends %s ", t.Extends.objectName())
		}
		b.WriteString("{\n")
		for _, f := range t.Fields {
			comment(&b, f.Meaning, "  ")
			optional, null := "?", ""
			if f.Required {
				optional = ""
			}
			if f.Nullable {
				null = " | null"
			}
			fmt.Fprintf(&b, "  %s%s: %s%s;\n", f.Name, optional, typescriptShape(f.Shape), null)
		}
		b.WriteString("}\n")
	}
	b.WriteString(`
/** The data of an error besides its message; each detail has its own name. */
export interface ErrorData {
  /** The stable name: switch on this. */
  code: ErrorCode;
  /** A sentence for a model: the next call to make. */
  hint?: string;
  [detail: string]: unknown;
}

/** The JSON-RPC error object. */
export interface ErrorObject {
  /** The JSON-RPC number. */
  code: number;
  message: string;
  data: ErrorData;
}

/** Every method, with its params and its result. */
export interface Methods {
`)
	for _, m := range c.Methods {
		comment(&b, m.Summary+" Scope: "+m.Scope+".", "  ")
		fmt.Fprintf(&b, "  %q: { params: %s; result: %s };\n", m.Name, nameOf(m.Params), nameOf(m.Result))
	}
	b.WriteString("}\n\n/** Every notification, with its params. */\nexport interface Notifications {\n")
	for _, n := range c.Notifications {
		fmt.Fprintf(&b, "  %q: %s;\n", n.Name, nameOf(n.Params))
	}
	b.WriteString("}\n")
	return []byte(b.String())
}

func comment(b *strings.Builder, text, indent string) {
	switch lines := wrapped(strings.ReplaceAll(text, "*/", "*\u200b/"), 92); len(lines) {
	case 0:
	case 1:
		fmt.Fprintf(b, "%s/** %s */\n", indent, lines[0])
	default:
		fmt.Fprintf(b, "%s/**\n", indent)
		for _, line := range lines {
			fmt.Fprintf(b, "%s * %s\n", indent, line)
		}
		fmt.Fprintf(b, "%s */\n", indent)
	}
}

func typescriptShape(s *Shape) string {
	switch s.Kind {
	case String, Time:
		if len(s.Values) > 0 {
			return quoted(s.Values, " | ")
		}
		return "string"
	case Integer, Number:
		return "number"
	case Boolean:
		return "boolean"
	case List:
		return "Array<" + typescriptShape(s.Elem) + ">"
	case Map:
		elem := typescriptShape(s.Elem)
		if s.Nulls {
			elem += " | null"
		}
		return "Record<string, " + elem + ">"
	case Named:
		return s.Name
	default:
		return "unknown"
	}
}
