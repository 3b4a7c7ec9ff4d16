package mcp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/internal/vt"
)

const (
	// windowBytes is how much is read at each end to find that: progress bars
	// and colors shrink to a fraction of what they were.
	windowBytes = 256 << 10
	// wholeBytes is how much is read as a whole: what a progress bar writes in
	// some hours.
	wholeBytes = 4 << 20
	// hexBytes is how much of output that is no text is shown.
	hexBytes = 256
)

// budget is how much output a reply shows, by what it costs.
type budget struct {
	head int // how it began
	tail int // how it ended, where errors mostly are
	all  int // what else a reply may have in place of output: a screen, a list
}

// A reply stays below 16 KB on the wire: a model can be given that for one step
// without losing sight of the others. Text and structured content both carry the
// output, as clients show the one or the other to their model; where only the
// text is sent it may be twice as long.
var (
	forBoth = budget{head: 1900, tail: 3400, all: 7300}
	forText = budget{head: 4000, tail: 7000, all: 14500}
)

func (b budget) page() int { return b.head + b.tail }

// cost is what a text takes on the wire, where it is a JSON string.
func cost(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n' || c == '\t' || c == '"' || c == '\\':
			n++
		case c < ' ' || c == '<' || c == '>' || c == '&':
			n += 5
		}
	}
	return n
}

// span is a part of a journal, by offsets.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func (s span) size() int64 { return s.To - s.From }

// segment is bytes of a journal that follow one another, or a gap in it.
type segment struct {
	offset int64
	data   []byte
	gap    int64 // so many bytes were not kept
}

// stretch is a part of a journal as it was read. One stream of two has holes
// where the other one is.
type stretch struct {
	span     // that was asked for; To is where the next one begins
	segments []segment
}

// bytes is what is there, in one piece.
func (s *stretch) bytes() []byte {
	if len(s.segments) == 1 {
		return s.segments[0].data
	}
	var all []byte
	for _, g := range s.segments {
		all = append(all, g.data...)
	}
	return all
}

// offset is where in the journal the byte at a position of bytes() is.
func (s *stretch) offset(position int) int64 {
	for _, g := range s.segments {
		if position < len(g.data) {
			return g.offset + int64(position)
		}
		position -= len(g.data)
	}
	return s.To
}

// dropped are the gaps.
func (s *stretch) dropped() (gaps []span) {
	for _, g := range s.segments {
		if g.gap > 0 {
			gaps = append(gaps, span{g.offset, g.offset + g.gap})
		}
	}
	return gaps
}

// plain is output as a person reads it, without a newline at its end, and with a note
// in place of a line that is repeated many times.
func plain(b []byte) string {
	if isPlain(b) {
		return string(b)
	}
	return string(folded(bytes.TrimRight(vt.PlainText(b), "\n")))
}

// foldLeast is how often a line is repeated, at least, when that is told instead of
// shown.
const foldLeast = 8

// folded is a text in which lines that are repeated many times are told.
func folded(text []byte) []byte {
	var out []byte // nil: nothing is folded so far
	from := 0      // what comes before is in out
	for at := 0; at < len(text); {
		end := lineEnd(text, at)
		next, times := end, 0
		for next < len(text) {
			again := lineEnd(text, next)
			if !bytes.Equal(trimLine(text[at:end]), trimLine(text[next:again])) {
				break
			}
			next, times = again, times+1
		}
		if times >= foldLeast {
			out = append(append(out, text[from:end]...), fmt.Sprintf("[trl: the same line %s times more]\n", grouped(int64(times)))...)
			from = next
		}
		at = next
	}
	if out == nil {
		return text
	}
	return bytes.TrimSuffix(append(out, text[from:]...), []byte("\n"))
}

// lineEnd is where the line that begins at a place ends, after its newline.
func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

func trimLine(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\n")) }

// isPlain says whether b is one line of plain ASCII, as most are.
func isPlain(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// headOf returns how many bytes at the start of b are a text that costs at most
// budget, in whole lines unless the first one alone is longer. It is at least
// one, unless the budget is too small for some bytes of any kind.
func headOf(b []byte, budget int) int {
	fits := func(n int) bool { return cost(plain(b[:n])) <= budget }
	if fits(len(b)) {
		return len(b)
	}
	// Twice as much, until it is too much: then between the two.
	low, high := 0, min(budget, len(b))
	for high < len(b) && fits(high) {
		low, high = high, min(2*high, len(b))
	}
	for high-low > 64 { // some bytes of a line more or less
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	if low == 0 { // a few bytes can ask for much room, and who reads on must get on
		low = high - 1
		for low > 1 && !fits(low) {
			low--
		}
	}
	// A line that is rewritten may have been longer before: less of it can cost
	// more.
	low = cutBefore(b, low)
	for !fits(low) {
		low = cutBefore(b, low/2)
	}
	return low
}

// cutBefore is the last place up to n where b may end.
func cutBefore(b []byte, n int) int {
	for _, end := range []byte{'\n', '\r'} { // a line, or one form of a line that is rewritten
		if line := bytes.LastIndexByte(b[:n], end) + 1; line > 0 {
			return line
		}
	}
	for k := n - 1; k >= max(n-utf8.UTFMax, 0); k-- {
		if utf8.RuneStart(b[k]) && !utf8.FullRune(b[k:n]) {
			return k
		}
	}
	return n
}

// tailOf is the same for the end of b: it returns where that begins.
func tailOf(b []byte, budget int) int {
	fits := func(n int) bool { return cost(plain(b[n:])) <= budget }
	if fits(0) {
		return 0
	}
	low, high := max(len(b)-budget, 0), len(b) // low may be too much, high is not
	for low > 0 && fits(low) {
		low, high = max(len(b)-2*(len(b)-low), 0), low
	}
	for high-low > 64 {
		if mid := (low + high) / 2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	high = cutAfter(b, high)
	for !fits(high) {
		high = cutAfter(b, (high+len(b)+1)/2)
	}
	return high
}

// cutAfter is the first place from n on where b may begin.
func cutAfter(b []byte, n int) int {
	for _, end := range []byte{'\n', '\r'} {
		if line := bytes.IndexByte(b[n:], end) + 1; line > 0 && n+line < len(b) {
			return n + line
		}
	}
	for k := n; k < min(n+utf8.UTFMax, len(b)); k++ {
		if utf8.RuneStart(b[k]) {
			return k
		}
	}
	return n
}

// isBinary says whether b is nothing that a person reads: it has NUL, or more
// than a tenth of it is no text.
func isBinary(b []byte) bool {
	odd := 0
	for rest := b; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		switch {
		case r == 0:
			return true
		case r == utf8.RuneError && size == 1 && len(rest) >= utf8.UTFMax, // at the end it may be cut
			r < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\b\a\x1b\x0e\x0f"), r):
			odd++
		}
	}
	return odd > len(b)/10
}

// hexdump shows the first bytes of b.
func hexdump(b []byte) string {
	return string(bytes.TrimRight([]byte(hex.Dump(b[:min(len(b), hexBytes)])), "\n"))
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// bytesOf is a number of bytes in words.
func bytesOf(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return grouped(n) + " bytes"
}
