package mcp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/internal/vt"
)

const (
	// windowBytes is how much is read at each end to fill a budget: as plain text,
	// progress bars and colors shrink to a fraction of their size.
	windowBytes = 256 << 10
	// wholeBytes is the size up to which an output is read as a whole: what a
	// progress bar writes in some hours.
	wholeBytes = 4 << 20
	// hexBytes is how much of a binary output is shown.
	hexBytes = 256
)

// budget limits the output in a reply, in units of cost.
type budget struct {
	head int // start of the output
	tail int // end of the output, where most errors are
	all  int // content in place of output: a screen, a list
}

// A reply stays below 16 KB on the wire: a model can read that in one step without
// losing sight of the others. Text and structured content both carry the output,
// because some clients show their model the one and some the other. Where only the
// text is sent it may be twice as long.
var (
	budgetWithStructured = budget{head: 1900, tail: 3400, all: 7300}
	budgetTextOnly       = budget{head: 4000, tail: 7000, all: 14500}
)

func (b budget) page() int { return b.head + b.tail }

// cost returns the size of a text on the wire, as a JSON string.
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

// span is a range of offsets in a journal.
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func (s span) size() int64 { return s.To - s.From }

// chunk is contiguous bytes of a journal, or a gap in it.
type chunk struct {
	offset int64
	data   []byte
	gap    int64 // number of bytes that were not kept
}

// outputRange is a part of a journal that was read. If only one of two streams was
// read, offsets jump where the other one wrote.
type outputRange struct {
	span   // the range that was read; To is where the next read begins
	chunks []chunk
}

// bytes returns the data of all chunks.
func (s *outputRange) bytes() []byte {
	if len(s.chunks) == 1 {
		return s.chunks[0].data
	}
	var all []byte
	for _, g := range s.chunks {
		all = append(all, g.data...)
	}
	return all
}

// offset returns the offset in the journal of the byte at a position of bytes().
func (s *outputRange) offset(position int) int64 {
	for _, g := range s.chunks {
		if position < len(g.data) {
			return g.offset + int64(position)
		}
		position -= len(g.data)
	}
	return s.To
}

// gaps returns the ranges that were not kept.
func (s *outputRange) gaps() (gaps []span) {
	for _, g := range s.chunks {
		if g.gap > 0 {
			gaps = append(gaps, span{g.offset, g.offset + g.gap})
		}
	}
	return gaps
}

// plain returns output as a person reads it, without a newline at its end, and with
// a note in place of a line that is repeated many times.
func plain(b []byte) string {
	if isPlain(b) {
		return string(nameShell(b))
	}
	return string(foldRepeats(nameShell(bytes.TrimRight(vt.PlainText(b), "\n"))))
}

// bash and ash begin their messages with the path of the script that they read a
// command from. A model would try to open it.
var (
	scriptRoot  = []byte("/proc/")
	bashMessage = regexp.MustCompile(`(?m)^/proc/\d+/fd/\d+: (line \d+: )`)
	ashMessage  = regexp.MustCompile(`(?m)^/proc/\d+/fd/\d+: (?:/proc/\d+/fd/\d+: |(\w+: line \d+: ))`)
)

// nameShell puts the name of the shell in the place of that path, as in the messages
// of `bash -c`.
func nameShell(text []byte) []byte {
	if !bytes.Contains(text, scriptRoot) {
		return text
	}
	text = bashMessage.ReplaceAll(text, []byte("bash: $1"))
	return ashMessage.ReplaceAll(text, []byte("ash: $1"))
}

// minRepeats is the number of repeats of a line from which on they are folded.
const minRepeats = 8

// foldRepeats replaces many repeats of a line with a note.
func foldRepeats(text []byte) []byte {
	var out []byte // nil if nothing is folded so far
	from := 0      // everything before it is in out
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
		if times >= minRepeats {
			out = append(append(out, text[from:end]...), fmt.Sprintf("[trl: the same line %s more times]\n", grouped(int64(times)))...)
			from = next
		}
		at = next
	}
	if out == nil {
		return text
	}
	return bytes.TrimSuffix(append(out, text[from:]...), []byte("\n"))
}

// lineEnd returns the end of the line that begins at at, after its newline.
func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

func trimLine(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\n")) }

// isPlain reports whether b is one line of plain ASCII, as most lines are.
func isPlain(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// headOf returns the number of bytes at the start of b whose text costs at most
// budget, in whole lines unless the first line alone is too long. It is at least
// one, unless the budget is too small for any bytes at all.
func headOf(b []byte, budget int) int {
	fits := func(n int) bool { return cost(plain(b[:n])) <= budget }
	if fits(len(b)) {
		return len(b)
	}
	// Double until it does not fit, then bisect.
	low, high := 0, min(budget, len(b))
	for high < len(b) && fits(high) {
		low, high = high, min(2*high, len(b))
	}
	for high-low > 64 { // a few bytes more or less do not matter
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	if low == 0 { // a few bytes can be costly, and a reader that pages on must make progress
		low = high - 1
		for low > 1 && !fits(low) {
			low--
		}
	}
	// A rewritten line may have been longer before, so a shorter prefix can cost
	// more.
	low = cutBefore(b, low)
	for !fits(low) {
		low = cutBefore(b, low/2)
	}
	return low
}

// cutBefore returns the last position up to n where b may be cut.
func cutBefore(b []byte, n int) int {
	for _, end := range []byte{'\n', '\r'} { // after a line, or one version of a rewritten line
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

// tailOf is like headOf for the end of b: it returns where the tail begins.
func tailOf(b []byte, budget int) int {
	fits := func(n int) bool { return cost(plain(b[n:])) <= budget }
	if fits(0) {
		return 0
	}
	low, high := max(len(b)-budget, 0), len(b) // low may not fit, high does
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

// cutAfter returns the first position from n on where b may be cut.
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

// isBinary reports whether b is not text: it contains NUL, or more than a tenth of
// it is not valid text.
func isBinary(b []byte) bool {
	odd := 0
	for rest := b; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		switch {
		case r == 0:
			return true
		case r == utf8.RuneError && size == 1 && len(rest) >= utf8.UTFMax, // at the end a character may be cut
			r < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\b\a\x1b\x0e\x0f"), r):
			odd++
		}
	}
	return odd > len(b)/10
}

// hexdump returns a hex dump of the first bytes of b.
func hexdump(b []byte) string {
	return string(bytes.TrimRight([]byte(hex.Dump(b[:min(len(b), hexBytes)])), "\n"))
}

// grouped formats a number with thousands separators.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// formatBytes formats a number of bytes, with the unit.
func formatBytes(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return grouped(n) + " bytes"
}
