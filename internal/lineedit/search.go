package lineedit

import (
	"strings"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/internal/printable"
)

// search is an incremental search of the history, from the last line back.
type search struct {
	query  string
	found  int // index of the line that is shown; the length of the history before the first match
	failed bool
	before buffer // to return to
}

func (e *Editor) startSearch() {
	e.search = &search{found: len(e.config.History.lines), before: e.buffer}
}

// handleSearch acts on a key during a search. Other keys end the search with the
// line that was found, and act on it: handled is false.
func (e *Editor) handleSearch(k Key) (handled bool) {
	s := e.search
	switch {
	case k.Code == Insert && !k.Paste:
		s.query += k.Text
		e.find(s.found + 1)
	case k.Code == Backspace:
		_, size := utf8.DecodeLastRuneInString(s.query)
		s.query = s.query[:len(s.query)-size]
		e.find(len(e.config.History.lines))
	case k.Code == Search:
		e.find(s.found)
	case k.Code == Abort || k.Code == Interrupt:
		e.buffer, e.search = s.before, nil
	case k.Code == Escape || k.Code == Tab:
		e.search = nil
	default:
		e.search = nil
		return false
	}
	return true
}

// find shows the last line before an index that has the query. If there is none,
// the line stays.
func (e *Editor) find(before int) {
	s, history := e.search, e.config.History
	if s.query == "" {
		s.failed, s.found, e.buffer = false, len(history.lines), s.before
		return
	}
	i := history.find(s.query, before)
	s.failed = i < 0
	if s.failed {
		return
	}
	s.found, e.recalled, e.own = i, i, string(s.before.text)
	ahead, _, _ := strings.Cut(history.lines[i], s.query)
	e.set(history.lines[i])
	e.at = utf8.RuneCountInString(ahead)
}

// prompt returns what stands before the line that was found.
func (s *search) prompt() string {
	if s.failed {
		return "(no match: " + printable.Text(s.query) + ") "
	}
	return "(search: " + printable.Text(s.query) + ") "
}
