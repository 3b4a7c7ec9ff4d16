package mcp

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
)

const (
	// searchTime limits a search, which then reports how far it came. It is less if
	// the call has waited before.
	searchTime = 30 * time.Second
	// foundBytes is the cost of a found line in addition to its text.
	foundBytes = 24
)

// searchUntil returns the deadline of a search that starts now.
func searchUntil(ctx context.Context) time.Time {
	until := time.Now().Add(searchTime)
	if end, ok := ctx.Deadline(); ok && end.Add(-time.Second).Before(until) {
		until = end.Add(-time.Second)
	}
	return until
}

// finder collects the lines that match, with context lines, as long as there is
// room in a reply.
type finder struct {
	pattern *regexp.Regexp
	context int
	room    int

	found   []line
	matches int    // number of matches in found
	omitted int    // number of matches without room
	next    int64  // offset where a search for those continues
	before  []line // the last lines, as context for a match
	after   int    // number of context lines still to add after a match
}

func (f *finder) add(lines ...line) {
	for _, l := range lines {
		f.room -= cost(l.Text) + foundBytes
		f.found = append(f.found, l)
	}
}

// line adds a line if it matches or is context. It always returns true.
func (f *finder) line(offset int64, raw []byte) bool {
	text := plain(raw)
	l := line{offset, clip(text, lineBytes)}
	switch hit := f.pattern.MatchString(text); {
	case hit && f.room <= 0:
		f.omitted++
	case hit:
		f.add(f.before...)
		f.add(l)
		f.before, f.after = f.before[:0], f.context
		f.matches, f.next = f.matches+1, offset+int64(len(raw))+1
	case f.after > 0 && f.room > 0:
		f.after--
		f.add(l)
	case f.context > 0:
		if len(f.before) == f.context {
			f.before = append(f.before[:0], f.before[1:]...)
		}
		f.before = append(f.before, l)
	}
	return true
}

// skipFunc returns a function that reports whether a search may skip a block of
// whole lines.
func skipFunc(a outputArguments) func([]byte) bool {
	// In a block, ^ and $ must match at the start and end of each line.
	re, err := regexp.Compile("(?m:" + a.Search + ")")
	if err != nil || a.Context > 0 || strings.Contains(a.Search, `\A`) || strings.Contains(a.Search, `\z`) || strings.Contains(a.Search, "(?") {
		return func([]byte) bool { return false } // can't be decided for a block
	}
	return func(block []byte) bool {
		if bytes.Contains(block, scriptRoot) {
			return false // nameShell may change it
		}
		for _, c := range block {
			if c < ' ' && c != '\n' && c != '\t' {
				return false // the search is in the text without escape sequences
			}
		}
		return !re.Match(block)
	}
}

// search adds the lines that match to the report, as many as there is room for.
func (s *server) search(ctx context.Context, c *call, r *report, a outputArguments, from int64) error {
	re, err := compile("search", a.Search)
	if err != nil {
		return err
	}
	f := &finder{pattern: re, context: a.Context, room: c.room.page(), found: []line{}, next: from}
	until := searchUntil(ctx)
	limit := time.Until(until).Round(time.Second)
	looked, err := s.scanLines(ctx, r.Exec, api.ChunkType(a.Stream), span{from, r.Size}, lineScan{
		line: f.line, skip: skipFunc(a), until: until,
	})
	if err != nil {
		return err
	}
	r.Found, r.Next = f.found, looked
	switch {
	case f.omitted > 0:
		r.Next = f.next
		r.note("%d lines match; the first %d are shown: continue with %s", f.matches+f.omitted, f.matches, r.invoke("search", a.Search, "from", r.Next))
	case f.matches == 0 && looked < r.Size:
		r.note("no line matches so far")
	case f.matches == 0:
		r.note("no line matches")
	case f.matches == 1:
		r.note("1 line matches")
	default:
		r.note("%d lines match", f.matches)
	}
	if looked < r.Size && f.omitted == 0 { // with omitted matches, the call above continues before that offset
		r.noteStopped("the search", limit, looked, r.Size, a.Search)
	}
	return nil
}
