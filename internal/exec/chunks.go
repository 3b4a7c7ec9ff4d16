package exec

import (
	"bytes"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/vt"
)

// wholeEnd returns the length of b without a character that is cut at its end.
func wholeEnd(b []byte) int {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

// wholeStart returns how many bytes at the start of b continue a character that
// began before it.
func wholeStart(b []byte) int {
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return 0
}

// trim holds back a character that is cut at the end of the data while the rest of
// it can still come. Of text it holds back the whole last line, which may still be
// rewritten.
func trim(segs []journal.Chunk, next int64, closed, text bool) ([]journal.Chunk, int64) {
	if len(segs) == 0 || closed {
		return segs, next
	}
	last := &segs[len(segs)-1]
	keep := wholeEnd(last.Data)
	if text {
		if i := bytes.LastIndexByte(last.Data, '\n'); i >= 0 {
			keep = i + 1
		}
	}
	if cut := len(last.Data) - keep; cut > 0 && (keep > 0 || len(segs) > 1) {
		last.Data = last.Data[:keep]
		next -= int64(cut)
		if keep == 0 {
			segs = segs[:len(segs)-1]
		}
	}
	return segs, next
}

var chunkTypes = map[journal.Stream]api.ChunkType{
	journal.Stdout: api.ChunkStdout, journal.Stderr: api.ChunkStderr, journal.TTY: api.ChunkTTY,
}

func chunkOf(seg journal.Chunk, wanted func(journal.Stream) bool, view string) (api.Chunk, bool) {
	if seg.Gap > 0 {
		return api.Chunk{Type: api.ChunkGap, Offset: seg.Offset, Bytes: seg.Gap, Next: seg.End()}, true
	}
	if !wanted(seg.Stream) {
		return api.Chunk{}, false
	}
	c := api.Chunk{Type: chunkTypes[seg.Stream], Offset: seg.Offset, Next: seg.End()}
	data := seg.Data
	if view == api.ViewText {
		data = vt.PlainText(data)
	}
	c.Data, c.Encoding = api.EncodeBytes(data)
	return c, true
}
