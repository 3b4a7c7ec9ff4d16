package lineedit

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Code says what a key is for.
type Code int

// The codes of keys. Ignored is a key that has no meaning here.
const (
	Ignored Code = iota
	Insert       // Key.Text is typed, or pasted
	Enter
	Tab
	Escape
	Interrupt // ctrl-c
	EndOfFile // ctrl-d: delete, or the end of input on an empty line
	Left
	Right
	WordLeft
	WordRight
	Home
	End
	Up
	Down
	Backspace
	Delete
	DeleteToStart
	DeleteToEnd
	DeleteWord      // before the cursor, up to a blank
	DeleteWordLeft  // before the cursor
	DeleteWordRight // behind the cursor
	Yank            // insert what was deleted last
	ClearScreen
	Search
	Abort // ctrl-g: leave a search
)

// Key is one key, or a paste.
type Key struct {
	Code  Code
	Text  string // for Insert
	Paste bool   // Text was pasted
}

// Bracketed paste mode: the markers that terminals send around a paste, and the
// sequences that turn the mode on and off.
const (
	PasteBegin   = "\x1b[200~"
	PasteEnd     = "\x1b[201~"
	PasteModeOn  = "\x1b[?2004h"
	PasteModeOff = "\x1b[?2004l"
)

const escape = 0x1b

// maxPaste is the longest text that counts as one paste. A terminal that never
// sends the end of a paste must not make the prompt deaf.
const maxPaste = 1 << 20

var controlKeys = map[byte]Code{
	'\r': Enter, '\n': Enter, '\t': Tab, 0x7f: Backspace,
	1: Home, 2: Left, 3: Interrupt, 4: EndOfFile, 5: End, 6: Right, 7: Abort, 8: Backspace,
	11: DeleteToEnd, 12: ClearScreen, 14: Down, 16: Up, 18: Search, 21: DeleteToStart, 23: DeleteWord, 25: Yank,
}

// altKeys follow an escape.
var altKeys = map[byte]Code{'b': WordLeft, 'f': WordRight, 'd': DeleteWordRight, 0x7f: DeleteWordLeft, 8: DeleteWordLeft}

// sequences are the bodies of control sequences, without their introducer.
var sequences = map[string]Code{
	"A": Up, "B": Down, "C": Right, "D": Left, "H": Home, "F": End,
	"1~": Home, "7~": Home, "4~": End, "8~": End, "3~": Delete,
	"1;5C": WordRight, "1;3C": WordRight, "1;5D": WordLeft, "1;3D": WordLeft, "3;5~": DeleteWordRight,
}

// Decode returns the first key of the typed bytes b and how many bytes it has. 0
// means that the rest of the key has not arrived yet.
func Decode(b []byte) (Key, int) {
	switch {
	case len(b) == 0:
		return Key{}, 0
	case b[0] == escape:
		return decodeEscape(b)
	case b[0] < ' ' || b[0] == 0x7f:
		return Key{Code: controlKeys[b[0]]}, 1
	}
	return decodeText(b)
}

// decodeText returns the characters at the beginning of b as one key.
func decodeText(b []byte) (Key, int) {
	n := 0
	for n < len(b) && b[n] >= ' ' && b[n] != 0x7f {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	switch {
	case n > 0:
		return Key{Code: Insert, Text: string(b[:n])}, n
	case !utf8.FullRune(b):
		return Key{}, 0
	}
	return Key{}, 1 // not UTF-8
}

func decodeEscape(b []byte) (Key, int) {
	switch {
	case len(b) == 1:
		return Key{}, 0
	case bytes.HasPrefix(b, []byte(PasteBegin)):
		return decodePaste(b)
	case b[1] == '[' || b[1] == 'O':
		return decodeSequence(b)
	}
	if code, ok := altKeys[b[1]]; ok {
		return Key{Code: code}, 2
	}
	return Key{Code: Escape}, 1
}

func decodePaste(b []byte) (Key, int) {
	text := b[len(PasteBegin):]
	end, n := bytes.Index(text, []byte(PasteEnd)), len(b)
	switch {
	case end >= 0:
		text, n = text[:end], len(PasteBegin)+end+len(PasteEnd)
	case len(text) < maxPaste:
		return Key{}, 0
	}
	lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(string(text), "\ufffd"))
	return Key{Code: Insert, Text: lines, Paste: true}, n
}

// maxSequence is more than the longest sequence of a key.
const maxSequence = 32

func decodeSequence(b []byte) (Key, int) {
	for i := 2; i < len(b) && i < maxSequence; i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return Key{Code: sequences[string(b[2:i+1])]}, i + 1
		}
		if b[i] < ' ' { // not a sequence after all
			return Key{Code: Escape}, 1
		}
	}
	if len(b) >= maxSequence {
		return Key{Code: Escape}, 1
	}
	return Key{}, 0
}
