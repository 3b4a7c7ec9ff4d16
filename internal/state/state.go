// Package state encodes values that outlive the process that wrote them. Fields
// are tagged, so that old and new versions can read each other's values.
//
// A value is a list of fields, each a key and its content. The key is the
// field's tag, shifted by one, and its kind: a number (zigzag varint) or bytes
// (a length, followed by the bytes). Tags ascend. A field that has its zero
// value is not written. A reader skips tags that it does not know, and does not
// change a field whose tag is missing.
//
// One function describes a value in both directions:
//
//	func (p *point) fields(c *state.Coder) {
//		state.Int(c, 1, &p.x)
//		state.Int(c, 2, &p.y)
//	}
//
//	state.Encode(p.fields), state.Decode(b, p.fields)
//
// Rules for changing such a function: a tag keeps its meaning and its kind
// forever; a new field gets the next free tag; the tag of a removed field is
// never reused.
package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrDamaged means that a value can't be decoded.
var ErrDamaged = errors.New("state: value is damaged")

// kind is the encoding of a field's content.
type kind uint64

const (
	number kind = 0
	blob   kind = 1
)

// Coder writes or reads the fields of one value. The zero value is a writer.
type Coder struct {
	b       []byte // written so far, or left to read
	reading bool
	last    uint64 // tag of the last field
	err     error  // of a reader; the first error is kept

	// The field that a reader has read but not used yet.
	peeked bool
	tag    uint64
	kind   kind
	num    int64
	text   []byte // a slice of the value itself
}

// Encode returns the value that fields describes.
func Encode(fields func(*Coder)) []byte { return Append(nil, fields) }

// Append appends the value that fields describes to b.
func Append(b []byte, fields func(*Coder)) []byte {
	c := Writer(b)
	fields(&c)
	return c.Value()
}

// Writer returns a Coder that appends to b. It is for values that are written
// with every command: functions that describe them, called directly, do not
// allocate.
func Writer(b []byte) Coder { return Coder{b: b} }

// Value returns what was written.
func (c *Coder) Value() []byte { return c.b }

// Decode reads a value. The fields do not share memory with b. After an error
// the fields must not be used.
func Decode(b []byte, fields func(*Coder)) error {
	c := Coder{b: b, reading: true}
	fields(&c)
	for c.err == nil && (c.peeked || len(c.b) > 0) { // tags of a newer writer
		if !c.peeked {
			c.readField()
		}
		c.peeked = false
	}
	return c.err
}

// FirstText returns the field with tag 1 if b starts with it, otherwise "".
func FirstText(b []byte) string {
	c := Coder{b: b, reading: true}
	if !c.find(1, blob) {
		return ""
	}
	return string(c.text)
}

// Reading reports whether fields are being read, for functions that derive
// something from them.
func (c *Coder) Reading() bool { return c.reading }

// Fail makes Decode return err, for a field whose value is impossible.
func (c *Coder) Fail(err error) {
	if c.reading && c.err == nil {
		c.err = err
	}
}

// setTag records the tag of the next field. It panics if tags do not ascend.
func (c *Coder) setTag(tag uint64) {
	if tag <= c.last {
		panic(fmt.Sprintf("state: tag %d used after tag %d", tag, c.last))
	}
	c.last = tag
}

// readField reads the next field.
func (c *Coder) readField() {
	key := c.uvarint()
	if key>>1 <= c.tag {
		c.damaged() // tags must ascend
		return
	}
	c.tag, c.kind = key>>1, kind(key&1)
	if c.kind == number {
		n, size := binary.Varint(c.b)
		if size <= 0 {
			c.damaged()
			return
		}
		c.num, c.b = n, c.b[size:]
	} else {
		n := c.uvarint()
		if n > uint64(len(c.b)) {
			c.damaged()
			return
		}
		c.text, c.b = c.b[:n:n], c.b[n:]
	}
	c.peeked = c.err == nil
}

func (c *Coder) uvarint() uint64 {
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.damaged()
		return 0
	}
	c.b = c.b[size:]
	return n
}

func (c *Coder) damaged() {
	c.Fail(ErrDamaged)
	c.b, c.peeked = nil, false
}

// find reports whether the value has the field, and consumes it.
func (c *Coder) find(tag uint64, k kind) bool {
	for c.err == nil {
		if !c.peeked {
			if len(c.b) == 0 {
				return false
			}
			c.readField()
			continue
		}
		switch {
		case c.tag > tag:
			return false
		case c.tag < tag: // unknown to this version
			c.peeked = false
		case c.kind != k:
			c.damaged()
		default:
			c.peeked = false
			return true
		}
	}
	return false
}

// integer lists the types that are stored as a number.
type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Int encodes or decodes a number.
func Int[T integer](c *Coder, tag uint64, p *T) {
	c.setTag(tag)
	if !c.reading {
		if *p != 0 {
			c.putNumber(tag, int64(*p))
		}
		return
	}
	if c.find(tag, number) {
		*p = T(c.num)
		if int64(*p) != c.num {
			c.damaged() // it does not fit
		}
	}
}

func (c *Coder) putNumber(tag uint64, n int64) {
	c.b = binary.AppendUvarint(c.b, tag<<1|uint64(number))
	c.b = binary.AppendVarint(c.b, n)
}

// Bool encodes or decodes a bool.
func Bool(c *Coder, tag uint64, p *bool) {
	c.setTag(tag)
	if !c.reading {
		if *p {
			c.putNumber(tag, 1)
		}
		return
	}
	if c.find(tag, number) {
		*p = c.num != 0
	}
}

// Time encodes or decodes a time with nanosecond precision, without its
// location.
func Time(c *Coder, tag uint64, p *time.Time) {
	var n int64
	if !c.reading && !p.IsZero() {
		n = p.UnixNano()
	}
	if Int(c, tag, &n); c.reading && n != 0 {
		*p = time.Unix(0, n)
	}
}

// Text encodes or decodes a string.
func Text[T ~string](c *Coder, tag uint64, p *T) {
	c.setTag(tag)
	if !c.reading {
		putBlob(c, tag, *p)
		return
	}
	if c.find(tag, blob) {
		*p = T(c.text)
	}
}

// Bytes encodes or decodes a byte slice.
func Bytes(c *Coder, tag uint64, p *[]byte) {
	c.setTag(tag)
	if !c.reading {
		putBlob(c, tag, *p)
		return
	}
	if c.find(tag, blob) {
		*p = append([]byte(nil), c.text...)
	}
}

func putBlob[T ~string | ~[]byte](c *Coder, tag uint64, v T) {
	if len(v) > 0 {
		c.putLength(tag, len(v))
		c.b = append(c.b, v...)
	}
}

func (c *Coder) putLength(tag uint64, n int) {
	c.b = binary.AppendUvarint(c.b, tag<<1|uint64(blob))
	c.b = binary.AppendUvarint(c.b, uint64(n))
}

// Texts encodes or decodes a list of strings.
func Texts(c *Coder, tag uint64, p *[]string) {
	List(c, tag, p, func(c *Coder, s *string) { Text(c, 1, s) })
}

// Optional encodes or decodes a nested value, or nil.
func Optional[T any](c *Coder, tag uint64, p **T, fields func(*Coder, *T)) {
	c.setTag(tag)
	if !c.reading {
		if *p != nil {
			c.putValue(tag, func(c *Coder) { fields(c, *p) })
		}
		return
	}
	if c.find(tag, blob) {
		v := new(T)
		c.value(c.text, func(c *Coder) { fields(c, v) })
		*p = v
	}
}

// List encodes or decodes a list of nested values. An empty list and nil are
// the same.
func List[T any](c *Coder, tag uint64, p *[]T, fields func(*Coder, *T)) {
	c.setTag(tag)
	if !c.reading {
		if len(*p) > 0 {
			list := Coder{}
			for i := range *p {
				item := Coder{}
				fields(&item, &(*p)[i])
				list.b = binary.AppendUvarint(list.b, uint64(len(item.b)))
				list.b = append(list.b, item.b...)
			}
			c.putLength(tag, len(list.b))
			c.b = append(c.b, list.b...)
		}
		return
	}
	if !c.find(tag, blob) {
		return
	}
	list := Coder{b: c.text, reading: true}
	var out []T
	for len(list.b) > 0 && c.err == nil {
		n := list.uvarint()
		if list.err != nil || n > uint64(len(list.b)) {
			c.damaged()
			return
		}
		var v T
		c.value(list.b[:n:n], func(c *Coder) { fields(c, &v) })
		out, list.b = append(out, v), list.b[n:]
	}
	*p = out
}

func (c *Coder) putValue(tag uint64, fields func(*Coder)) {
	b := Encode(fields)
	c.putLength(tag, len(b))
	c.b = append(c.b, b...)
}

// value reads a nested value.
func (c *Coder) value(b []byte, fields func(*Coder)) {
	if err := Decode(b, fields); err != nil {
		c.Fail(err)
		c.damaged()
	}
}
