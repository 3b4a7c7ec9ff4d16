package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// decoder decodes the parameters of one method into its params struct, in one
// pass. It rejects everything that the method would otherwise silently ignore
// or coerce: an unknown member (names match exactly), a value of another type,
// a null inside a list, a negative number.
//
// A field whose json tag has no omitempty is required. A null member counts as
// absent. If a member is given twice, the last one wins.
//
// Errors name fields and never include values: a value may be a secret.
type decoder struct {
	method string
	root   *node
}

// node describes the value that one place in the parameters accepts.
type node struct {
	kind   nodeKind
	typ    reflect.Type
	fields map[string]*field // nodeObject
	names  []string          // nodeObject: the fields in struct order
	word   *field            // nodeObject: what a string instead of the object sets; nil: a string is refused
	elem   *node             // nodePointer, nodeList, nodeMap
	unset  bool              // nodeMap: a null value means api.Unset
	enum   []string          // nodeString: the accepted values; nil: any

	min, max float64 // nodeInteger, nodeNumber: the accepted range
}

type nodeKind uint8

const (
	nodeFree    nodeKind = iota // any value, decoded by encoding/json
	nodeString                  // also named string types
	nodeBool                    //
	nodeInteger                 // never negative: no parameter of the contract takes one
	nodeNumber                  //
	nodePointer                 // to tell absent from zero
	nodeObject                  // a struct
	nodeList                    //
	nodeMap                     // with arbitrary keys
)

type field struct {
	*node
	name     string
	bit      int   // in the set of fields that are present
	index    []int // of the field in the struct, through embedded structs
	required bool
}

func newDecoder(method string, params reflect.Type) *decoder {
	return &decoder{method: method, root: compile(params)}
}

func compile(t reflect.Type) *node {
	n := &node{typ: t}
	switch t.Kind() {
	case reflect.String:
		n.kind = nodeString
	case reflect.Bool:
		n.kind = nodeBool
	case reflect.Int, reflect.Int64:
		n.kind, n.max = nodeInteger, math.MaxInt64
	case reflect.Float64:
		n.kind, n.max = nodeNumber, math.MaxFloat64
	case reflect.Pointer:
		n.kind, n.elem = nodePointer, compile(t.Elem())
	case reflect.Slice:
		n.kind, n.elem = nodeList, compile(t.Elem())
	case reflect.Map:
		n.kind, n.elem, n.unset = nodeMap, compile(t.Elem()), t == reflect.TypeFor[api.Env]()
	case reflect.Struct:
		n.kind, n.fields = nodeObject, map[string]*field{}
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous {
				continue // its fields follow
			}
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				panic("service: " + t.String() + "." + f.Name + " has no json name")
			}
			of := &field{
				node: compile(f.Type), name: name, bit: len(n.names), index: f.Index,
				required: !strings.Contains(options, "omitempty"),
			}
			of.restrict(f.Tag)
			if f.Tag.Get("trl") == "word" {
				n.word = of
			}
			if name != "-" {
				n.fields[name] = of
				n.names = append(n.names, name)
			}
		}
	}
	return n
}

// restrict narrows the accepted values to what the tags of a field name.
func (n *node) restrict(tag reflect.StructTag) {
	number := func(key string, to *float64) {
		if text, ok := tag.Lookup(key); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic("service: the tag " + key + " is not a number: " + text)
			}
			*to = value
		}
	}
	number("min", &n.min)
	number("max", &n.max)
	if words, ok := tag.Lookup("enum"); ok {
		n.enum = strings.Split(words, ",")
	}
}

// expected describes the accepted value, in words that follow "must be".
func (n *node) expected() string {
	switch n.kind {
	case nodeString:
		if n.enum != nil {
			return `"` + strings.Join(n.enum, `" or "`) + `"`
		}
		return "a string"
	case nodeBool:
		return "true or false"
	case nodeInteger:
		return "an integer"
	case nodeNumber:
		return "a number"
	case nodePointer:
		return n.elem.expected()
	case nodeList:
		return "an array, each element " + n.elem.expected()
	case nodeMap:
		if n.elem.kind != nodeFree {
			if n.unset {
				return "an object, each value " + n.elem.expected() + " or null"
			}
			return "an object, each value " + n.elem.expected()
		}
		return "an object"
	case nodeObject:
		if n.word != nil {
			return n.word.expected() + " or an object"
		}
		return "an object"
	default:
		return "a JSON value"
	}
}

// into decodes params into v. Empty and null params count as {}.
func (d *decoder) into(v reflect.Value, params json.RawMessage) error {
	s := rawjson.Scan(params)
	switch {
	case len(params) == 0:
		s = rawjson.Scan([]byte("{}"))
	case s.Kind() == rawjson.Null:
		if _, err := s.Value(); err != nil {
			return d.malformed(err)
		}
		if err := s.End(); err != nil {
			return d.malformed(err)
		}
		s = rawjson.Scan([]byte("{}"))
	case s.Kind() == rawjson.Array:
		return d.invalid("params must be an object, not an array").
			WithHint("send params by name: %s", d.known(d.root))
	case s.Kind() != rawjson.Object:
		return d.invalid("params must be an object").WithHint("send params by name: %s", d.known(d.root))
	}
	if err := d.value(&s, d.root, v, ""); err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return d.malformed(err)
	}
	return nil
}

func (d *decoder) value(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	switch n.kind {
	case nodeString:
		return d.string(s, n, n, v, path)
	case nodeBool:
		raw, err := d.scalar(s, rawjson.Bool, n, path)
		if err == nil {
			v.SetBool(raw[0] == 't')
		}
		return err
	case nodeInteger:
		return d.integer(s, n, v, path)
	case nodeNumber:
		return d.number(s, n, v, path)
	case nodePointer:
		p := reflect.New(n.elem.typ)
		if err := d.value(s, n.elem, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case nodeObject:
		if n.word != nil && s.Kind() == rawjson.String {
			return d.string(s, n.word.node, n, v.FieldByIndex(n.word.index), path)
		}
		return d.object(s, n, v, path)
	case nodeList:
		return d.list(s, n, v, path)
	case nodeMap:
		return d.dict(s, n, v, path)
	default:
		raw, err := s.Value()
		if err != nil {
			return d.malformed(err)
		}
		if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
			return d.wrongType(n, path)
		}
		return nil
	}
}

// scalar returns the text of the next value, which must be of the given kind.
func (d *decoder) scalar(s *rawjson.Scanner, kind rawjson.Kind, n *node, path string) ([]byte, error) {
	got := s.Kind()
	raw, err := s.Value()
	if err != nil {
		return nil, d.malformed(err)
	}
	if got != kind {
		return nil, d.wrongType(n, path)
	}
	return raw, nil
}

// string decodes a string, in a place that accepts what describes it says.
func (d *decoder) string(s *rawjson.Scanner, n, describes *node, v reflect.Value, path string) error {
	raw, err := d.scalar(s, rawjson.String, describes, path)
	if err != nil {
		return err
	}
	text, err := rawjson.Unquote(raw)
	if err != nil {
		return d.wrong(path, "contains %w", err).
			WithHint("send valid Unicode text; send other bytes as base64, if the method takes an encoding")
	}
	if n.enum != nil && !slices.Contains(n.enum, text) {
		return d.wrongType(describes, path)
	}
	v.SetString(text)
	return nil
}

// maxMS is the longest duration that fits a time.Duration. A longer one would
// overflow and mean "at once".
const maxMS = math.MaxInt64 / int64(time.Millisecond)

func (d *decoder) integer(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	raw, err := d.scalar(s, rawjson.Number, n, path)
	if err != nil {
		return err
	}
	i, err := strconv.ParseInt(string(raw), 10, n.typ.Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return d.outOfRange(n, path, "is out of range")
	case err != nil:
		return d.wrongType(n, path)
	case n.min == 0 && i < 0:
		return d.outOfRange(n, path, "must not be negative")
	case i > maxMS && strings.HasSuffix(path, "_ms"):
		return d.wrong(path, "is too long").WithHint("send at most %d milliseconds", maxMS)
	case float64(i) < n.min || float64(i) > n.max:
		return d.outOfRange(n, path, "is out of range")
	}
	v.SetInt(i)
	return nil
}

func (d *decoder) number(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	raw, err := d.scalar(s, rawjson.Number, n, path)
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < n.min || f > n.max { // JSON numbers are finite, so an error means too large
		return d.outOfRange(n, path, "is out of range")
	}
	v.SetFloat(f)
	return nil
}

func (d *decoder) object(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	if s.Kind() != rawjson.Object {
		return d.wrongType(n, path)
	}
	if err := s.Enter(); err != nil {
		return d.malformed(err)
	}
	var given uint64 // bit i: field i of the struct; every params struct has far fewer than 64
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if err != nil {
			return d.malformed(err)
		}
		if !ok {
			break
		}
		f, ok := n.fields[string(key)]
		if !ok {
			return d.unknown(n, path, string(key))
		}
		v.FieldByIndex(f.index).SetZero()
		if s.Kind() == rawjson.Null {
			if _, err := s.Value(); err != nil {
				return d.malformed(err)
			}
			given &^= 1 << f.bit
			continue
		}
		given |= 1 << f.bit
		if err := d.value(s, f.node, v.FieldByIndex(f.index), join(path, f.name)); err != nil {
			return err
		}
	}
	for _, name := range n.names {
		f, at := n.fields[name], join(path, name)
		if !f.required {
			continue
		}
		if given&(1<<f.bit) == 0 {
			return missing(d.method, at, at+" is missing")
		}
		// An empty id is invalid; every other string may be empty, including a
		// command.
		if strings.HasSuffix(name, "_id") && v.FieldByIndex(f.index).IsZero() {
			return missing(d.method, at, at+" is empty")
		}
	}
	return nil
}

func (d *decoder) list(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	if s.Kind() != rawjson.Array {
		return d.wrongType(n, path)
	}
	if err := s.Enter(); err != nil {
		return d.malformed(err)
	}
	list := reflect.MakeSlice(n.typ, 0, 0)
	for i := 0; ; i++ {
		ok, err := s.Element(i == 0)
		if err != nil {
			return d.malformed(err)
		}
		if !ok {
			v.Set(list)
			return nil
		}
		elem := reflect.New(n.elem.typ).Elem()
		if err := d.value(s, n.elem, elem, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
		list = reflect.Append(list, elem)
	}
}

func (d *decoder) dict(s *rawjson.Scanner, n *node, v reflect.Value, path string) error {
	if s.Kind() != rawjson.Object {
		return d.wrongType(n, path)
	}
	if err := s.Enter(); err != nil {
		return d.malformed(err)
	}
	dict := reflect.MakeMap(n.typ)
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if err != nil {
			return d.malformed(err)
		}
		if !ok {
			v.Set(dict)
			return nil
		}
		name := string(key) // copied: key points into the text, and the map outlives it
		elem := reflect.New(n.elem.typ).Elem()
		if n.unset && s.Kind() == rawjson.Null {
			if _, err := s.Value(); err != nil {
				return d.malformed(err)
			}
			elem.SetString(api.Unset)
		} else if err := d.value(s, n.elem, elem, join(path, clip(name))); err != nil {
			return err
		} else if n.unset && elem.String() == api.Unset {
			return d.wrong(join(path, clip(name)), "has a NUL byte").WithHint("send null to unset a variable")
		}
		dict.SetMapIndex(reflect.ValueOf(name), elem)
	}
}
