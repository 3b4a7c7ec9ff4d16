package api

import "encoding/json"

// Env holds environment variables by name. In JSON, null stands for Unset.
type Env map[string]string

// Unset marks a variable that must be removed from the inherited environment.
// It is a NUL byte, which no real value can contain, and is never on the wire.
var Unset = "\x00"

// MarshalJSON writes Unset as null.
func (e Env) MarshalJSON() ([]byte, error) {
	if e == nil {
		return []byte("null"), nil
	}
	values := make(map[string]*string, len(e))
	for name, value := range e {
		values[name] = &value
		if value == Unset {
			values[name] = nil
		}
	}
	return json.Marshal(values)
}

// UnmarshalJSON reads null as Unset.
func (e *Env) UnmarshalJSON(text []byte) error {
	var values map[string]*string
	if err := json.Unmarshal(text, &values); err != nil || values == nil {
		return err
	}
	*e = make(Env, len(values))
	for name, value := range values {
		if (*e)[name] = Unset; value != nil {
			(*e)[name] = *value
		}
	}
	return nil
}
