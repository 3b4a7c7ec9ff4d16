// Package typing turns text and names of keys into the input of a command, the
// same for a model, a script and a person.
package typing

import (
	"bytes"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/vt"
)

// Input returns the params that type text and then keys into the command e. On a
// terminal a newline is the enter key; elsewhere text is written as it is, and the
// daemon refuses keys.
func Input(e *api.ExecResult, text []byte, keys []string) (api.ExecInputParams, error) {
	params := api.ExecInputParams{ExecID: e.ExecID, Keys: keys}
	if err := checkKeys(keys); err != nil {
		return params, err
	}
	if e.TTY != nil {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r"))
	}
	params.Data, params.Encoding = api.EncodeBytes(text)
	return params, nil
}

// checkKeys names the first key that does not exist. The daemon refuses it too,
// but never repeats what it was sent.
func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	screen := vt.New(vt.Config{})
	for _, key := range keys {
		if _, err := screen.Key(key); err != nil {
			return api.Errorf(api.CodeInvalidParams, "%w", err)
		}
	}
	return nil
}
