package rawjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// texts are inputs on which JSON parsers tend to differ.
var texts = []string{
	``, ` `, `{}`, `[]`, `null`, `nul`, `nulll`, `true`, `false`, `tru`, `0`, `-0`, `01`, `-`, `1.`, `.5`, `1.5`, `1e5`, `1E+5`, `1e`, `1e+`,
	`"a"`, `"a`, `"\n"`, `"\x"`, `"\u12"`, `"\u12G4"`, `"\u1234"`, `"\ud83d\ude00"`, "\"\t\"", "\"\x7f\"", `"é"`, "\"\xff\"", "\"\xc3\"",
	`{"a":1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a" 1}`, `{a:1}`, `{"a":}`, `{,}`, `{"a":1}}`, `{"a":1`, `{"\u0061":1}`, `{"a":1,"a":2}`,
	`[1,2]`, `[1,]`, `[,1]`, `[1 2]`, `[1`, `[[]]`, `[]]`, ` { "a" : [ 1 , { } ] } `, "\ufeff{}", `{"a":"b"}x`, "1\x00", "\x00",
}

func check(t *testing.T, text []byte) {
	t.Helper()
	s := Scan(text)
	_, err := s.Value()
	if err == nil {
		err = s.End()
	}
	var syntax *SyntaxError
	if err != nil && !errors.As(err, &syntax) {
		t.Fatalf("%q: error %v is not a *SyntaxError", text, err)
	}
	if syntax != nil && strings.HasPrefix(syntax.Reason, "nested deeper") {
		return // our limit, not one of JSON
	}
	// Half surrogates in member names are rejected too; see Unquote.
	if syntax != nil && syntax.Reason == "bad member name" {
		return
	}
	if want := json.Valid(text) && utf8.Valid(text); (err == nil) != want {
		t.Errorf("%q: walked with error %v; valid JSON in UTF-8 is %v", text, err, want)
	}
}

func TestWalkAcceptsExactlyJSON(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(check)
}

func FuzzUnquote(f *testing.F) {
	for _, text := range []string{`""`, `"a"`, `"\n\t\"\\\/\b\f\r"`, `"\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dA"`, `"\ud83d\n"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := Scan(text)
		if s.Kind() != String {
			return
		}
		raw, err := s.Value()
		if err != nil {
			return
		}
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		switch got, err := Unquote(raw); {
		case err == nil && got != want:
			t.Errorf("Unquote(%q) = %q, want %q", raw, got, want)
		case err != nil && !strings.ContainsRune(want, utf8.RuneError):
			t.Errorf("Unquote(%q): %v", raw, err)
		}
	})
}

func TestHalfSurrogateIsRefused(t *testing.T) {
	for _, raw := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83d\u0041"`, `"\ud83dA"`, `"\ud83d\n"`, `"\ud83d\ud83d"`} {
		if got, err := Unquote([]byte(raw)); !errors.Is(err, ErrSurrogate) {
			t.Errorf("Unquote(%s) = %q, %v", raw, got, err)
		}
	}
}

func TestMembers(t *testing.T) {
	s := Scan([]byte(` {"a": 1 , "\u0062":[true, "x"],"c":{"d":null}} `))
	if s.Kind() != Object {
		t.Fatal("not an object")
	}
	if err := s.Enter(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		value, err := s.Value()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(key)+"="+string(value))
	}
	if err := s.End(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{`a=1`, `b=[true, "x"]`, `c={"d":null}`}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDepthIsBounded(t *testing.T) {
	for depth, want := range map[int]bool{MaxDepth: true, MaxDepth + 1: false, 100_000: false} {
		s := Scan([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		if _, err := s.Value(); (err == nil) != want {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}
