package printable

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"plain, größer, 日本":     "plain, größer, 日本",
		"a\x1b[31mred":          `a\x1b[31mred`,
		"two\nlines\r\ttab":     `two\nlines\r\ttab`,
		"bell\a del\x7f":        `bell\a del\x7f`,
		"c1 \u009b1m":           `c1 \u009b1m`,
		"bidi \u202etxt.exe":    `bidi \u202etxt.exe`,
		"not utf-8 \xff\xc3":    `not utf-8 \xff\xc3`,
		"a real \ufffd":         `a real \ufffd`,
		"line sep\u2028":        `line sep\u2028`,
		"zero\u200bwidth":       `zero\u200bwidth`,
		"tag \U000e0041":        `tag \U000e0041`,
		"no tag \U000e0000":     `no tag \U000e0000`,
		"back\\slash is a sign": "back\\slash is a sign",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"":                     `""`,
		"main":                 "main",
		"/usr/größer/日本":       "/usr/größer/日本",
		"two words":            `"two words"`,
		"x · session main":     `"x · session main"`,
		"x·y":                  `"x·y"`,
		`say "hi"`:             `"say \"hi\""`,
		`a\nb`:                 `"a\\nb"`,
		"a\nb":                 `"a\nb"`,
		"x. output {}]":        `"x. output {}]"`,
		"\u202e":               `"\u202e"`,
		"p\x1b]0;PS\x07\nfake": `"p\x1b]0;PS\a\nfake"`,
	} {
		if got := Word(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for _, text := range []string{"", "main", "two words", "größer", "日本", "نمی\u200cخواهم", "👩\u200d💻", "mcp:/srv/a b", "a\\nb"} {
		if !Line(text) {
			t.Errorf("%q is not accepted as a line", text)
		}
	}
	for _, text := range []string{
		"a\nb", "a\tb", "\x00", "\x1b[2J", "del\x7f", "\u0085", "\u009b", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069",
		"\u200e", "\u200f", "\u061c", "\u200b", "\ufeff", "\u2028", "\u2029", "\U000e0000", "\U000e0001", "\U000e0041", "\U000e007f", "\xff",
	} {
		if Line(text) {
			t.Errorf("%q is accepted as a line", text)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b]0;title\a\u202e\xff\n\"\\")
	f.Fuzz(func(t *testing.T, text string) {
		for name, got := range map[string]string{"text": Text(text), "word": Word(text)} {
			if i := strings.IndexFunc(got, hidden); i >= 0 {
				t.Errorf("%s of %q: %q is invisible at %d", name, text, got, i)
			}
		}
		// A quoted word unquotes to the original text.
		if word := Word(text); strings.HasPrefix(word, `"`) && !strings.ContainsRune(text, '\ufffd') {
			if back, err := strconv.Unquote(word); err != nil || back != text {
				t.Errorf("%q: %s is %q, %v", text, word, back, err)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add("a\x1b\u009b\u202e\u2066\U000e0041\u2028\x7f\xff\n日本")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.MarshalIndent(map[string]string{"text": text}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		got := JSON(raw)
		if i := bytes.IndexFunc(got, func(r rune) bool { return hidden(r) && r != '\n' && r != '\t' }); i >= 0 {
			t.Errorf("%q is invisible at %d", got, i)
		}
		var before, after map[string]string
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil || after["text"] != before["text"] {
			t.Errorf("%q became %q: %q, %v", text, after["text"], got, err)
		}
	})
}
