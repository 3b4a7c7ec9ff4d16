package shellsyntax

import (
	"errors"
	"strings"
)

// errMore reports that the text ends where something must follow. errOther reports
// that the text is none that this package understands, so that its shell must judge.
var (
	errMore  = errors.New("more lines must follow")
	errOther = errors.New("not understood")
)

// scanner reads a text from left to right.
type scanner struct {
	text    string
	at      int
	dialect Dialect
	pending []hereDocument // announced, with their text after the end of the line
}

// hereDocument is one that was announced by << and begins on the next line.
type hereDocument struct {
	end  string
	tabs bool // leading tabs are removed
}

func (s *scanner) ended() bool { return s.at >= len(s.text) }

func (s *scanner) rest() string { return s.text[s.at:] }

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.rest(), prefix) }

// skip skips a prefix, if it is there.
func (s *scanner) skip(prefix string) bool {
	if !s.has(prefix) {
		return false
	}
	s.at += len(prefix)
	return true
}

// skipBlanks skips blanks and continued lines.
func (s *scanner) skipBlanks() {
	for more := true; more; {
		more = s.skip(" ") || s.skip("\t") || s.skip("\\\n")
	}
}

// skipSpace skips blanks, line breaks and comments.
func (s *scanner) skipSpace() error {
	for {
		s.skipBlanks()
		switch {
		case s.has("#"):
			s.skipComment()
		case s.has("\n"):
			if err := s.endLine(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (s *scanner) skipComment() {
	n := strings.IndexByte(s.rest(), '\n')
	if n < 0 {
		n = len(s.rest())
	}
	s.at += n
}

// endLine skips a line break and the here-documents behind it.
func (s *scanner) endLine() error {
	s.at++
	for len(s.pending) > 0 {
		h := s.pending[0]
		s.pending = s.pending[1:]
		for {
			if s.ended() {
				return errMore
			}
			line, _, broken := strings.Cut(s.rest(), "\n")
			s.at += len(line)
			if broken {
				s.at++
			}
			if h.tabs {
				line = strings.TrimLeft(line, "\t")
			}
			if line == h.end {
				break
			}
		}
	}
	return nil
}

// redirection skips < or > with what belongs to it.
func (s *scanner) redirection(command func(closer string) error) error {
	switch {
	case s.skip("<("), s.skip(">("):
		return command(")")
	case s.skip("<<<"):
	case s.has("<<"):
		return s.announceHereDocument()
	default:
		for more := true; more; {
			more = s.skip("<") || s.skip(">") || s.skip("&") || s.skip("|")
		}
	}
	s.skipBlanks()
	_, err := s.word(command)
	return err
}

func (s *scanner) announceHereDocument() error {
	s.at += len("<<")
	h := hereDocument{tabs: s.skip("-")}
	s.skipBlanks()
	begin := s.at
	if _, err := s.word(nil); err != nil {
		return err
	}
	h.end = strings.NewReplacer(`\`, "", `'`, "", `"`, "").Replace(s.text[begin:s.at])
	if h.end == "" && begin == s.at {
		return errOther
	}
	s.pending = append(s.pending, h)
	return nil
}

// metacharacters end a word, unless they are quoted.
const metacharacters = " \t\n;|&<>()"

// word skips a word and returns it if it is one without quotes and expansions. It
// reads the commands of substitutions with command.
func (s *scanner) word(command func(closer string) error) (plain string, err error) {
	begin, quoted := s.at, false
	for !s.ended() && err == nil {
		c := s.text[s.at]
		switch {
		case c == '\\' || c == '\'' || c == '"' || c == '`' || c == '$':
			quoted = true
			err = s.quotedPart(false, command)
		case c == '(' && s.at > begin && !s.has("()") && s.takesParenthesis(s.text[s.at-1]):
			quoted = true
			err = s.balanced()
		case strings.IndexByte(metacharacters, c) >= 0:
			return s.plainSince(begin, quoted), nil
		default:
			s.at++
		}
	}
	return s.plainSince(begin, quoted), err
}

// takesParenthesis reports whether a parenthesis behind this character belongs to
// the word: that of an array or of a pattern.
func (s *scanner) takesParenthesis(before byte) bool {
	return s.dialect.Zsh || strings.IndexByte("=?*+@!", before) >= 0
}

func (s *scanner) plainSince(begin int, quoted bool) string {
	if quoted {
		return ""
	}
	return s.text[begin:s.at]
}

// quotedPart skips a quote, an escape or an expansion. In double quotes single
// quotes have no meaning.
func (s *scanner) quotedPart(inDouble bool, command func(closer string) error) error {
	switch {
	case s.has(`\`):
		if len(s.rest()) == 1 {
			return errMore
		}
		s.at += 2
		return nil
	case !inDouble && s.skip("'"):
		return s.until("'", false)
	case !inDouble && s.dialect.DollarQuotes && s.skip("$'"):
		return s.until("'", true)
	case s.skip(`"`):
		return s.doubleQuotes(command)
	case s.skip("`"):
		return s.until("`", true)
	case s.skip("$(("):
		s.at -= len("((")
		return s.balanced()
	case s.skip("$("):
		if command == nil {
			s.at--
			return s.balanced()
		}
		return command(")")
	case s.skip("${"):
		return s.braces(inDouble, command)
	}
	s.at++
	return nil
}

// until skips everything up to a quote; with escapes a backslash protects it.
func (s *scanner) until(quote string, escapes bool) error {
	for !s.ended() {
		switch {
		case s.skip(quote):
			return nil
		case escapes && s.has(`\`):
			s.at++
		}
		s.at++
	}
	return errMore
}

func (s *scanner) doubleQuotes(command func(closer string) error) error {
	for !s.ended() {
		if s.skip(`"`) {
			return nil
		}
		if err := s.part(`\`+"`$", true, command); err != nil {
			return err
		}
	}
	return errMore
}

// braces skips the rest of ${…}.
func (s *scanner) braces(inDouble bool, command func(closer string) error) error {
	for !s.ended() {
		if s.skip("}") {
			return nil
		}
		if err := s.part(`\'"`+"`$", inDouble, command); err != nil {
			return err
		}
	}
	return errMore
}

// balanced skips a parenthesis up to the one that closes it.
func (s *scanner) balanced() error {
	depth := 0
	for !s.ended() {
		switch {
		case s.skip("("):
			depth++
		case s.skip(")"):
			if depth--; depth == 0 {
				return nil
			}
		default:
			if err := s.part(`\'"`+"`$", false, nil); err != nil {
				return err
			}
		}
	}
	return errMore
}

// part skips one character, or the whole of what a special one begins.
func (s *scanner) part(special string, inDouble bool, command func(closer string) error) error {
	if strings.IndexByte(special, s.text[s.at]) >= 0 {
		return s.quotedPart(inDouble, command)
	}
	s.at++
	return nil
}
