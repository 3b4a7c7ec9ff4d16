package mcp

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
)

const (
	// searchTime is how long a search may take before it tells how far it came;
	// less if the call has waited before.
	searchTime = 30 * time.Second
	// foundBytes is what a line that was found takes besides its text.
	foundBytes = 24
)

// searchUntil is when a search must have ended.
func searchUntil(ctx context.Context) time.Time {
	until := time.Now().Add(searchTime)
	if end, ok := ctx.Deadline(); ok && end.Add(-time.Second).Before(until) {
		until = end.Add(-time.Second)
	}
	return until
}

// finder collects the lines that match, and those around them, as long as there
// is room in a reply.
type finder struct {
	pattern *regexp.Regexp
	context int
	room    int

	found   []line
	matches int    // that are in found
	missed  int    // for which there was no room
	next    int64  // where to go on for those
	before  []line // what came last, for context
	after   int    // lines that are still to follow a match
}

func (f *finder) add(lines ...line) {
	for _, l := range lines {
		f.room -= cost(l.Text) + foundBytes
		f.found = append(f.found, l)
	}
}

// line looks at one line.
func (f *finder) line(offset int64, raw []byte) bool {
	text := plain(raw)
	l := line{offset, clip(text, lineBytes)}
	switch hit := f.pattern.MatchString(text); {
	case hit && f.room <= 0:
		f.missed++
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

// skipping says of whole lines whether a search may pass over them.
func skipping(a outputArguments) func([]byte) bool {
	// In a block a line begins and ends where a text does.
	re, err := regexp.Compile("(?m:" + a.Search + ")")
	if err != nil || a.Context > 0 || strings.Contains(a.Search, `\A`) || strings.Contains(a.Search, `\z`) || strings.Contains(a.Search, "(?") {
		return func([]byte) bool { return false } // it can't be told
	}
	return func(block []byte) bool {
		for _, c := range block {
			if c < ' ' && c != '\n' && c != '\t' {
				return false // what is searched is the text without escapes
			}
		}
		return !re.Match(block)
	}
}

// search puts the lines that match into the reply, as many as there is room for.
func (s *server) search(ctx context.Context, c *call, r *report, a outputArguments, from int64) error {
	re, err := compile("search", a.Search)
	if err != nil {
		return err
	}
	f := &finder{pattern: re, context: a.Context, room: c.room.page(), found: []line{}, next: from}
	until := searchUntil(ctx)
	limit := time.Until(until).Round(time.Second)
	looked, err := s.lines(ctx, r.Exec, api.ChunkType(a.Stream), span{from, r.Size}, scan{
		line: f.line, skip: skipping(a), until: until,
	})
	if err != nil {
		return err
	}
	r.Found, r.Next = f.found, looked
	switch {
	case f.missed > 0:
		r.Next = f.next
		r.note("%d lines match; the first %d are shown: go on with %s", f.matches+f.missed, f.matches, r.invoke("search", a.Search, "from", r.Next))
	case f.matches == 0 && looked < r.Size:
		r.note("no line matches so far")
	case f.matches == 0:
		r.note("no line matches")
	case f.matches == 1:
		r.note("1 line matches")
	default:
		r.note("%d lines match", f.matches)
	}
	if looked < r.Size && f.missed == 0 { // with some missed, the call above goes on before that
		r.stopped("the search", limit, looked, r.Size, a.Search)
	}
	return nil
}
