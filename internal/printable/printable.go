// Package printable escapes untrusted text for TRL's own output: a table, a log, an
// error, or a reply to a model. Names, directories, arguments of processes and the
// like come from untrusted programs. Characters that could move a cursor, change the
// direction of text, be invisible or start a line that looks like TRL's own are shown
// as escapes.
//
// It is not for the output of commands, which TRL passes on unchanged.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden reports whether a rune is shown as an escape: control characters (C0, DEL,
// C1), format characters such as bidi controls and tags, separators other than the
// space, private and unassigned characters, and invalid UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// Text returns s with escapes for invisible characters. Backslashes are not escaped,
// so the result is for readers and cannot be parsed back.
func Text(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// Word returns s if it is one plain word, and otherwise s in double quotes with
// escapes, so that a reader sees where it begins and ends.
func Word(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return hidden(r) || strings.ContainsRune(` "'\·;[]{}`, r) }) < 0 {
		return s
	}
	return `"` + Text(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)) + `"`
}

// Line reports whether s is suitable as a name: one line of valid UTF-8 without
// control characters, bidi controls, tags and other invisible format characters.
// U+200C and U+200D, which scripts and emoji need, are allowed.
func Line(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		switch {
		case r >= ' ' && r <= '~', r == '\u200c', r == '\u200d':
			return false
		case r >= 0xe0000 && r <= 0xe007f: // tags, assigned or not
			return true
		}
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}) < 0
}

// JSON returns JSON of the same value with invisible characters written as \uXXXX.
// Outside of strings JSON has no such characters except line breaks and tabs, which
// stay. raw is not changed.
func JSON(raw []byte) []byte {
	at := 0
	for at < len(raw) && raw[at] < 0x7f {
		at++
	}
	if at == len(raw) {
		return raw
	}
	out := append(make([]byte, 0, len(raw)+64), raw[:at]...)
	for at < len(raw) {
		r, size := utf8.DecodeRune(raw[at:])
		switch {
		case r < 0x7f || !hidden(r):
			out = append(out, raw[at:at+size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default: // for invalid UTF-8, r is U+FFFD, as for every JSON reader
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		at += size
	}
	return out
}
