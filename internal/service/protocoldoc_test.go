package service

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/contract"
)

// The protocol document is prose around tables. The rows of a table are
// generated from the method table and the types of the api; the last column is
// written by hand and kept. Each table is preceded by a marker:
//
//	<!-- rows: fields ExecRunParams -->
//
//	go test ./internal/service -run ProtocolDocument -update
//
// updates the rows. The test fails until every row has a meaning.
var update = flag.Bool("update", false, "bring the tables of docs/protocol.md up to date")

const protocolDocument = "../../docs/protocol.md"

func TestProtocolDocument(t *testing.T) {
	text, err := os.ReadFile(protocolDocument)
	if err != nil {
		t.Fatal(err)
	}
	vocabulary, err := contract.ReadVocabulary("../../api")
	if err != nil {
		t.Fatal(err)
	}
	words := vocabulary.Words
	served := New(Config{}).Methods()
	want := documentTables(served, words)
	lines := strings.Split(string(text), "\n")

	var out []string
	seen := map[string]bool{}
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		name, ok := contract.Marker(lines[i])
		if !ok {
			continue
		}
		table, ok := want[name]
		if !ok || seen[name] {
			t.Errorf("line %d: %q is not a table, or is a duplicate", i+1, name)
			continue
		}
		seen[name] = true
		begin := i + 1
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|") {
			i++
		}
		out = append(out, table.render(t, name, lines[begin:i+1])...)
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("docs/protocol.md has no table for %q: add the line <!-- rows: %[1]s --> and run go test ./internal/service -run ProtocolDocument -update", name)
		}
	}
	fresh := strings.Join(out, "\n")
	if fresh != string(text) {
		if !*update {
			t.Error("docs/protocol.md is stale: run go test ./internal/service -run ProtocolDocument -update and review the changes")
		} else if err := os.WriteFile(protocolDocument, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	checkHeadings(t, fresh, served)
	checkWords(t, fresh, words)
	checkExamples(t, fresh, served)
}

// documentTable is a table without its last column, unless that is generated
// too.
type documentTable struct {
	head  []string
	rows  [][]string
	whole bool // the last column is in rows
}

// render returns the lines of the table, with the meanings from the old lines.
func (d documentTable) render(t *testing.T, name string, old []string) []string {
	meanings := map[string]string{} // by first cell
	for _, line := range old {
		first, last := contract.Row(line, len(d.head))
		meanings[first] = last
	}
	row := func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }
	lines := []string{row(d.head), strings.Repeat("|---", len(d.head)) + "|"}
	for _, cells := range d.rows {
		if !d.whole {
			meaning := meanings[cells[0]]
			if meaning == "" {
				t.Errorf("docs/protocol.md: %s of %q has no meaning: write it in the last column", cells[0], name)
			}
			cells = append(slices.Clone(cells), meaning)
		}
		lines = append(lines, strings.ReplaceAll(row(cells), "|  |", "| |"))
	}
	return lines
}

// documentTables returns all tables that the document must have.
func documentTables(served []Method, words []contract.Word) map[string]documentTable {
	tables := map[string]documentTable{}
	methods := documentTable{head: []string{"Method", "Scope", "What it does"}, whole: true}
	var add func(typ reflect.Type, params bool)
	add = func(typ reflect.Type, params bool) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			add(typ.Elem(), false)
		case reflect.String:
			if name := typ.Name(); name != "string" {
				tables["values "+name] = valuesTable(name, words)
			}
		case reflect.Struct:
			if _, done := tables["fields "+typ.Name()]; done || typ.NumField() == 0 || typ == timeType || typ == errorType {
				return
			}
			table := documentTable{head: []string{"Field", "Type", "Meaning"}}
			tables["fields "+typ.Name()] = table // a type may contain itself
			for field := range contract.FieldsOf(typ, params) {
				add(field.Type, false)
				if field.Tag.Get("json") == "-" {
					continue // what stands instead of the object
				}
				table.rows = append(table.rows, fieldRow(field, params))
			}
			tables["fields "+typ.Name()] = table
		}
	}
	for _, m := range served {
		methods.rows = append(methods.rows, []string{
			"[`" + m.Name + "`](#" + strings.ReplaceAll(m.Name, ".", "") + ")", string(m.Scope), m.Summary,
		})
		add(m.Params, true)
		add(m.Result, false)
	}
	for _, n := range contract.Notifications() {
		add(n.Params, false)
	}
	tables["methods"] = methods
	tables["errors"] = errorsTable(words)
	return tables
}

var (
	timeType  = reflect.TypeFor[api.Time]()
	errorType = reflect.TypeFor[api.Error]() // the section on errors has its form
)

func fieldRow(field reflect.StructField, params bool) []string {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if field.Anonymous {
		return []string{"…", typeText(field.Type)}
	}
	optional := strings.Contains(options, "omitempty")
	text := typeText(field.Type)
	switch {
	case params && !optional:
		text += ", required"
	case !params && optional:
		text += ", optional"
	case !params && field.Type.Kind() == reflect.Pointer:
		text += " or null"
	}
	return []string{"`" + name + "`", text}
}

// typeText returns a type in JSON terms. A type with its own section becomes a
// link.
func typeText(typ reflect.Type) string {
	link := func() string { return fmt.Sprintf("[%s](#%s)", typ.Name(), strings.ToLower(typ.Name())) }
	switch typ.Kind() {
	case reflect.Pointer:
		return typeText(typ.Elem())
	case reflect.Slice:
		return "array of " + typeText(typ.Elem())
	case reflect.Map:
		if typ.Elem().Kind() == reflect.Interface {
			return "object"
		}
		return "object of " + typeText(typ.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.String:
		if typ.Name() != "string" {
			return link()
		}
		return "string"
	case reflect.Struct:
		switch typ {
		case timeType:
			return "time"
		case errorType:
			return "[error](#errors)"
		}
		return link()
	default:
		return "integer"
	}
}

func valuesTable(typ string, words []contract.Word) documentTable {
	table := documentTable{head: []string{"Value", "Meaning"}}
	for _, w := range words {
		if w.Type == typ {
			table.rows = append(table.rows, []string{"`" + w.Value + "`"})
		}
	}
	return table
}

func errorsTable(words []contract.Word) documentTable {
	table := documentTable{head: []string{"Name", "Number", "When"}}
	numbers := api.Codes()
	for _, w := range words {
		if w.Type == "Code" {
			table.rows = append(table.rows, []string{"`" + w.Value + "`", strconv.Itoa(numbers[api.Code(w.Value)])})
		}
	}
	return table
}

// checkHeadings checks that there is a section for each served method and each
// sent notification, and for no others.
func checkHeadings(t *testing.T, text string, served []Method) {
	want := map[string]bool{}
	for _, m := range served {
		want[m.Name] = true
		if m.Sends != "" && notified(m.Sends) == nil {
			t.Errorf("%s sends %s, which has no type", m.Name, m.Sends)
		}
	}
	for _, n := range contract.Notifications() {
		want[n.Name] = true
	}
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "### `")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "`")
		if !want[name] {
			t.Errorf("the section about %s is a duplicate, or %[1]s is not served", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("docs/protocol.md has no section about %s: add one with the heading ### `%[1]s`", name)
	}
}

// checkWords checks that the document contains every word that can be on the
// wire.
func checkWords(t *testing.T, text string, words []contract.Word) {
	for _, w := range words {
		if !strings.Contains(text, "`"+w.Value+"`") && !strings.Contains(text, "`\""+w.Value+"\"`") {
			t.Errorf("the document does not have %s, api.%s", w.Value, w.Name)
		}
	}
}

// notified returns the type of a notification's params, or nil if there is no
// such notification.
func notified(name string) reflect.Type {
	for _, n := range contract.Notifications() {
		if n.Name == name {
			return n.Params
		}
	}
	return nil
}

// strictly decodes a message of the daemon like a client that rejects unknown
// fields.
func strictly(typ reflect.Type, text json.RawMessage) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(reflect.New(typ).Interface())
}

// checkExamples decodes every line of JSON-RPC in the document as the daemon or
// a strict client would.
func checkExamples(t *testing.T, text string, served []Method) {
	asked := map[string]Method{} // by id; an answer follows its request
	requests, answers := 0, 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, `{"jsonrpc"`) {
			continue
		}
		var message struct {
			ID             json.RawMessage
			Method         string
			Params, Result json.RawMessage
			Actor          json.RawMessage
			Error          *api.Error
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		id := string(message.ID)
		if typ := notified(message.Method); typ != nil {
			if err := strictly(typ, message.Params); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		if message.Method != "" {
			requests++
			i := slices.IndexFunc(served, func(m Method) bool { return m.Name == message.Method })
			if i < 0 {
				t.Errorf("%s: no such method", line)
				continue
			}
			asked[id] = served[i]
			params := reflect.New(served[i].Params).Elem()
			if err := newDecoder(message.Method, served[i].Params).into(params, message.Params); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if message.Actor != nil {
				if _, _, refusal := ActingFor(access.Actor{Scope: ScopeAdmin}, message.Actor); refusal != nil {
					t.Errorf("%s: %v", line, refusal)
				}
			}
			continue
		}
		answers++
		if message.Error != nil {
			if api.Codes()[message.Error.Code] == 0 {
				t.Errorf("%s: no such error", line)
			}
			continue
		}
		m, ok := asked[id]
		if !ok {
			t.Errorf("%s: no request with this id", line)
			continue
		}
		if err := strictly(m.Result, message.Result); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if requests == 0 || answers == 0 {
		t.Error("the document has no examples")
	}
}
