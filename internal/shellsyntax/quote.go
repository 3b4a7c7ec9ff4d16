package shellsyntax

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote returns text as a word of a command, or the beginning of one, in the style
// of a word that began with the given quote: ', ", or 0 for none. With closed the
// word has ended. ok is false if this dialect can't write the text on a command
// line.
func Quote(text string, quote rune, closed bool, d Dialect) (word string, ok bool) {
	if strings.IndexFunc(text, unprintable) >= 0 || !utf8.ValidString(text) {
		if d.DollarQuotes {
			return dollarQuoted(text), true
		}
		if !utf8.ValidString(text) {
			return "", false
		}
		return singleQuoted(text, closed), true
	}
	switch quote {
	case '\'':
		return singleQuoted(text, closed), true
	case '"':
		word = `"` + escape(text, "\"\\$`")
		if closed {
			word += `"`
		}
		return word, true
	}
	return escape(text, " '\"\\$`&|;<>()*?[]{}#~!^="), true
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func escape(text, special string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func singleQuoted(text string, closed bool) string {
	word := `'` + strings.ReplaceAll(text, `'`, `'\''`)
	if closed {
		word += `'`
	}
	return word
}

// dollarQuoted writes every byte that is not printable ASCII as an escape. It is
// always closed: text may follow it.
func dollarQuoted(text string) string {
	var b strings.Builder
	b.WriteString(`$'`)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ' && c < 0x7f:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	return b.String() + `'`
}
