package console

import (
	"bytes"
	"errors"
	"strings"
)

// Key is a control key, such as ctrl-\. Its value is the byte that the key
// sends; 0 means no key. It can be the value of a flag on the command line.
type Key byte

// DefaultDetachKey is ctrl-\: few programs use it, and shells don't.
const DefaultDetachKey Key = 0x1c

// String returns the name of the key.
func (k *Key) String() string {
	if *k == 0x7f {
		return "ctrl-?"
	}
	return "ctrl-" + strings.ToLower(string(rune(*k|0x40)))
}

// Type returns the placeholder for the value in help texts.
func (*Key) Type() string { return "key" }

// Set parses a key name such as ctrl-t or ^t.
func (k *Key) Set(text string) error {
	name, ok := strings.CutPrefix(strings.ToLower(text), "ctrl-")
	if !ok {
		name, ok = strings.CutPrefix(text, "^")
		name = strings.ToLower(name)
	}
	if !ok || len(name) != 1 || name[0] < '\\' || name[0] > 'z' || name[0] == '`' {
		return errors.New(`write a key such as ctrl-\, ctrl-] or ctrl-t`)
	}
	*k = Key(name[0] & 0x1f)
	return nil
}

// cut returns what was typed before the key, and whether the key was typed.
func (k *Key) cut(typed []byte) (before []byte, found bool) {
	if *k == 0 {
		return typed, false
	}
	before, _, found = bytes.Cut(typed, []byte{byte(*k)})
	return before, found
}

// interruptKey is the byte that ctrl-c sends.
const interruptKey = 3
