//go:build linux

package ledger

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// Writer puts fields one after the other. Its zero value is ready.
type Writer struct{ b []byte }

// Bytes is what was written.
func (w *Writer) Bytes() []byte { return w.b }

// Int writes a number.
func (w *Writer) Int(n int64) { w.b = binary.AppendVarint(w.b, n) }

// Bool writes a truth.
func (w *Writer) Bool(v bool) {
	n := byte(0)
	if v {
		n = 1
	}
	w.b = append(w.b, n)
}

// Text writes text or bytes.
func (w *Writer) Text(s string) {
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

// Blob writes bytes.
func (w *Writer) Blob(p []byte) {
	w.b = binary.AppendUvarint(w.b, uint64(len(p)))
	w.b = append(w.b, p...)
}

// Texts writes a list.
func (w *Writer) Texts(list []string) {
	w.b = binary.AppendUvarint(w.b, uint64(len(list)))
	for _, s := range list {
		w.Text(s)
	}
}

// Time writes a moment, without its place.
func (w *Writer) Time(t time.Time) {
	if t.IsZero() {
		w.Int(0)
		return
	}
	w.Int(t.UnixNano())
}

// errValue says that a value is not what its writer wrote.
var errValue = errors.New("ledger: a value that can't be read")

// Reader takes fields in the order they were written. After the first that
// can't be read all are empty, and Err says so.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads a value.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err is nil if every field could be read and none is left.
func (r *Reader) Err() error {
	if r.err == nil && len(r.b) > 0 {
		return errValue
	}
	return r.err
}

// More reports whether fields are left.
func (r *Reader) More() bool { return len(r.b) > 0 }

func (r *Reader) fail() { r.b, r.err = nil, errValue }

// Int reads a number.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Bool reads a truth.
func (r *Reader) Bool() bool {
	if len(r.b) == 0 || r.b[0] > 1 {
		r.fail()
		return false
	}
	v := r.b[0] == 1
	r.b = r.b[1:]
	return v
}

// Blob reads bytes, which are those of the value itself.
func (r *Reader) Blob() []byte {
	size, n := binary.Uvarint(r.b)
	if n <= 0 || size > uint64(len(r.b)-n) {
		r.fail()
		return nil
	}
	p := r.b[n : n+int(size)]
	r.b = r.b[n+int(size):]
	return p
}

// Text reads text.
func (r *Reader) Text() string { return string(r.Blob()) }

// Texts reads a list.
func (r *Reader) Texts() []string {
	size, n := binary.Uvarint(r.b)
	if n <= 0 || size > uint64(len(r.b)-n) { // each takes a byte at least
		r.fail()
		return nil
	}
	r.b = r.b[n:]
	var list []string
	for range size {
		list = append(list, r.Text())
	}
	return list
}

// Time reads a moment.
func (r *Reader) Time() time.Time {
	if n := r.Int(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// EncodeSlowly makes a value of a struct whose fields are exported, for what is
// not written with every command. A later version may add fields.
func EncodeSlowly(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this program have nothing that JSON can't hold
	}
	return b
}

// DecodeSlowly reads it again.
func DecodeSlowly(b []byte, v any) error { return json.Unmarshal(b, v) }
