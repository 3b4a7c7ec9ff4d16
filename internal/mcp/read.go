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

// readBytes is how many bytes one request for output asks for: the maximum that the
// daemon returns.
const readBytes = 1 << 20

// read reads a part of an exec's journal, as far as it exists.
func (s *server) read(ctx context.Context, exec string, stream api.ChunkType, part span) (*outputRange, error) {
	out := &outputRange{span: span{part.From, part.From}}
	for out.To < part.To {
		most := min(part.To-out.To, readBytes)
		got, err := callMethod[api.ExecOutputResult](ctx, s, api.MethodExecOutput, api.ExecOutputParams{ExecID: exec, From: out.To, MaxBytes: &most, Stream: stream})
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

// add appends the chunks of an answer.
func (s *outputRange) add(got *api.ExecOutputResult) error {
	for _, c := range got.Chunks {
		if c.Type == api.ChunkGap {
			s.chunks = append(s.chunks, chunk{offset: c.Offset, gap: c.Bytes})
			continue
		}
		data, err := c.Content()
		if err != nil {
			return err
		}
		s.chunks = append(s.chunks, chunk{offset: c.Offset, data: data})
	}
	return nil
}

// shownOutput is the part of an output that a reply shows.
type shownOutput struct {
	text       string
	binary     bool
	leftOut    []span // parts that are not in text, including gaps
	gaps       []span // parts that were not kept and cannot be read
	errorLines []line // lines of leftOut that look like the reason of a failure
	scannedTo  int64  // offset up to which leftOut was scanned for them
	stopped    bool   // the scan ended there because its time limit passed
	page       span   // the part of the output that was considered
}

// excerpt returns the head and tail of an output.
func (s *server) excerpt(ctx context.Context, exec string, stream api.ChunkType, size int64, room budget) (*shownOutput, error) {
	out := &shownOutput{page: span{0, size}}
	begin := size
	if size > wholeBytes {
		begin = windowBytes
	}
	first, err := s.read(ctx, exec, stream, span{0, begin})
	if err != nil {
		return nil, err
	}
	out.gaps = first.gaps()
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
	if !whole { // the windows that were read end in the middle of a line
		if cut = cutBefore(head, cut); end == 0 {
			end = cutAfter(tail, 0)
		}
	}
	middle := span{first.offset(cut), last.offset(end)}
	if middle.size() <= 0 { // rewritten lines cost less apart than together
		out.text = plain(head[:cut]) + "\n" + plain(tail[cut:])
		return out, nil
	}
	out.leftOut = append(out.leftOut, middle)
	out.text = plain(head[:cut]) + "\n" + cutMark + "\n" + plain(tail[end:])
	return out, s.findErrorLines(ctx, exec, stream, middle, out)
}

// cutMark marks in an excerpt where output is left out. The report replaces it with
// a note that says how much.
const cutMark = "\x00cut\x00"

// page returns the part of an output from an offset on, as much as there is room for.
func (s *server) page(ctx context.Context, exec string, stream api.ChunkType, from, size int64, room budget) (*shownOutput, error) {
	got, err := s.read(ctx, exec, stream, span{from, min(size, from+windowBytes)})
	if err != nil {
		return nil, err
	}
	out := &shownOutput{page: got.span, gaps: got.gaps()}
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

// line is a line of an output, and the offset of its start.
type line struct {
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
}

const (
	// scanTime limits the scan of the omitted output for lines that may explain why
	// a command failed: enough for some hundred megabytes.
	scanTime = 5 * time.Second
	// maxErrorLines is how many of them are shown for each kind, half of them the
	// first ones and half the last ones.
	maxErrorLines = 4
	// errorLineBytes is how many bytes of each are shown.
	errorLineBytes = 150
	// lineBytes is how many bytes are shown of a line that was asked for.
	lineBytes = 240
)

// errorWords are the words that a person would look for.
var errorWords = [][]byte{
	[]byte("error"), []byte("fail"), []byte("fatal"), []byte("panic"), []byte("exception"), []byte("traceback"),
	[]byte("segmentation fault"), []byte("permission denied"), []byte("not found"), []byte("undefined"), []byte("cannot "),
}

// errorSearch is a search expression for the most common of these words.
const errorSearch = `(?i)error|fail|fatal|panic|exception|traceback`

// toLower copies b into buf and converts ASCII letters to lower case.
func toLower(buf, b []byte) []byte {
	buf = append(buf[:0], b...)
	for i, c := range buf {
		if 'A' <= c && c <= 'Z' {
			buf[i] = c + 'a' - 'A'
		}
	}
	return buf
}

// hasFileLocation reports whether the text contains a file location such as
// main.go:17.
func hasFileLocation(text []byte) bool {
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

// firstAndLast keeps the first and the last of many lines.
type firstAndLast struct{ lines []line }

func (k *firstAndLast) add(offset int64, text []byte) {
	if len(k.lines) == maxErrorLines { // drop the oldest of the second half
		k.lines = append(k.lines[:maxErrorLines/2], k.lines[maxErrorLines/2+1:]...)
	}
	k.lines = append(k.lines, line{offset, clip(plain(text), errorLineBytes)})
}

// findErrorLines finds lines in the omitted part that look like the reason of a
// failure, and the gaps in it.
func (s *server) findErrorLines(ctx context.Context, exec string, stream api.ChunkType, part span, to *shownOutput) (err error) {
	var buf []byte
	hasErrorWord := func(text []byte) bool {
		buf = toLower(buf, text)
		return slices.ContainsFunc(errorWords, func(word []byte) bool { return bytes.Contains(buf, word) })
	}
	var words, places firstAndLast
	to.gaps = nil // the gaps found before are in this part, and are found again
	to.scannedTo, err = s.scanLines(ctx, exec, stream, part, lineScan{
		until: time.Now().Add(scanTime),
		gap:   func(g span) { to.gaps = append(to.gaps, g) },
		skip:  func(block []byte) bool { return !hasErrorWord(block) && !hasFileLocation(block) },
		line: func(offset int64, text []byte) bool {
			switch {
			case hasErrorWord(text):
				words.add(offset, text)
			case hasFileLocation(text):
				places.add(offset, text)
			}
			return true
		},
	})
	to.stopped = to.scannedTo < part.To
	to.errorLines = slices.Concat(words.lines, places.lines)
	slices.SortFunc(to.errorLines, func(a, b line) int { return cmp.Compare(a.Offset, b.Offset) })
	return err
}

// maxLine limits how much of an incomplete line is held in memory.
const maxLine = 1 << 20

// lineScan is a scan over the lines of an output.
type lineScan struct {
	// line is called with each line, without its newline, and reports whether to
	// continue. A line that is longer than a megabyte comes in pieces.
	line func(offset int64, text []byte) bool
	// skip reports whether line need not be called with any line of the block.
	skip  func(block []byte) bool
	gap   func(span) // called with each gap in the output; nil means not called
	until time.Time  // time limit
}

// scanLines scans the lines of a part of an output. It returns the end of the part,
// or the offset it reached when its time limit passed.
func (s *server) scanLines(ctx context.Context, exec string, stream api.ChunkType, part span, do lineScan) (looked int64, err error) {
	w := lineSplitter{scan: do, partialAt: part.From, active: true}
	if part.size() <= 0 {
		return part.To, nil
	}
	looked = part.To
	err = s.Caller.Attach(ctx, api.ExecAttachParams{ExecID: exec, From: part.From}, func(c *api.Chunk, data []byte) bool {
		if c.Type == api.ChunkGap && do.gap != nil {
			do.gap(span{c.Offset, min(c.Next, part.To)})
		}
		if c.Type != api.ChunkGap && c.Type != api.ChunkExit && (stream == "" || c.Type == stream) {
			if c.Next > part.To && int64(len(data)) == c.Next-c.Offset {
				data = data[:part.To-c.Offset]
			}
			w.feed(c.Offset, data)
		}
		if c.Next < part.To && time.Now().After(do.until) {
			looked, w.active = w.partialAt, false
		}
		return w.active && c.Next < part.To
	})
	if err == nil && w.active && len(w.partial) > 0 {
		do.line(w.partialAt, w.partial)
	}
	return looked, err
}

// lineSplitter splits an output that comes in pieces into lines.
type lineSplitter struct {
	scan      lineScan
	partial   []byte // start of a line whose end has not come
	partialAt int64  // its offset; if partial is empty, the offset of the next line
	active    bool   // false once the scan has ended
}

func (w *lineSplitter) feed(offset int64, data []byte) {
	asked := false // skip was called for this piece
	for w.active && len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if len(w.partial) == 0 {
			w.partialAt = offset
			// Whole lines may be skipped. A line that is cut in two is looked at
			// once it is complete.
			if last := bytes.LastIndexByte(data, '\n'); !asked && last >= 0 && w.scan.skip(data[:last]) {
				offset, data = offset+int64(last)+1, data[last+1:]
				w.partialAt = offset
				end = -1
			}
			asked = true
		}
		if end < 0 {
			w.partial = append(w.partial, data...)
			if len(w.partial) > maxLine {
				w.active = w.scan.line(w.partialAt, w.partial)
				w.partial, w.partialAt = w.partial[:0], offset+int64(len(data))
			}
			return
		}
		text := data[:end]
		if len(w.partial) > 0 {
			w.partial = append(w.partial, text...)
			text = w.partial
		}
		w.active = w.scan.line(w.partialAt, text)
		w.partial = w.partial[:0]
		offset, data = offset+int64(end)+1, data[end+1:]
		w.partialAt = offset // a scan that continues from here must not see this line again
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
