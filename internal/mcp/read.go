package mcp

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
)

// readBytes is how much one question for output asks for: what the daemon
// answers at the most.
const readBytes = 1 << 20

// read reads a part of an exec's journal, as far as there is something.
func (s *server) read(ctx context.Context, exec string, stream api.ChunkType, part span) (*stretch, error) {
	out := &stretch{span: span{part.From, part.From}}
	for out.To < part.To {
		most := min(part.To-out.To, readBytes)
		got, err := ask[api.ExecOutputResult](ctx, s, api.MethodExecOutput, api.ExecOutputParams{ExecID: exec, From: out.To, MaxBytes: &most, Stream: stream})
		if err != nil {
			return nil, err
		}
		if err := out.add(got); err != nil {
			return nil, err
		}
		if got.Next == out.To {
			break
		}
		out.To = got.Next
	}
	return out, nil
}

// add takes the chunks of an answer.
func (s *stretch) add(got *api.ExecOutputResult) error {
	for _, c := range got.Chunks {
		if c.Type == api.ChunkGap {
			s.segments = append(s.segments, segment{offset: c.Offset, gap: c.Bytes})
			continue
		}
		data, err := api.DecodeBytes(c.Data, c.Encoding)
		if err != nil {
			return err
		}
		s.segments = append(s.segments, segment{offset: c.Offset, data: data})
	}
	return nil
}

// shown is the part of an output that a reply carries.
type shown struct {
	text    string
	binary  bool
	leftOut []span // what is not in it, by offsets; gaps too
	gaps    []span // what nobody has any more
	telling []line // of what is left out, lines that look like the reason
	looked  int64  // up to here what is left out was looked through for them
	stopped bool   // there, before its end: the time was over
	page    span   // what it is of
}

// excerpt is head and tail of an output.
func (s *server) excerpt(ctx context.Context, exec string, stream api.ChunkType, size int64, room budget) (*shown, error) {
	out := &shown{page: span{0, size}}
	begin := size
	if size > wholeBytes {
		begin = windowBytes
	}
	first, err := s.read(ctx, exec, stream, span{0, begin})
	if err != nil {
		return nil, err
	}
	out.gaps = first.dropped()
	head := first.bytes()
	if out.binary = isBinary(head); out.binary {
		out.text = hexdump(head)
		if cut := first.offset(min(hexBytes, len(head))); cut < size {
			out.leftOut = append(out.leftOut, span{cut, size})
		}
		return out, nil
	}
	whole := first.To >= size
	if whole && len(out.gaps) == 0 && headOf(head, room.page()) == len(head) {
		out.text = plain(head)
		return out, nil
	}
	last, tail := first, head
	if !whole {
		if last, err = s.read(ctx, exec, stream, span{size - windowBytes, size}); err != nil {
			return nil, err
		}
		tail = last.bytes()
	}
	cut, end := headOf(head, room.head), tailOf(tail, room.tail)
	if !whole { // what was read of it ends in the middle of a line
		if cut = cutBefore(head, cut); end == 0 {
			end = cutAfter(tail, 0)
		}
	}
	middle := span{first.offset(cut), last.offset(end)}
	if middle.size() <= 0 { // lines that were rewritten cost less alone than together
		out.text = plain(head[:cut]) + "\n" + plain(tail[cut:])
		return out, nil
	}
	out.leftOut = append(out.leftOut, middle)
	out.text = plain(head[:cut]) + "\n" + cutMark + "\n" + plain(tail[end:])
	return out, s.telling(ctx, exec, stream, middle, out)
}

// cutMark stands in an excerpt for what is left out. The reply that has the
// excerpt replaces it by the note that says how much it is.
const cutMark = "\x00cut\x00"

// page is the part of an output from an offset on.
func (s *server) page(ctx context.Context, exec string, stream api.ChunkType, from, size int64, room budget) (*shown, error) {
	got, err := s.read(ctx, exec, stream, span{from, min(size, from+windowBytes)})
	if err != nil {
		return nil, err
	}
	out := &shown{page: got.span, gaps: got.dropped()}
	data := got.bytes()
	if out.binary = isBinary(data); out.binary {
		cut := min(hexBytes, len(data))
		out.text, out.page.To = hexdump(data), got.offset(cut)
		return out, nil
	}
	cut := headOf(data, room.page())
	if got.To < size {
		cut = cutBefore(data, cut)
	}
	out.text = plain(data[:cut])
	if cut < len(data) {
		out.page.To = got.offset(cut)
	}
	return out, nil
}

// line is a line of an output, and where it begins.
type line struct {
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
}

const (
	// scanTime is how long what is left out is looked through for lines that tell
	// why a command failed: some hundred megabytes.
	scanTime = 5 * time.Second
	// tellingLines is how many of them are shown for each kind of reason, first
	// ones and last ones.
	tellingLines = 4
	// tellingBytes is how much of each.
	tellingBytes = 150
	// lineBytes is how much is shown of a line that was asked for.
	lineBytes = 240
)

// tellingWords are words in a line that a person would look for.
var tellingWords = [][]byte{
	[]byte("error"), []byte("fail"), []byte("fatal"), []byte("panic"), []byte("exception"), []byte("traceback"),
	[]byte("segmentation fault"), []byte("permission denied"), []byte("not found"), []byte("undefined"), []byte("cannot "),
}

// tellingSearch is the search that finds the same words.
const tellingSearch = `(?i)error|fail|fatal|panic|exception|traceback`

// lowered copies b into buf in lower case.
func lowered(buf, b []byte) []byte {
	buf = append(buf[:0], b...)
	for i, c := range buf {
		if 'A' <= c && c <= 'Z' {
			buf[i] = c + 'a' - 'A'
		}
	}
	return buf
}

// namesPlace says whether there is a place in a file in the text, such as
// main.go:17.
func namesPlace(text []byte) bool {
	for i := 1; i+1 < len(text); i++ {
		colon := bytes.IndexByte(text[i:], ':')
		if colon < 0 {
			return false
		}
		i += colon
		if i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9' {
			continue
		}
		ext := i - 1
		for ext > 0 && i-ext < 6 && ('a' <= text[ext] && text[ext] <= 'z' || 'A' <= text[ext] && text[ext] <= 'Z') {
			ext--
		}
		if ext > 0 && ext < i-1 && text[ext] == '.' && text[ext-1] > ' ' {
			return true
		}
	}
	return false
}

// keep is the first and the last of many lines.
type keep struct{ lines []line }

func (k *keep) add(offset int64, text []byte) {
	if len(k.lines) == tellingLines { // the last ones are nearer to the end
		k.lines = append(k.lines[:tellingLines/2], k.lines[tellingLines/2+1:]...)
	}
	k.lines = append(k.lines, line{offset, clip(plain(text), tellingBytes)})
}

// telling finds lines in what is left out that look like a reason to read it, and
// what of it nobody can read any more.
func (s *server) telling(ctx context.Context, exec string, stream api.ChunkType, part span, to *shown) (err error) {
	var buf []byte
	speaks := func(text []byte) bool {
		buf = lowered(buf, text)
		return slices.ContainsFunc(tellingWords, func(word []byte) bool { return bytes.Contains(buf, word) })
	}
	var words, places keep
	to.gaps = nil // those that were seen before are in this part
	to.looked, err = s.lines(ctx, exec, stream, part, scan{
		until: time.Now().Add(scanTime),
		gap:   func(g span) { to.gaps = append(to.gaps, g) },
		skip:  func(block []byte) bool { return !speaks(block) && !namesPlace(block) },
		line: func(offset int64, text []byte) bool {
			switch {
			case speaks(text):
				words.add(offset, text)
			case namesPlace(text):
				places.add(offset, text)
			}
			return true
		},
	})
	to.stopped = to.looked < part.To
	to.telling = slices.Concat(words.lines, places.lines)
	slices.SortFunc(to.telling, func(a, b line) int { return cmp.Compare(a.Offset, b.Offset) })
	return err
}

// maxLine is how much of a line without an end is held in memory.
const maxLine = 1 << 20

// scan is what is done with the lines of an output.
type scan struct {
	// line is called with a line without its newline, and returns whether to go
	// on. One that is longer than a megabyte comes in pieces.
	line func(offset int64, text []byte) bool
	// skip says of some lines that line need not be called with any of them.
	skip  func(block []byte) bool
	gap   func(span) // is told what is not kept any more; nil: nobody is
	until time.Time  // so long
}

// lines goes through the lines of a part of an output, and returns how far it
// came if the time was over before its end.
func (s *server) lines(ctx context.Context, exec string, stream api.ChunkType, part span, do scan) (looked int64, err error) {
	w := lineWalk{do: do, heldAt: part.From, on: true}
	if part.size() <= 0 {
		return part.To, nil
	}
	looked = part.To
	err = s.Runtime.Attach(ctx, api.ExecAttachParams{ExecID: exec, From: part.From}, func(c *api.Chunk, data []byte) bool {
		if c.Type == api.ChunkGap && do.gap != nil {
			do.gap(span{c.Offset, min(c.Next, part.To)})
		}
		if c.Type != api.ChunkGap && c.Type != api.ChunkExit && (stream == "" || c.Type == stream) {
			if c.Next > part.To && int64(len(data)) == c.Next-c.Offset {
				data = data[:part.To-c.Offset]
			}
			w.walk(c.Offset, data)
		}
		if c.Next < part.To && time.Now().After(do.until) {
			looked, w.on = w.heldAt, false
		}
		return w.on && c.Next < part.To
	})
	if err == nil && w.on && len(w.held) > 0 {
		do.line(w.heldAt, w.held)
	}
	return looked, err
}

// lineWalk cuts an output that comes in pieces into lines.
type lineWalk struct {
	do     scan
	held   []byte // the begin of a line whose end has not come
	heldAt int64  // where that is; with nothing held, where the next line begins
	on     bool
}

func (w *lineWalk) walk(offset int64, data []byte) {
	asked := false // whether the rest can be skipped
	for w.on && len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if len(w.held) == 0 {
			w.heldAt = offset
			// What is in whole lines may be skipped; a line that is cut in two
			// is looked at when it is whole.
			if last := bytes.LastIndexByte(data, '\n'); !asked && last >= 0 && w.do.skip(data[:last]) {
				offset, data = offset+int64(last)+1, data[last+1:]
				w.heldAt = offset
				end = -1
			}
			asked = true
		}
		if end < 0 {
			w.held = append(w.held, data...)
			if len(w.held) > maxLine {
				w.on = w.do.line(w.heldAt, w.held)
				w.held, w.heldAt = w.held[:0], offset+int64(len(data))
			}
			return
		}
		text := data[:end]
		if len(w.held) > 0 {
			w.held = append(w.held, text...)
			text = w.held
		}
		w.on = w.do.line(w.heldAt, text)
		w.held = w.held[:0]
		offset, data = offset+int64(end)+1, data[end+1:]
		w.heldAt = offset // whoever goes on from there must not meet this line again
	}
}

// clip shortens a text to about n bytes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
