package shellsyntax

// construct is a compound command that has begun.
type construct int

const (
	group       construct = iota // { … }
	conditional                  // if … fi
	loopHead                     // while …, until …: do follows
	forHead                      // for …, select …: do or { follows
	loopBody                     // do … done
	casePattern                  // case … in, before a pattern
	caseBody                     // behind a pattern
)

func (p *commands) top() construct {
	if len(p.open) == 0 {
		return -1
	}
	return p.open[len(p.open)-1]
}

func (p *commands) push(c construct) error {
	p.open = append(p.open, c)
	return nil
}

// replace replaces the innermost construct, which must be one of those given.
func (p *commands) replace(by construct, given ...construct) error {
	if err := p.pop(given...); err != nil {
		return err
	}
	return p.push(by)
}

// pop ends the innermost construct, which must be one of those given.
func (p *commands) pop(given ...construct) error {
	for _, c := range given {
		if p.top() == c {
			p.open = p.open[:len(p.open)-1]
			return nil
		}
	}
	return errOther
}

// reserved acts on a word in the place of a command. known is false if it is an
// ordinary command.
func (p *commands) reserved(word string) (known bool, err error) {
	known = true
	switch word {
	case "{":
		if p.top() == forHead {
			err = p.replace(group, forHead)
		} else {
			err = p.push(group)
		}
	case "}":
		err = p.pop(group)
	case "if":
		err = p.push(conditional)
	case "then", "elif", "else":
		if p.top() != conditional {
			err = errOther
		}
	case "fi":
		err = p.pop(conditional)
	case "while", "until":
		err = p.push(loopHead)
	case "for":
		err = p.forHeader()
	case "do":
		err = p.replace(loopBody, loopHead, forHead)
	case "done":
		err = p.pop(loopBody)
	case "case":
		err = p.caseHeader()
	case "esac":
		err = p.pop(casePattern, caseBody)
	case "!", "time":
	default:
		if p.dialect.Extended {
			return p.extended(word)
		}
		known = false
	}
	return known, err
}

// extended acts on the reserved words that not all shells have.
func (p *commands) extended(word string) (known bool, err error) {
	switch word {
	case "[[":
		return true, p.condition()
	case "select":
		return true, p.forHeader()
	case "function":
		p.skipBlanks()
		if _, err := p.word(p.nested); err != nil {
			return true, err
		}
		p.skipBlanks()
		p.skip("()")
		p.needsCommand = true
		return true, nil
	}
	return false, nil
}

// forHeader skips the name behind for. What follows are words, up to a separator.
func (p *commands) forHeader() error {
	p.skipBlanks()
	if p.has("((") {
		if err := p.balanced(); err != nil {
			return err
		}
		return p.push(forHead)
	}
	if _, err := p.word(p.nested); err != nil {
		return err
	}
	if err := p.push(forHead); err != nil {
		return err
	}
	if err := p.skipSpace(); err != nil {
		return err
	}
	if p.keyword("in") {
		p.words = true
	}
	return nil
}

// caseHeader skips the word and the in behind case.
func (p *commands) caseHeader() error {
	if err := p.skipSpace(); err != nil {
		return err
	}
	if _, err := p.word(p.nested); err != nil {
		return err
	}
	if err := p.skipSpace(); err != nil {
		return err
	}
	if p.ended() {
		return errMore
	}
	if !p.keyword("in") {
		return errOther
	}
	return p.push(casePattern)
}

// keyword skips a word, if it is there.
func (p *commands) keyword(word string) bool {
	before := p.at
	if got, err := p.word(p.nested); err == nil && got == word {
		return true
	}
	p.at = before
	return false
}

// condition skips the rest of [[ … ]].
func (p *commands) condition() error {
	for {
		if err := p.skipSpace(); err != nil {
			return err
		}
		if p.ended() {
			return errMore
		}
		before := p.at
		word, err := p.word(p.nested)
		if err != nil {
			return err
		}
		if word == "]]" {
			return nil
		}
		if p.at == before { // an operator
			p.at++
		}
	}
}
