package cli

import (
	"os"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/doctor"
)

// style is how text looks on a terminal: the parameters of an SGR sequence, or ""
// for plain text.
type style string

const (
	styleBold   style = "1"
	styleFaint  style = "2"
	styleRed    style = "31"
	styleGreen  style = "32"
	styleYellow style = "33"
	styleCyan   style = "36"
)

// paint returns text in the style.
func (s style) paint(text string) string {
	if s == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// mayColour reports whether stream may get colours and styles: it is a terminal
// that has them, and the user has not turned them off.
func mayColour(stream any) bool {
	return isTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stateStyle returns the style of a session's state in a table.
func stateStyle(state string) style {
	switch state {
	case string(api.StateRunning):
		return styleGreen
	case string(api.StateTerminated):
		return styleFaint
	case stateUnreadable:
		return styleRed
	case string(api.StateCreating), stateEnding:
		return styleYellow
	}
	return ""
}

// outcomeStyle returns the style of how a command ended.
func outcomeStyle(outcome string) style {
	switch outcome {
	case "exit 0":
		return ""
	case string(api.ExecRunning):
		return styleGreen
	case string(api.ExecQueued):
		return styleYellow
	}
	return styleRed
}

// gradeStyle returns the style of a finding of the doctor.
func gradeStyle(grade string) style {
	switch doctor.Grade(grade) {
	case doctor.OK:
		return styleGreen
	case doctor.Note:
		return styleYellow
	case doctor.Problem:
		return styleRed
	}
	return ""
}

// paintError colours the words that start the lines of an error.
func paintError(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if hint, ok := strings.CutPrefix(line, hintPrefix); ok {
			b.WriteString(styleCyan.paint(strings.TrimSpace(hintPrefix)) + " " + hint)
		} else {
			b.WriteString(styleRed.paint("trl:") + strings.TrimPrefix(line, "trl:"))
		}
	}
	return b.String()
}
