// Package state encodes what outlives the process that wrote it: tagged fields,
// so that old readers and new writers can meet.
//
// A value is a list of fields, each a key and its content. The key is the
// field's tag, shifted by one, and its kind: a number (zigzag varint) or bytes
// (a length and so many bytes). Tags ascend. A field that has its zero value is
// not written. A reader skips tags that it does not know, and leaves a field
// whose tag is missing as it is.
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
// Rules for whoever changes such a function: a tag keeps its meaning and its
// kind for good; a new field gets the next free tag; the tag of a field that is
// not needed any more is not used again.
package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrDamaged says that a value is not a list of fields.
var ErrDamaged = errors.New("state: value is damaged")

// kind is how the content of a field is written.
type kind uint64

const (
	number kind = 0
	blob   kind = 1
)

// Coder writes or reads the fields of one value. Its zero value writes.
type Coder struct {
	b       []byte // what was written, or what is left to read
	reading bool
	last    uint64 // tag of the last field
	err     error  // of a reader; the first one stays

	// The field that a reader has seen and not taken yet.
	peeked bool
	tag    uint64
	kind   kind
	num    int64
	text   []byte // a part of the value itself
}

// Encode returns the value that fields describes.
func Encode(fields func(*Coder)) []byte { return Append(nil, fields) }

// Append adds the value that fields describes to b.
func Append(b []byte, fields func(*Coder)) []byte {
	c := Writer(b)
	fields(&c)
	return c.Value()
}

// Writer returns a Coder that adds to b, for values that are written with every
// command: called directly, the functions that describe them cost no allocation.
func Writer(b []byte) Coder { return Coder{b: b} }

// Value returns what was written.
func (c *Coder) Value() []byte { return c.b }

// Decode reads a value. What it stores does not share memory with b. After an
// error the fields are not to be used.
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

// FirstText returns the field with tag 1 of a value that begins with it, and "" of
// another.
func FirstText(b []byte) string {
	c := Coder{b: b, reading: true}
	if !c.find(1, blob) {
		return ""
	}
	return string(c.text)
}

// Reading reports whether fields are read, for what must be made of them.
func (c *Coder) Reading() bool { return c.reading }

// Fail makes Decode return err: a field can't be what was read.
func (c *Coder) Fail(err error) {
	if c.reading && c.err == nil {
		c.err = err
	}
}

// use notes that the field with this tag is next.
func (c *Coder) setTag(tag uint64) {
	if tag <= c.last {
		panic(fmt.Sprintf("state: tag %d comes after %d", tag, c.last))
	}
	c.last = tag
}

// look reads the next field.
func (c *Coder) readField() {
	key := c.uvarint()
	if key>>1 <= c.tag {
		c.damaged() // tags ascend
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

// find reports whether the value has the field, which is taken.
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
		case c.tag < tag: // not known here
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

// integer is every type that is kept as a number.
type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Int is a field that is a number.
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

// Bool is a field that is true or false.
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

// Time is a field that is a moment, without its location and to the nanosecond.
func Time(c *Coder, tag uint64, p *time.Time) {
	var n int64
	if !c.reading && !p.IsZero() {
		n = p.UnixNano()
	}
	if Int(c, tag, &n); c.reading && n != 0 {
		*p = time.Unix(0, n)
	}
}

// Text is a field that is a string.
func Text[T ~string](c *Coder, tag uint64, p *T) {
	c.setTag(tag)
	if !c.reading {
		if len(*p) > 0 {
			c.putLength(tag, len(*p))
			c.b = append(c.b, *p...)
		}
		return
	}
	if c.find(tag, blob) {
		*p = T(c.text)
	}
}

// Bytes is a field that is bytes.
func Bytes(c *Coder, tag uint64, p *[]byte) {
	c.setTag(tag)
	if !c.reading {
		if len(*p) > 0 {
			c.putLength(tag, len(*p))
			c.b = append(c.b, *p...)
		}
		return
	}
	if c.find(tag, blob) {
		*p = append([]byte(nil), c.text...)
	}
}

func (c *Coder) putLength(tag uint64, n int) {
	c.b = binary.AppendUvarint(c.b, tag<<1|uint64(blob))
	c.b = binary.AppendUvarint(c.b, uint64(n))
}

// Texts is a field that is a list of strings.
func Texts(c *Coder, tag uint64, p *[]string) {
	List(c, tag, p, func(c *Coder, s *string) { Text(c, 1, s) })
}

// Optional is a field that is a value of its own, or nil.
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

// List is a field that is a list of values. An empty list and nil are the same.
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

// value reads a value within this one.
func (c *Coder) value(b []byte, fields func(*Coder)) {
	if err := Decode(b, fields); err != nil {
		c.Fail(err)
		c.damaged()
	}
}
