package api

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// appendText appends a JSON string.
func appendText(b []byte, v string) []byte {
	if !utf8.ValidString(v) { // a directory name may be any bytes
		b, _ = appendPlain(b, v) // a string can always be encoded
		return b
	}
	return append(appendEscaped(append(b, '"'), v), '"')
}

// appendPlain is appendValue without HTML escaping of < > and &.
func appendPlain(b []byte, v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...), err
}
