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
	text := raw[1 : len(raw)-1]
	if plain(raw) {
		return string(text), nil
	}
	// An escape is never shorter than the character it stands for.
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		c := text[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		c = text[i+1]
		i += 2
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
			r, _ := hex4(text[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if bytes.HasPrefix(text[i:], []byte(`\u`)) {
					low, ok = hex4(text[i+2:])
				}
				if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
					return "", ErrSurrogate
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default: // the quote, the backslash and the slash stand for themselves
			out = append(out, c)
		}
	}
	return string(out), nil
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
