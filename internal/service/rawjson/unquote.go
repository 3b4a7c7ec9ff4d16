package rawjson

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrSurrogate is Unquote's only error: an escape that is half of a surrogate
// pair stands for no character. encoding/json would replace it with U+FFFD, and
// the daemon would run a command that the client did not write.
var ErrSurrogate = errors.New("an escape that is half of a surrogate pair")

// plain reports whether a string has no escapes, so that its text is its value.
func plain(raw []byte) bool { return bytes.IndexByte(raw, '\\') < 0 }

// Unquote returns the value of a string whose text was returned by Value.
func Unquote(raw []byte) (string, error) {
	value, half := unquote(raw)
	if half {
		return "", ErrSurrogate
	}
	return value, nil
}

// Text is Unquote for text that nothing executes: half of a surrogate pair becomes
// U+FFFD, as in encoding/json. Programs cut texts anywhere.
func Text(raw []byte) string {
	value, _ := unquote(raw)
	return value
}

// unquote reports whether half of a surrogate pair is in the string.
func unquote(raw []byte) (value string, half bool) {
	text := raw[1 : len(raw)-1]
	if plain(raw) {
		return string(text), false
	}
	// An escape is never shorter than the character it stands for.
	out := make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return string(append(out, text...)), half
		}
		out = append(out, text[:i]...)
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(text)
			text = text[4:]
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if bytes.HasPrefix(text, []byte(`\u`)) {
					low, ok = hex4(text[2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					text = text[6:]
				} else {
					r, half = utf8.RuneError, true
				}
			}
			out = utf8.AppendRune(out, r)
		default: // the quote, the backslash and the slash stand for themselves
			out = append(out, c)
		}
	}
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
