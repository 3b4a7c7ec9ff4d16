package contract

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// Method is a method of the table, as far as the contract describes it.
type Method struct {
	Name    string
	Scope   string
	Summary string
	Params  reflect.Type
	Result  reflect.Type
	Sends   string // the notification that follows the answer, or ""
}

// Contract is the source of the generated files.
type Contract struct {
	Methods       []Method
	Notifications []Notification
	Types         []*Type // in dependency order: a type follows its parts
	Codes         []Code

	byName     map[string]*Type
	vocabulary *Vocabulary
	meanings   Meanings
}

// Notification is a message that the daemon sends without a request.
type Notification struct {
	Name   string
	Params reflect.Type
}

// Code is an error code with its JSON-RPC number.
type Code struct {
	Name   string
	Number int
}

// Type is an object, or a string with a closed set of values.
type Type struct {
	Name    string
	Doc     string
	Params  bool   // sent by a client: the daemon rejects unknown members
	Results bool   // sent by the daemon, which may add members
	Extends *Type  // nil: none
	Word    *Shape // objects only: what may stand instead of the object; nil: nothing
	Fields  []Field
	Values  []string          // string types only
	Means   map[string]string // of each value
}

// Field is a member of an object.
type Field struct {
	Name     string
	Meaning  string
	Required bool
	Nullable bool
	Zero     bool // an explicit zero value differs from an absent member
	Shape    *Shape
}

// Shape describes the form of a value.
type Shape struct {
	Kind   Kind
	Name   string   // Named
	Elem   *Shape   // List, Map
	Values []string // String: the allowed values, if not empty
	Nulls  bool     // Map: a value may be null

	Min, Max *float64 // Integer, Number: the range that the daemon accepts; nil: no bound
}

// Kind is the kind of a Shape.
type Kind int

// The kinds.
const (
	Any Kind = iota
	String
	Integer
	Number
	Boolean
	Time
	List
	Map
	Named
)

// names maps Go types to other names in the generated files: None is a keyword
// in Python, Code is too general for an error code, and Error is the error of a
// language.
var names = map[string]string{"None": "NoParams", "Code": "ErrorCode", "Error": "ErrorObject"}

// closedFields maps parameters of type string that accept only certain
// constants to the prefix of the constants' names.
var closedFields = map[string]string{
	"inherit_env": "Inherit", "view": "View", "encoding": "Base64", "stdin_encoding": "Base64",
}

// New builds the contract from the methods, the vocabulary of the api's source,
// and the text of the protocol page.
func New(methods []Method, vocabulary *Vocabulary, page string) (*Contract, error) {
	c := &Contract{
		Methods: methods, Notifications: Notifications(), byName: map[string]*Type{},
		vocabulary: vocabulary, meanings: ReadMeanings(page),
	}
	for _, m := range methods {
		if err := errors.Join(c.add(m.Params, true), c.add(m.Result, false)); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	for _, n := range c.Notifications {
		if err := c.add(n.Params, false); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	numbers := api.Codes()
	for _, name := range vocabulary.ofType("Code") {
		c.Codes = append(c.Codes, Code{Name: name, Number: numbers[api.Code(name)]})
	}
	if err := c.add(reflect.TypeFor[api.Code](), false); err != nil {
		return nil, err
	}
	c.byName["ErrorCode"].Means = c.meanings["errors"]
	return c, nil
}

// Notifications lists the notifications that the daemon and its relay send.
func Notifications() []Notification {
	var all []Notification
	for _, n := range []interface{ Method() string }{&api.Chunk{}, &api.SessionEvent{}, &api.Hello{}} {
		all = append(all, Notification{Name: n.Method(), Params: reflect.TypeOf(n).Elem()})
	}
	return all
}

// nameOf returns the name of a type in the generated files.
func nameOf(typ reflect.Type) string {
	if name, ok := names[typ.Name()]; ok {
		return name
	}
	return typ.Name()
}

// doc returns the doc comment of a type, which starts with its name.
func (c *Contract) doc(typ reflect.Type) string {
	return nameOf(typ) + strings.TrimPrefix(c.vocabulary.Types[typ.Name()], typ.Name())
}

var (
	timeType  = reflect.TypeFor[api.Time]()
	errorType = reflect.TypeFor[api.Error]() // the generated files have its form
)

// add adds a type and, before it, all types it consists of.
func (c *Contract) add(typ reflect.Type, params bool) error {
	name := nameOf(typ)
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return c.add(typ.Elem(), params)
	case reflect.String:
		if typ.Name() == "string" || c.byName[name] != nil {
			return nil
		}
		t := &Type{
			Name: name, Doc: c.doc(typ),
			Values: c.vocabulary.ofType(typ.Name()), Means: c.meanings["values "+typ.Name()],
		}
		if len(t.Values) == 0 {
			return fmt.Errorf("no constant of type %s", typ)
		}
		c.byName[name] = t
		c.Types = append(c.Types, t)
		return nil
	case reflect.Struct:
		switch typ {
		case timeType:
			return nil
		case errorType:
			return c.add(reflect.TypeFor[api.Code](), params)
		}
	default:
		return nil
	}
	t := c.byName[name]
	if t != nil && (t.Params || !params) && (t.Results || params) {
		return nil
	}
	known := t != nil
	if !known {
		t = &Type{Name: name, Doc: c.doc(typ)}
		c.byName[name] = t
	}
	t.Params, t.Results = t.Params || params, t.Results || !params
	for field := range FieldsOf(typ, params) {
		if err := c.add(field.Type, params); err != nil {
			return err
		}
		if known {
			continue // only the direction of its parts had to be updated
		}
		if field.Anonymous {
			t.Extends = c.byName[nameOf(field.Type)]
			continue
		}
		f, err := c.field(typ, field, params)
		if err != nil {
			return err
		}
		if field.Tag.Get("trl") == "word" {
			t.Word = f.Shape
		}
		if f.Name != "-" {
			t.Fields = append(t.Fields, f)
		}
	}
	if !known {
		c.Types = append(c.Types, t)
	}
	return nil
}

// objectName returns the name of the object: another one than the type's if
// something else may stand instead of the object.
func (t *Type) objectName() string {
	if t.Word != nil {
		return t.Name + "Object"
	}
	return t.Name
}

// FieldsOf returns the fields of a struct as the contract shows them.
// Parameters are one flat list, whichever structs they are composed of: a
// request accepts these and no others. A result that embeds another type is
// shown as an extension of it.
func FieldsOf(typ reflect.Type, params bool) iter.Seq[reflect.StructField] {
	if !params {
		return typ.Fields()
	}
	return func(yield func(reflect.StructField) bool) {
		for _, field := range reflect.VisibleFields(typ) {
			if !field.Anonymous && !yield(field) {
				return
			}
		}
	}
}

func (c *Contract) field(typ reflect.Type, field reflect.StructField, params bool) (Field, error) {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	f := Field{Name: name, Meaning: c.meanings["fields "+typ.Name()][name], Required: !strings.Contains(options, "omitempty")}
	f.Zero = field.Type.Kind() == reflect.Pointer
	f.Nullable = f.Required && f.Zero
	var err error
	f.Shape, err = shapeOf(field.Type)
	if prefix, ok := closedFields[name]; ok && params && f.Shape.Kind == String {
		f.Shape.Values = c.vocabulary.named(prefix)
	}
	return f, errors.Join(err, c.restrict(f.Shape, field.Tag))
}

// restrict adds to a shape what the tags of its field say about the value.
func (c *Contract) restrict(shape *Shape, tag reflect.StructTag) error {
	for key, to := range map[string]**float64{"min": &shape.Min, "max": &shape.Max} {
		if text, ok := tag.Lookup(key); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
			*to = &value
		}
	}
	words, ok := tag.Lookup("enum")
	if !ok {
		return nil
	}
	values := strings.Split(words, ",")
	if shape.Kind == String {
		shape.Values = values
	} else if named := c.byName[shape.Name].Values; !slices.Equal(named, values) {
		return fmt.Errorf("%s has the constants %q, and its field accepts %q", shape.Name, named, values)
	}
	return nil
}

func shapeOf(typ reflect.Type) (*Shape, error) {
	within := func(kind Kind) (*Shape, error) {
		elem, err := shapeOf(typ.Elem())
		return &Shape{Kind: kind, Elem: elem}, err
	}
	switch typ.Kind() {
	case reflect.Interface:
		return &Shape{Kind: Any}, nil
	case reflect.Bool:
		return &Shape{Kind: Boolean}, nil
	case reflect.Int, reflect.Int64:
		return &Shape{Kind: Integer}, nil
	case reflect.Float64:
		return &Shape{Kind: Number}, nil
	case reflect.Pointer:
		return shapeOf(typ.Elem())
	case reflect.Slice:
		return within(List)
	case reflect.Map:
		shape, err := within(Map)
		shape.Nulls = typ == reflect.TypeFor[api.Env]()
		return shape, err
	case reflect.String:
		if typ.Name() == "string" {
			return &Shape{Kind: String}, nil
		}
		return &Shape{Kind: Named, Name: nameOf(typ)}, nil
	case reflect.Struct:
		if typ == timeType {
			return &Shape{Kind: Time}, nil
		}
		return &Shape{Kind: Named, Name: nameOf(typ)}, nil
	default:
		return nil, fmt.Errorf("no contract shape for %s", typ)
	}
}

// split returns the required fields and the optional ones.
func (t *Type) split() (required, optional []Field) {
	for _, f := range t.Fields {
		if f.Required {
			required = append(required, f)
		} else {
			optional = append(optional, f)
		}
	}
	return required, optional
}

// wrapped splits text into lines of at most width characters.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return slices.DeleteFunc(append(lines, line), func(s string) bool { return s == "" })
}
