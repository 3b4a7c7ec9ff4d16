package vt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestPlainText(t *testing.T) {
	many := strings.Repeat("line\n", 2*sheetHeight)
	for in, want := range map[string]string{
		"":                                  "",
		"plain\n":                           "plain\n",
		"two\nlines":                        "two\nlines",
		"\r\nwindows\r\n":                   "\nwindows\n",
		"\x1b[1;31mred\x1b[0m\n":            "red\n",
		"10%\r50%\r100%\n":                  "100%\n",
		"long line\rshort\n":                "shortline\n",
		"long line\r\x1b[Kshort\n":          "short\n",
		"\x1b]0;title\x07x\x1b]8;;u\x1b\\y": "xy",
		"ab\bc":                             "ac",
		"é\rx":                              "x",
		"日本\rx":                             "x 本",
		"日本\b\bx":                           "日x ",
		"e\u0301\n":                         "e\u0301\n",
		"bell\a tab\t.":                     "bell tab\t.",
		"\tindented\n\t\tmore":              "\tindented\n\t\tmore",
		"\t\b\bx":                           "      x ",
		"abc\t\rxyz":                        "xyz\t",
		"\x1b[":                             "",
		"kept  \n":                          "kept  \n",
		"bad\xff\xc3":                       "bad\ufffd\ufffd",
		"a\nb\n\x1b[2A\x1b[Jc\n":            "c\n",
		"one\ntwo\n\x1b[1A\x1b[2Kthree\n":   "one\nthree\n",
		"a\nb\nc\x1b[2A\rX\x1b[2B\rZ":       "X\nb\nZ",
		"a\x1b[3Cb":                         "a   b",
		"abcdef\x1b[3G\x1b[2P":              "abef",
		"abcdef\x1b[3G\x1b[2@":              "ab  cdef",
		"abcdef\x1b[3G\x1b[2X":              "ab  ef",
		"a\nb\nc\n\x1b[2A\x1b[L":            "a\n\nb\nc\n",
		"a\nb\nc\n\x1b[2A\x1b[M":            "a\nc\n",
		"x\x1b[3b":                          "xxxx",
		"old\n\x1b[H\x1b[2Jnew":             "new",
		"\x1b7a\x1b8b":                      "b",
		"before\n\x1b[?1049hfull screen\x1b[?1049lafter": "before\nafter",
		"before\n\x1b[?1049hfull screen":                 "before\n\nfull screen",
		"\x1b(0lqk\x1b(B":                                "┌─┐",
		"page\fnext":                                     "page\n    next",
		many:                                             many,
		many + "\x1b[H\x1b[2J":                           strings.Repeat("line\n", sheetHeight+1),
		"\x1b[999Cx":                                     strings.Repeat(" ", 999) + "x",
	} {
		if got := string(PlainText([]byte(in))); got != want {
			t.Errorf("%.80q: got %.200q, want %.200q", in, got, want)
		}
	}
}

// Output that only moves and repeats does not grow much.
func TestPlainTextIsBounded(t *testing.T) {
	for _, piece := range []string{"\x1b[999Cx\n", "x\x1b[65535b\n", "\x1b[499Bx\x1b[H\n", "\x1b[65535@", "x\r\x1b[999@\n", "\x1b[500Lx\n", "\x1b[999;999Hx\x1b[2J", "\t\n"} {
		in := bytes.Repeat([]byte(piece), 20_000)
		if got := len(PlainText(in)); got > 3*len(in)+2*spareBlanks {
			t.Errorf("%q: %d bytes became %d", piece, len(in), got)
		}
	}
}

// It takes linear time, whatever the program does to a long line.
func TestPlainTextIsLinear(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, piece := range []string{"\x1b[@", "\r\x1b[@", "\r\x1b[P", "\x1b[1K", "\x1b[K", "\x1b[1J", "\n", "\r\x1b[X", "e\u0301", "\u0301", "\x1b[L", "\x1b[H\x1b[J", "\x1b[2J", "\t", "\x1b[?1049h\x1b[?1049l"} {
		trltest.Undisturbed(t, func() error {
			start := time.Now()
			PlainText([]byte(long + strings.Repeat(piece, 100_000)))
			if took := time.Since(start); took > 5*time.Second {
				return fmt.Errorf("%q: %v", piece, took)
			}
			return nil
		})
	}
}

func FuzzPlainText(f *testing.F) {
	f.Add([]byte("a\tb\x1b[2Kc\x1b[3A\x1b[4@日\b\x1b[P\x1b[?1049hx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		out := PlainText(data)
		if bytes.ContainsAny(out, "\x1b\r\b\a\x00") {
			t.Errorf("%q", out)
		}
		if again := PlainText(out); !bytes.Equal(again, out) {
			t.Errorf("plain text of %q is %q", out, again)
		}
	})
}

func BenchmarkPlainText(b *testing.B) {
	for name, data := range map[string][]byte{
		"plain":    bytes.Repeat([]byte(strings.Repeat("lorem ipsum ", 8)+"\n"), 2000),
		"progress": bytes.Repeat([]byte("\r\x1b[Kprogress 42% [=====>    ]"), 8000),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				PlainText(data)
			}
		})
	}
}
