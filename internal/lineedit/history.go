package lineedit

import "strings"

// History is the command lines of one prompt. It is kept in memory only: lines
// may contain secrets, which must not end up in a file.
type History struct{ lines []string }

// maxHistory is more than anyone scrolls back.
const maxHistory = 1000

// Add appends a line, unless it is empty, starts with a blank, or repeats the
// last one.
func (h *History) Add(line string) {
	if line == "" || strings.HasPrefix(line, " ") || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	if len(h.lines) == maxHistory {
		h.lines = h.lines[1:]
	}
	h.lines = append(h.lines, line)
}

// find returns the index of the last line before the given index that contains
// the text, -1 if there is none.
func (h *History) find(text string, before int) int {
	for i := min(before, len(h.lines)) - 1; i >= 0; i-- {
		if strings.Contains(h.lines[i], text) {
			return i
		}
	}
	return -1
}
