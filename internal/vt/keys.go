package vt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The modifiers of a key, as xterm encodes them: one more than their sum.
const (
	shift = 1 << iota
	alt
	ctrl
)

var modifiers = map[string]int{
	"shift": shift, "alt": alt, "meta": alt, "option": alt, "ctrl": ctrl, "control": ctrl, "c": ctrl, "m": alt, "s": shift,
}

// letterKeys end in a letter: ESC [ A, or ESC O A in their application mode.
var letterKeys = map[string]byte{
	"up": 'A', "down": 'B', "right": 'C', "left": 'D', "home": 'H', "end": 'F',
	"f1": 'P', "f2": 'Q', "f3": 'R', "f4": 'S',
}

// numberKeys end in a tilde: ESC [ 5 ~.
var numberKeys = map[string]int{
	"insert": 2, "ins": 2, "delete": 3, "del": 3, "pageup": 5, "pgup": 5, "pagedown": 6, "pgdn": 6, "pgdown": 6,
	"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
	"f13": 25, "f14": 26, "f15": 28, "f16": 29, "f17": 31, "f18": 32, "f19": 33, "f20": 34,
}

// byteKeys are one byte.
var byteKeys = map[string]byte{
	"enter": '\r', "return": '\r', "tab": '\t', "escape": 0x1b, "esc": 0x1b, "space": ' ', "backspace": 0x7f,
	"minus": '-', "plus": '+',
}

// tmuxNames are names of tmux for keys that have another one here.
var tmuxNames = map[string]string{
	"bspace": "backspace", "btab": "shift-tab", "dc": "delete", "ic": "insert", "npage": "pagedown", "ppage": "pageup",
}

// keypadKeys are the keys of the numeric keypad: what they print, and what they
// send after ESC O in application mode.
var keypadKeys = map[string][2]byte{
	"kp-0": {'0', 'p'}, "kp-1": {'1', 'q'}, "kp-2": {'2', 'r'}, "kp-3": {'3', 's'}, "kp-4": {'4', 't'},
	"kp-5": {'5', 'u'}, "kp-6": {'6', 'v'}, "kp-7": {'7', 'w'}, "kp-8": {'8', 'x'}, "kp-9": {'9', 'y'},
	"kp-multiply": {'*', 'j'}, "kp-add": {'+', 'k'}, "kp-comma": {',', 'l'}, "kp-subtract": {'-', 'm'},
	"kp-decimal": {'.', 'n'}, "kp-divide": {'/', 'o'}, "kp-enter": {'\r', 'M'}, "kp-equal": {'=', 'X'},
}

// Key returns what the terminal sends for a key in the modes the program has set.
// A key is a character ("x", "é") or a name: enter, tab, escape, space,
// backspace, insert, delete, up, down, left, right, home, end, pageup, pagedown,
// f1 to f20, kp-0 to kp-9, kp-enter, kp-add, kp-subtract, kp-multiply, kp-divide,
// kp-decimal, kp-comma, kp-equal; with prefixes ctrl-, alt- and shift- ("ctrl-c",
// "alt-x", "shift-tab", "ctrl-shift-left"). The names and prefixes of tmux work
// too ("C-c", "M-x", "BSpace"). Case matters only for single characters.
func (s *Screen) Key(name string) ([]byte, error) {
	mods, base := splitKey(name)
	lower := strings.ToLower(base)
	if k, ok := keypadKeys[lower]; ok {
		if s.modes.on(appKeypad) {
			return withAlt(mods, 0x1b, 'O', k[1]), nil
		}
		return withAlt(mods, k[0]), nil
	}
	if final, ok := letterKeys[lower]; ok {
		switch {
		case mods != 0:
			return fmt.Appendf(nil, "\x1b[1;%d%c", mods+1, final), nil
		case final >= 'P' || s.modes.on(appCursor):
			return []byte{0x1b, 'O', final}, nil
		}
		return []byte{0x1b, '[', final}, nil
	}
	if number, ok := numberKeys[lower]; ok {
		if mods != 0 {
			return fmt.Appendf(nil, "\x1b[%d;%d~", number, mods+1), nil
		}
		return fmt.Appendf(nil, "\x1b[%d~", number), nil
	}
	if c, ok := byteKeys[lower]; ok {
		switch {
		case c == '\t' && mods&shift != 0:
			return withAlt(mods, 0x1b, '[', 'Z'), nil
		case c == '\r' && s.modes.on(newLine):
			return withAlt(mods, '\r', '\n'), nil
		case c == 0x7f && mods&ctrl != 0:
			return withAlt(mods, '\b'), nil
		case c == ' ' && mods&ctrl != 0:
			return withAlt(mods, 0), nil
		case c < ' ' || c == 0x7f || mods&ctrl == 0:
			return withAlt(mods, c), nil
		}
		base = string(c)
	}
	r, n := utf8.DecodeRuneInString(base)
	if base == "" || n < len(base) || r == utf8.RuneError || r < ' ' || r >= 0x7f && r < 0xa0 {
		return nil, fmt.Errorf("unknown key %.32q: use one character, or a name such as enter, tab, escape, up, pagedown, f5, ctrl-c, alt-x, shift-tab", name)
	}
	if mods&shift != 0 && r >= 'a' && r <= 'z' {
		r -= 'a' - 'A'
	}
	if mods&ctrl != 0 {
		c, ok := controlOf(r)
		if !ok {
			return nil, fmt.Errorf("the key %.32q does not exist: ctrl- goes with a letter, one of @ [ \\ ] ^ _ ? / or a digit from 2 to 8", name)
		}
		return withAlt(mods, c), nil
	}
	return withAlt(mods, []byte(string(r))...), nil
}

// splitKey splits the modifiers from a name. The separator may be the key itself,
// as in "ctrl--".
func splitKey(name string) (mods int, base string) {
	for {
		if known, ok := tmuxNames[strings.ToLower(name)]; ok {
			name = known
		}
		i := strings.IndexAny(name, "-+")
		if i <= 0 || i == len(name)-1 {
			return mods, name
		}
		m, ok := modifiers[strings.ToLower(name[:i])]
		if !ok {
			return mods, name
		}
		mods |= m
		name = name[i+1:]
	}
}

func withAlt(mods int, b ...byte) []byte {
	if mods&alt != 0 {
		return append([]byte{0x1b}, b...)
	}
	return b
}

// controlOf returns what a character becomes with the control key.
func controlOf(r rune) (byte, bool) {
	switch {
	case r >= 'a' && r <= 'z', r >= '@' && r <= '_':
		return byte(r) & 0x1f, true
	case r == '?' || r == '8':
		return 0x7f, true
	case r == '2' || r == ' ':
		return 0, true
	case r >= '3' && r <= '7':
		return byte(r) - '3' + 0x1b, true
	case r == '/' || r == '-':
		return 0x1f, true
	}
	return 0, false
}

// Paste returns what the terminal sends for pasted text. Lines end as with the
// enter key. If the program has enabled bracketed paste (2004), the text is
// bracketed, and characters that could end the brackets early or act as controls
// are removed: escape, and the controls from U+0080 to U+009F in either form.
func (s *Screen) Paste(text string) []byte {
	text = strings.NewReplacer("\r\n", "\r", "\n", "\r").Replace(text)
	if !s.modes.on(bracketedPaste) {
		return []byte(text)
	}
	b := []byte("\x1b[200~")
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r != 0x1b && (r < 0x80 || r >= 0xa0) && (r != utf8.RuneError || n > 1) {
			b = append(b, text[:n]...)
		}
		text = text[n:]
	}
	return append(b, "\x1b[201~"...)
}
