package fold

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// Bounds of lines. A line is kept whole up to maxLine. Of a longer one, strings are
// kept up to longString and lists up to longList. If it is still too long then, it
// is an error with its length.
const (
	maxLine    = 1 << 20
	longString = maxText + 64
	longList   = 512 << 10
	longLine   = 3 << 20
)

// stdout splits output into lines.
func (f *Fold) stdout(data []byte) {
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if f.skipping {
			if i < 0 {
				f.offset += int64(len(data))
				return
			}
			f.offset += int64(i) + 1
			f.skipping, data = false, data[i+1:]
			continue
		}
		if !f.started {
			f.started, f.lineAt = true, f.offset
		}
		if i < 0 {
			f.offset += int64(len(data))
			f.partial(data)
			return
		}
		piece := data[:i]
		data = data[i+1:]
		f.offset += int64(i) + 1
		if f.long == nil && len(f.buf) == 0 && len(piece) <= maxLine {
			f.fold(piece, false)
			continue
		}
		f.partial(piece)
		f.foldKept()
	}
}

// partial keeps a piece of a line.
func (f *Fold) partial(piece []byte) {
	if f.long == nil {
		if len(f.buf)+len(piece) <= maxLine {
			f.buf = append(f.buf, piece...)
			return
		}
		f.long = &condenser{Max: longString, List: longList, Total: longLine, Mark: true}
		f.long.write(f.buf)
		f.buf = nil
	}
	f.long.write(piece)
}

// foldKept folds the line that has been kept in pieces.
func (f *Fold) foldKept() {
	if c := f.long; c != nil {
		f.long = nil
		if c.Broken {
			f.tooLong()
		} else {
			f.fold(c.Out, true)
		}
	} else {
		f.fold(f.buf, false)
	}
	f.dropLine()
}

// dropLine forgets the line that has begun.
func (f *Fold) dropLine() {
	f.started, f.long = false, nil
	if cap(f.buf) > 64<<10 {
		f.buf = nil
	}
	f.buf = f.buf[:0]
}

// lastLine folds a last line that has no newline, if it is whole.
func (f *Fold) lastLine() {
	if f.started && f.offset > f.lineAt {
		f.foldKept()
	}
}

func (f *Fold) stepTo() {
	if f.settled != f.offset {
		f.settled, f.part = f.offset, 0
	}
}

// tooLong notes a line that can't be kept, even without its long strings.
func (f *Fold) tooLong() {
	f.stepTo()
	f.Read++
	f.Garbage++
	l := line{raw: api.DialogueRange{Run: f.run, Offset: f.lineAt, Bytes: f.offset - f.lineAt}}
	f.cur = &l
	f.garbageID = ""
	if f.garbages++; f.garbages <= maxGarbage {
		f.fault(api.DialogueEntity{
			ID: "g:" + strconv.Itoa(f.run) + ":" + strconv.FormatInt(f.lineAt, 10), Code: api.DialogueGarbage, Message: "a line that is too long to be read", Bytes: l.raw.Bytes,
		})
	}
	f.cur = nil
	f.started = false
	f.after()
}

// fold folds a line, which is without its newline.
func (f *Fold) fold(data []byte, long bool) {
	f.stepTo()
	l := line{data: bytes.TrimSpace(data), raw: api.DialogueRange{Run: f.run, Offset: f.lineAt, Bytes: f.offset - f.lineAt}, long: long}
	f.started = false
	if len(l.data) == 0 {
		return
	}
	f.Read++
	f.clear(&f.stalled)
	f.wasGarbage = false
	f.cur = &l
	f.agent.line(f, &l)
	for len(f.arrivals) > 0 {
		id := f.arrivals[0]
		f.arrivals = f.arrivals[1:]
		f.arrived(id)
	}
	f.arrivals = nil
	f.cur = nil
	if !f.wasGarbage {
		f.garbageID = ""
	}
	f.after()
}

// condenser shortens a JSON text as it comes in: of long strings and lists it keeps
// the beginning. It does not check the text. Its exported fields are its state.
type condenser struct {
	Max    int  // bytes of a string
	List   int  // bytes of an array or object, not the outermost
	Total  int  // bytes in all
	Mark   bool // put the whole length behind a string that is cut
	Broken bool // the text is longer than Total

	Out     []byte
	Quoted  bool  // in a string
	Escape  int   // bytes of an escape that are still to come; -1: its kind comes next
	Long    bool  // the string is cut already
	High    bool  // the last escape may be the first half of a pair
	Hex     int   // of the escape
	Str     int   // where the string began in Out
	Chars   int64 // its length so far, decoded
	Starts  []int // where the open lists began in Out
	Skip    int   // depth of the list whose rest is left out; 0: none
	Dropped int64 // bytes left out
}

func (c *condenser) write(b []byte) {
	for i := 0; i < len(b) && !c.Broken; {
		if c.Quoted {
			i += c.inString(b[i:])
		} else {
			c.outside(b[i])
			i++
		}
		if len(c.Out) > c.Total {
			c.Broken, c.Out = true, nil
		}
	}
}

// inString takes the next bytes of a string, one at least.
func (c *condenser) inString(b []byte) int {
	if c.Escape != 0 {
		c.escape(b[0])
		return 1
	}
	// Most of a long string is plain, so it is looked at in windows.
	const window = 512
	n := 0
	for len(b)-n >= window && bytes.IndexByte(b[n:n+window], '"') < 0 && bytes.IndexByte(b[n:n+window], '\\') < 0 {
		n += window
	}
	for n < len(b) && b[n] != '"' && b[n] != '\\' {
		n++
	}
	if n > 0 {
		c.keepText(b[:n])
		c.High = false
		return n
	}
	if b[0] == '"' {
		c.Quoted = false
		if c.Skip == 0 {
			if c.Long && c.Mark {
				c.Out = append(c.Out, cutMark...)
				c.Out = strconv.AppendInt(c.Out, c.Chars, 10)
			}
			c.Out = append(c.Out, '"')
		}
		return 1
	}
	c.full()
	c.Escape, c.Hex = -1, 0
	c.keepByte('\\')
	return 1
}

// full ends the kept part of a string if it is long enough.
func (c *condenser) full() {
	if !c.Long && !c.High && len(c.Out)-c.Str >= c.Max {
		c.Long = true
	}
}

func (c *condenser) keepText(b []byte) {
	c.Chars += int64(len(b))
	if c.Skip > 0 {
		c.Dropped += int64(len(b))
		return
	}
	if !c.Long {
		// Up to the end of the character at the bound, which may come in two pieces.
		room := max(c.Max-(len(c.Out)-c.Str), 0)
		for room < len(b) && !utf8.RuneStart(b[room]) {
			room++
		}
		if room >= len(b) {
			c.Out = append(c.Out, b...)
			return
		}
		c.Out = append(c.Out, b[:room]...)
		b, c.Long = b[room:], true
	}
	c.Dropped += int64(len(b))
}

func (c *condenser) keepByte(b byte) {
	if c.Skip > 0 || c.Long {
		c.Dropped++
		return
	}
	c.Out = append(c.Out, b)
}

func (c *condenser) escape(b byte) {
	c.keepByte(b)
	if c.Escape == -1 {
		c.Escape = 0
		if b == 'u' {
			c.Escape = 4
		} else {
			c.Chars++
			c.High = false
		}
		return
	}
	c.Escape--
	d := 0
	switch {
	case '0' <= b && b <= '9':
		d = int(b - '0')
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		d = int(b|0x20-'a') + 10
	}
	c.Hex = c.Hex<<4 | d
	if c.Escape == 0 {
		switch {
		case c.Hex < 0x80:
			c.Chars++
		case c.Hex < 0x800 || 0xd800 <= c.Hex && c.Hex < 0xe000:
			c.Chars += 2
		default:
			c.Chars += 3
		}
		c.High = 0xd800 <= c.Hex && c.Hex < 0xdc00
	}
}

func (c *condenser) outside(b byte) {
	depth := len(c.Starts)
	switch b {
	case '"':
		c.Quoted, c.Long, c.High, c.Chars, c.Str = true, false, false, 0, len(c.Out)
	case '{', '[':
		if depth > rawjson.MaxDepth {
			c.Broken, c.Out = true, nil
			return
		}
		c.Starts = append(c.Starts, len(c.Out))
	case '}', ']':
		if depth > 0 {
			c.Starts = c.Starts[:depth-1]
		}
		if c.Skip == depth {
			c.Skip = 0
		}
	case ',':
		if c.Skip == 0 && depth > 1 && len(c.Out)-c.Starts[depth-1] > c.List {
			c.Skip = depth
		}
	}
	if c.Skip > 0 {
		c.Dropped++
		return
	}
	c.Out = append(c.Out, b)
}

// cutMark stands behind the kept part of a string that was cut, followed by its
// whole length.
const cutMark = `\u0000cut:`

// cutOf returns s without a mark, and the length of the whole.
func cutOf(s string) (string, int64) {
	const mark = "\x00cut:"
	const digits = 20
	from := max(0, len(s)-len(mark)-digits)
	i := bytes.LastIndex([]byte(s[from:]), []byte(mark))
	if i < 0 || len(s) < maxText {
		return s, int64(len(s))
	}
	i += from
	n, err := strconv.ParseInt(s[i+len(mark):], 10, 64)
	if err != nil || n < int64(i) {
		return s, int64(len(s))
	}
	return strings.Clone(s[:i]), n
}

// text returns the value of a string in the line, and its length before it was cut.
func (l *line) text(raw []byte) (string, int64) {
	s := str(raw)
	if !l.long {
		return s, int64(len(s))
	}
	return cutOf(s)
}

// shorten returns a valid JSON value of at most n bytes that says the beginning of
// raw, which is valid too.
func shorten(raw []byte, n int) []byte {
	for _, limit := range []int{n / 4, n / 32, n / 256} {
		c := condenser{Max: limit, List: n / 2, Total: n * 4}
		c.write(raw)
		if !c.Broken && len(c.Out) <= n && valid(c.Out) {
			return c.Out
		}
	}
	return []byte("{}")
}
