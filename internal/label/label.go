// Package label names commands for lists. A label is made of the words of a command
// that can't be a secret: lists show it to every client, and the daemon keeps it with
// the command's state.
//
// Any word that a person or a program chooses freely may be a secret: `echo hunter2`,
// `mysql -phunter2`, `git clone https://user:hunter2@host/`. So a word is shown only
// if its place says what it is: the name of the program, and after some programs the
// name of a subcommand, a target or a file. Everything from the first flag, quote,
// variable or other word on is left out.
package label

import (
	"path"
	"strings"
	"unicode"
)

const (
	// maxWords is the maximum number of words in a label, enough for
	// "sudo timeout 60 npm test".
	maxWords = 5
	// maxWord is the maximum length of a word in bytes: names are shorter, keys are
	// longer.
	maxWord = 30
	// maxText is how much of a command is read, in bytes: a command may have
	// megabytes, and its label is in its beginning.
	maxText = 1 << 10

	// omitted ends a label that does not show the whole command.
	omitted = "…"
)

// Of returns the label of shell code, "" if its first word may be a secret. It leaves
// out variables that are set before the program, and a `cd` before another command.
func Of(command string) string {
	text := command
	if len(text) > maxText {
		text = text[:1+strings.LastIndexAny(text[:maxText], " \t\n")] // a part of a word is not shown
	}
	return strings.Join(read(text, len(text) < len(command)), " ")
}

// read returns the words to show of the first command in text. cut says that text is
// the beginning of a longer one.
func read(text string, cut bool) []string {
	p := parser{rest: text}
	operator := p.command()
	if len(p.shown) == 2 && p.shown[0] == "cd" && isSequence(operator) {
		if then := read(p.after, cut); len(then) > 0 {
			return then
		}
	}
	if len(p.shown) > 0 && (cut || strings.TrimSpace(p.after) != "") {
		p.shown = append(p.shown, omitted)
	}
	return p.shown
}

// OfArgv returns the label of a program that is started with its arguments, without
// a shell.
func OfArgv(argv []string) string {
	// A word that is not plain ends a label, so the words need no quoting.
	for i, word := range argv {
		if word == "" || strings.ContainsAny(word, separators) {
			argv = append(argv[:i:i], "''")
			break
		}
	}
	if len(argv) == 0 || isAssignment(argv[0]) {
		return ""
	}
	return Of(strings.Join(argv, " "))
}

// parser reads the words of a command.
type parser struct {
	rest  string   // what has not been read
	shown []string // the safe words
	after string   // what follows them
}

const (
	blanks     = " \t"
	operators  = ";&|\n"
	separators = blanks + operators
)

// next returns the next word and the operator that ends the command after it, "" if
// the command goes on.
func (p *parser) next() (word, operator string) {
	p.rest = strings.TrimLeft(p.rest, blanks+"\n")
	word, p.rest = cutAt(p.rest, strings.IndexAny(p.rest, separators))
	p.rest = strings.TrimLeft(p.rest, blanks)
	operator, p.rest = cutAt(p.rest, strings.IndexFunc(p.rest, func(r rune) bool { return !strings.ContainsRune(operators, r) }))
	return word, operator
}

// cutAt splits text before the byte i; a negative i is its end.
func cutAt(text string, i int) (before, after string) {
	if i < 0 {
		i = len(text)
	}
	return text[:i], text[i:]
}

// show adds the word to the label if it is safe, and reports whether it is.
func (p *parser) show(word string) bool {
	if !isSafe(word) || len(p.shown) == maxWords {
		return false
	}
	p.shown, p.after = append(p.shown, word), p.rest
	return true
}

// command reads a command as far as its words are safe. It returns the operator after
// the last of them.
func (p *parser) command() (operator string) {
	word, operator := p.next()
	for isAssignment(word) {
		if operator != "" && !isSequence(operator) {
			return "" // a value that should have been quoted
		}
		word, operator = p.next()
	}
	if len(word) > maxWord && isPlain(word) {
		word = path.Base(word)
	}
	if !isProgram(word) || !p.show(word) {
		return ""
	}
	prefix := programName(word)
	operands, wraps := wrappers[prefix]
	for operator == "" && (operands > 0 || followedByName[prefix]) {
		if word, operator = p.next(); !p.show(word) {
			return ""
		}
		prefix += " " + word
		operands--
	}
	if wraps && operator == "" {
		return p.command()
	}
	return operator
}

// programName returns the name of a program without its directory and version, as
// the tables of this package have it: python for /usr/bin/python3.12.
func programName(word string) string {
	name := path.Base(word)
	if bare := strings.TrimRight(name, "0123456789.-"); bare != "" {
		return bare
	}
	return name
}

// isSequence reports whether the command after the operator runs next.
func isSequence(operator string) bool {
	switch strings.Trim(operator, "\n") {
	case "":
		return operator != ""
	case ";", "&&":
		return true
	}
	return false
}

// isAssignment reports whether the word sets a variable, and ends where it seems to
// end: a quote or an expansion could go on after a blank.
func isAssignment(word string) bool {
	name, value, found := strings.Cut(word, "=")
	return found && name != "" && !strings.ContainsAny(value, "'\"\\`$(){}<>") && strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}) < 0
}

// isProgram reports whether the word can be the name of a program: a number may be
// one that was typed at the wrong prompt.
func isProgram(word string) bool {
	return word == "." || strings.IndexFunc(word, unicode.IsLetter) >= 0
}

// isSafe reports whether a word has the form of a name or a path, and not that of a
// flag, a key, or anything that a shell would expand.
func isSafe(word string) bool {
	return word != "" && len(word) <= maxWord && word[0] != '-' && !isKey(word) && isPlain(word)
}

// isPlain reports whether a word has no quote and nothing that a shell would expand.
func isPlain(word string) bool {
	return strings.IndexFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._/+~-", r)
	}) < 0
}

// isKey reports whether a word looks like a generated key: it mixes capitals with
// digits, or letters with digits as no name does (x86_64 changes between them once,
// e2fsck twice).
func isKey(word string) bool {
	const maxChanges = 3
	var capital, digit bool
	changes, last := 0, rune(0)
	for _, r := range word {
		var kind rune
		switch {
		case unicode.IsDigit(r):
			kind, digit = 'd', true
		case unicode.IsLetter(r):
			kind, capital = 'l', capital || unicode.IsUpper(r)
		default:
			continue
		}
		if last != 0 && kind != last {
			changes++
		}
		last = kind
	}
	return capital && digit || changes > maxChanges
}
