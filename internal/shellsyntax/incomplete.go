package shellsyntax

import "errors"

// Incomplete reports whether a command goes on in the next line: a quote, a
// here-document or a compound command is open, or the last line ends with a
// backslash or an operator that needs a command. A text that is wrong counts as
// complete: its shell says what is wrong with it.
func Incomplete(text string, d Dialect) bool {
	s := &scanner{text: text, dialect: d}
	return errors.Is((&commands{scanner: s}).list(""), errMore)
}

// commands reads the commands of a text, or of a part in parentheses.
type commands struct {
	*scanner
	open         []construct
	needsCommand bool // behind |, && and ||, and the name of a function
	words        bool // the words up to the end of the line are no commands
}

// nested reads the commands up to a closing parenthesis.
func (p *commands) nested(closer string) error {
	return (&commands{scanner: p.scanner}).list(closer)
}

// list reads commands up to the closer, or to the end of the text if it is empty.
func (p *commands) list(closer string) error {
	for {
		p.skipBlanks()
		if p.ended() {
			return p.end(closer)
		}
		if closer != "" && p.has(closer) && p.top() != casePattern {
			p.skip(closer)
			if len(p.open) > 0 {
				return errOther
			}
			return nil
		}
		if err := p.next(); err != nil {
			return err
		}
	}
}

func (p *commands) end(closer string) error {
	if closer != "" || len(p.open) > 0 || p.needsCommand || len(p.pending) > 0 {
		return errMore
	}
	return nil
}

// next reads a separator, an operator, a parenthesis or a word.
func (p *commands) next() error {
	switch c := p.text[p.at]; c {
	case '#':
		p.skipComment()
		return nil
	case '\n':
		p.words = false
		return p.endLine()
	case ';', '&':
		return p.separator()
	case '|':
		p.operator("||", "|&", "|")
		return nil
	case '(':
		return p.parenthesis()
	case ')':
		p.at++
		if p.top() != casePattern {
			return errOther
		}
		p.words = false
		return p.replace(caseBody, casePattern)
	case '<', '>':
		p.needsCommand = false
		return p.redirection(p.nested)
	}
	return p.command()
}

// operator skips the first operator that is there. A command must follow it, if it
// does not separate patterns.
func (p *commands) operator(names ...string) {
	for _, name := range names {
		if p.skip(name) {
			break
		}
	}
	p.words = false
	p.needsCommand = p.top() != casePattern
}

func (p *commands) separator() error {
	p.words = false
	switch {
	case p.has("&&"):
		p.operator("&&")
	case p.skip(";;&"), p.skip(";;"), p.skip(";&"):
		return p.replace(casePattern, caseBody)
	case p.skip("&>"):
	default:
		p.at++
	}
	return nil
}

// parenthesis reads a subshell, an arithmetic command, or the parentheses behind
// the name of a function.
func (p *commands) parenthesis() error {
	switch {
	case p.top() == casePattern:
		p.at++
		return nil
	case p.words:
		return p.parenthesisBehindWord()
	case p.dialect.Extended && p.has("(("):
		p.needsCommand = false
		return p.balanced()
	case p.dialect.Extended && p.skip("()"): // a function without a name
		p.needsCommand = true
		return nil
	}
	p.at++
	p.needsCommand = false
	return p.nested(")")
}

// parenthesisBehindWord reads the parentheses of a function, or a pattern of zsh.
func (p *commands) parenthesisBehindWord() error {
	before := p.at
	p.at++
	p.skipBlanks()
	switch {
	case p.skip(")"):
		p.words, p.needsCommand = false, true
		return nil
	case p.dialect.Zsh:
		p.at = before
		return p.balanced()
	}
	return errOther
}

// command reads a word: a reserved one in the place of a command, or one of an
// ordinary command, which ends with the next separator.
func (p *commands) command() error {
	word, err := p.word(p.nested)
	if err != nil {
		return err
	}
	switch {
	case p.top() == casePattern && word == "esac" && !p.words:
		return p.pop(casePattern)
	case p.top() == casePattern:
		p.words = true
		return nil
	case p.words && word == "}" && p.dialect.Zsh && p.top() == group:
		p.words = false
		return p.pop(group)
	case p.words:
		return nil
	}
	p.needsCommand = false
	known, err := p.reserved(word)
	if !known {
		p.words = true
		if p.skip("()") {
			p.words, p.needsCommand = false, true
		}
	}
	return err
}
