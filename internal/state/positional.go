package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// errPositional means that a value can't be decoded.
var errPositional = errors.New("state: cannot read value of format 2")

// PositionalReader reads format 2, in which fields had no tags and were read in
// the order in which they were written. After the first field that can't be
// read, all further fields are zero and Err returns an error. Nothing writes
// this format any more.
type PositionalReader struct {
	b   []byte
	err error
}

// Positional returns a reader for a value of format 2.
func Positional(b []byte) *PositionalReader { return &PositionalReader{b: b} }

// Err returns nil if every field could be read and none is left.
func (r *PositionalReader) Err() error {
	if r.err == nil && len(r.b) > 0 {
		return errPositional
	}
	return r.err
}

// More reports whether fields are left.
func (r *PositionalReader) More() bool { return len(r.b) > 0 }

func (r *PositionalReader) fail() { r.b, r.err = nil, errPositional }

// Int reads a signed number.
func (r *PositionalReader) Int() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

// Uint reads an unsigned number.
func (r *PositionalReader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

// skip skips a varint of n bytes. If n <= 0 the varint could not be decoded.
func (r *PositionalReader) skip(n int) {
	if n <= 0 {
		r.fail()
		return
	}
	r.b = r.b[n:]
}

// Byte reads one byte.
func (r *PositionalReader) Byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Bool reads a bool.
func (r *PositionalReader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.fail()
	}
	return v == 1
}

// Blob reads bytes. The result is a slice of the value itself.
func (r *PositionalReader) Blob() []byte {
	size := r.Uint()
	if size > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	p := r.b[:size]
	r.b = r.b[size:]
	return p
}

// Text reads a string.
func (r *PositionalReader) Text() string { return string(r.Blob()) }

// Texts reads a list of strings.
func (r *PositionalReader) Texts() []string {
	size := r.Uint()
	if size > uint64(len(r.b)) { // each takes at least one byte
		r.fail()
		return nil
	}
	var list []string
	for range size {
		list = append(list, r.Text())
	}
	return list
}

// Time reads a time.
func (r *PositionalReader) Time() time.Time {
	if n := r.Int(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// JSON2 decodes a value that format 2 stored as JSON.
func JSON2(b []byte, v any) error { return json.Unmarshal(b, v) }
