package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// errNoObject is the error for text that is not one JSON object.
var errNoObject = errors.New("not a JSON object")

// members calls fn with each member of a JSON object. The text of a member, after
// the comma, is raw[start:end]. Every byte of raw is checked.
func members(raw []byte, fn func(key, value []byte, start, end int)) error {
	s := rawjson.Scan(raw)
	if s.Kind() != rawjson.Object {
		return errNoObject
	}
	if err := s.Enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		start := s.Offset()
		key, ok, err := s.Key(first)
		if err != nil {
			return err
		}
		if !ok {
			return s.End()
		}
		value, err := s.Value()
		if err != nil {
			return err
		}
		fn(key, value, start, s.Offset())
	}
}

// member returns the value of the last member with this name, as a decoder takes
// it; nil if there is none.
func member(raw []byte, name string) (found json.RawMessage, err error) {
	err = members(raw, func(key, value []byte, _, _ int) {
		if string(key) == name {
			found = value
		}
	})
	return found, err
}

// set returns a copy of an object in which the only member of this name, now the
// first, has the value; nil removes the member. The other members keep their bytes
// and their order. Without text, raw counts as an empty object.
func set(raw []byte, name string, value []byte) (json.RawMessage, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	out := append(make([]byte, 0, len(raw)+len(name)+len(value)+len(`"":,`)), '{')
	empty := true
	if value != nil {
		out = append(append(append(append(out, '"'), name...), `":`...), value...)
		empty = false
	}
	err := members(raw, func(key, _ []byte, start, end int) {
		if string(key) == name {
			return
		}
		start += bytes.IndexByte(raw[start:], '"') // after the comma
		if !empty {
			out = append(out, ',')
		}
		out, empty = append(out, raw[start:end]...), false
	})
	if err != nil {
		return nil, err
	}
	return append(out, '}'), nil
}

// insert returns a copy of a valid object with a first member of a name that it does
// not have yet. Without text, raw counts as an empty object.
func insert(raw []byte, name string, value []byte) json.RawMessage {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	rest := bytes.TrimLeft(raw[bytes.IndexByte(raw, '{')+1:], " \t\r\n")
	out := append(make([]byte, 0, len(rest)+len(name)+len(value)+len(`{"":,`)), `{"`...)
	out = append(append(append(out, name...), `":`...), value...)
	if rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// stringOf returns the text of a JSON string; false for other kinds.
func stringOf(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	value, err := rawjson.Unquote(raw)
	return value, err == nil
}

// quote returns a string as JSON.
func quote(text string) json.RawMessage {
	raw, _ := json.Marshal(text) // a string always encodes
	return raw
}

// quoteNumber returns a number as JSON.
func quoteNumber(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

// number reads an offset, or a number of bytes.
func number(raw []byte) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("an offset or a size is not a number")
	}
	return n, nil
}
