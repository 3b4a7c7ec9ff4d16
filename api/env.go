package api

import "encoding/json"

// Env is environment variables by name. In JSON a value of null is Unset.
type Env map[string]string

// Unset is the value of a variable that is not to be there, where it would be
// inherited. No variable can have it: it is a NUL byte. It is never on the wire.
var Unset = "\x00"

// MarshalJSON has null for Unset.
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

// UnmarshalJSON takes Unset for null.
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
