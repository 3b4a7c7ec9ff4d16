package session

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// maxKey bounds a key, in bytes: it is kept as long as what it is for.
const maxKey = 256

func checkKey(key string) error {
	if len(key) <= maxKey && printable.Line(key) {
		return nil
	}
	return api.Errorf(api.CodeInvalidParams, "a key must be at most %d bytes on one line", maxKey).With("field", "key").
		WithHint("a random identifier will do")
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// sum is a checksum of params. It is kept as long as their key, and is too short to
// reveal them.
type sum uint32

// sumOf returns the checksum of params. It is never 0, which means unknown.
func sumOf(params any) uint32 {
	var s sum
	s.add(reflect.ValueOf(params))
	return max(uint32(s), 1)
}

// add adds a value of any kind. Of a struct only the fields that are set count, by
// their names: so params that get another field later have the same sum without it.
func (s *sum) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		s.text(v.String())
	case reflect.Bool:
		s.number(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int64:
		s.number(uint64(v.Int()))
	case reflect.Float64:
		s.number(math.Float64bits(v.Float()))
	case reflect.Pointer:
		if v.IsNil() {
			s.number(0)
			return
		}
		s.number(1)
		s.add(v.Elem())
	case reflect.Slice:
		s.number(uint64(v.Len()))
		for i := range v.Len() {
			s.add(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		s.number(uint64(len(keys)))
		for _, key := range keys {
			s.text(key.String())
			s.add(v.MapIndex(key))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				s.text(v.Type().Field(i).Name)
				s.add(f)
			}
		}
	default:
		panic("session: no checksum for params of kind " + v.Kind().String())
	}
}

func (s *sum) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	*s = sum(crc32.Update(uint32(*s), sumTable, b[:]))
}

// text adds a text and its length, without copying all of it: it may be long.
func (s *sum) text(text string) {
	s.number(uint64(len(text)))
	var part [4 << 10]byte
	for len(text) > 0 {
		n := copy(part[:], text)
		*s, text = sum(crc32.Update(uint32(*s), sumTable, part[:n])), text[n:]
	}
}

// hashOf returns a hash that stands for a key, 0 for "".
func hashOf(key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(sum[:]) | 1
}
