package fold

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strconv"

	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// str returns the value of a JSON string, and "" for anything else.
func str(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return rawjson.Text(raw)
}

// is reports whether raw is the JSON string s, which has no escapes.
func is(raw []byte, s string) bool {
	return len(raw) == len(s)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == s
}

// num returns the value of a JSON number as an integer that counts something.
func num(raw []byte) int64 {
	if len(raw) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		x, ok := float(raw)
		if !ok || x > 1e18 || x < -1e18 {
			return 0
		}
		return int64(x)
	}
	return n
}

func float(raw []byte) (float64, bool) {
	if len(raw) == 0 {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	return x, err == nil
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

// has reports whether a member is there and not null.
func has(raw []byte) bool { return len(raw) > 0 && raw[0] != 'n' }

// each calls do for each member of an object. It reports whether raw is an object
// and valid JSON.
func each(raw []byte, do func(key, value []byte)) bool {
	s := rawjson.Scan(raw)
	if s.Kind() != rawjson.Object || s.Enter() != nil {
		return false
	}
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if err != nil {
			return false
		}
		if !ok {
			return s.End() == nil
		}
		value, err := s.Value()
		if err != nil {
			return false
		}
		do(key, value)
	}
}

// items calls do for each element of an array.
func items(raw []byte, do func(value []byte)) bool {
	s := rawjson.Scan(raw)
	if s.Kind() != rawjson.Array || s.Enter() != nil {
		return false
	}
	for first := true; ; first = false {
		ok, err := s.Element(first)
		if err != nil {
			return false
		}
		if !ok {
			return s.End() == nil
		}
		value, err := s.Value()
		if err != nil {
			return false
		}
		do(value)
	}
}

// member returns a member of an object, nil if there is none.
func member(raw []byte, name string) []byte {
	var found []byte
	each(raw, func(key, value []byte) {
		if string(key) == name {
			found = value
		}
	})
	return found
}

func valid(raw []byte) bool {
	s := rawjson.Scan(raw)
	if _, err := s.Value(); err != nil {
		return false
	}
	return s.End() == nil
}

// encode returns v as JSON, with < and > as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// compact returns raw without white space between its tokens, in memory of its own.
// nil if it is no JSON.
func compact(raw []byte) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.Grow(len(raw))
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// letters returns ten letters that stand for some names.
func letters(names ...string) string {
	h := sha256.New()
	for _, n := range names {
		h.Write([]byte(n))
		h.Write([]byte{0})
	}
	return string(bytes.ToLower([]byte(base32.StdEncoding.EncodeToString(h.Sum(nil)[:8])[:10])))
}

// name returns an id made of a prefix and a name that an agent has given: the name
// itself unless it is long or strange.
func name(prefix, native string) string {
	ok := len(native) <= maxID && native != ""
	for i := 0; ok && i < len(native); i++ {
		ok = native[i] > ' ' && native[i] < 0x7f
	}
	if !ok {
		return prefix + "~" + letters(native)
	}
	return prefix + native
}

// recent remembers the last names that were seen.
type recent struct {
	at   map[[16]byte]struct{}
	ring [][16]byte
	next int
}

const maxRecent = 4096

// add reports whether the name was seen lately, and remembers it.
func (r *recent) add(key [16]byte) bool {
	if _, ok := r.at[key]; ok {
		return true
	}
	if r.at == nil {
		r.at = make(map[[16]byte]struct{})
	}
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, key)
	} else {
		delete(r.at, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % maxRecent
	}
	r.at[key] = struct{}{}
	return false
}

// repeated reports whether the agent has said this already: the id of an event is
// there for the second time. raw is a JSON string.
func (f *Fold) repeated(raw []byte) bool {
	if len(raw) < 3 || raw[0] != '"' {
		return false
	}
	var key [16]byte
	if !parseUUID(raw[1:len(raw)-1], &key) {
		sum := sha256.Sum256(raw)
		copy(key[:], sum[:])
	}
	if f.seen.add(key) {
		f.Duplicates++
		return true
	}
	return false
}

func parseUUID(s []byte, key *[16]byte) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	j := 0
	for i := 0; i < 36; {
		if s[i] == '-' {
			i++
			continue
		}
		a, b := hexDigit(s[i]), hexDigit(s[i+1])
		if a|b > 15 {
			return false
		}
		key[j] = a<<4 | b
		j++
		i += 2
	}
	return true
}

func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}
