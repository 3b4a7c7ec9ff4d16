package route

import (
	"bytes"

	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// names finds the places in ids. An id is s-RANDOM or e-RANDOM; the name of the
// node of its daemon, which may have dashes, is before the random part. The name of
// a place follows that of this daemon.
type names struct {
	own string // the name of this node and a dash; "" if it has no name
}

func newNames(node string) names {
	if node == "" {
		return names{}
	}
	return names{own: node + "-"}
}

// placeIn returns the name of the place in an id; empty for an id of this daemon
// and for what is no id.
func (n names) placeIn(id []byte) []byte {
	if len(id) < 2 || id[0] != 's' && id[0] != 'e' || id[1] != '-' {
		return nil
	}
	rest := id[2:]
	if len(rest) >= len(n.own) && string(rest[:len(n.own)]) == n.own {
		rest = rest[len(n.own):]
	}
	end := bytes.IndexByte(rest, '-')
	if end < 0 {
		return nil
	}
	return rest[:end]
}

// owns reports whether an id is one of the named place.
func (n names) owns(place string, id []byte) bool { return string(n.placeIn(id)) == place }

// placeInParams returns the name of the place in the first id of a call's
// parameters, or nothing. Parameters that are not valid have none: the daemon
// itself says what is wrong with them. It allocates nothing.
func (n names) placeInParams(params []byte) []byte {
	s := rawjson.Scan(params)
	if s.Kind() != rawjson.Object || s.Enter() != nil {
		return nil
	}
	for first := true; ; first = false {
		key, ok, err := s.Key(first)
		if !ok || err != nil {
			return nil
		}
		isID := string(key) == "session_id" || string(key) == "exec_id"
		isID = isID && s.Kind() == rawjson.String
		raw, err := s.Value()
		if err != nil {
			return nil
		}
		if isID && len(raw) > len(`""`) {
			return n.placeIn(text(raw))
		}
	}
}

// text returns the value of a string without copying it, if it has no escapes. One
// that has no value is returned as it is: it is no id.
func text(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	if value, err := rawjson.Unquote(raw); err == nil {
		return []byte(value)
	}
	return raw
}
