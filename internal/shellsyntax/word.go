package shellsyntax

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Word is the word that ends at the cursor.
type Word struct {
	Text    string // its value, without quotes
	Len     int    // how many characters of the line it has
	Quote   rune   // the quote that is still open: ', ", or 0
	Home    bool   // it begins with an unquoted ~/, which Text has too
	Command bool   // it is the name of a command
}

// WordBefore returns the word at the end of a command line that was typed up to
// there. ok is false if the value of the word is known only to a shell, because of
// an expansion.
func WordBefore(line string, d Dialect) (w Word, ok bool) {
	r := wordReader{line: line, dialect: d}
	r.context = context{command: true}
	for r.at < len(line) {
		r.step()
	}
	if r.unknown || r.quote == dollarQuote {
		return Word{}, false
	}
	w = Word{
		Text: r.value, Quote: r.quote, Command: r.command && !r.target && !r.assigned,
		Len: utf8.RuneCountInString(line[r.start:]),
	}
	w.Home = strings.HasPrefix(line[r.start:], "~/")
	if strings.HasPrefix(line[r.start:], "~") && !w.Home {
		return Word{}, false // the home of another user
	}
	return w, true
}

// dollarQuote stands for the quote $'.
const dollarQuote rune = '$'

// wordReader reads a command line word by word.
type wordReader struct {
	line    string
	at      int
	dialect Dialect
	context
	outer []context // around command substitutions
}

// context is what is known of the words of one command.
type context struct {
	start    int  // where the current word begins
	quote    rune // that is open
	value    string
	begun    bool // the word has begun
	quoted   bool // some of it is quoted
	unknown  bool // it has an expansion
	command  bool // it is the name of a command
	target   bool // it is the file of a redirection
	assigned bool // it is behind a =
}

// step reads one character, or more that belong together.
func (r *wordReader) step() {
	c, rest := r.line[r.at], r.line[r.at:]
	switch {
	case r.quote == '\'':
		r.inQuote(c)
	case r.quote == dollarQuote:
		r.inDollarQuote(rest)
	case c == '\\':
		r.escaped(rest)
	case strings.HasPrefix(rest, "$("):
		r.enter(2)
	case r.quote == '"':
		r.inDoubleQuote(c)
	case c == '\'' || c == '"':
		r.open(rune(c), 1)
	case strings.HasPrefix(rest, "$'") && r.dialect.DollarQuotes:
		r.open(dollarQuote, 2)
	case c == '$' || c == '`' || c == '*' || c == '?' || c == '[':
		r.unknown = true
		r.take(1)
	case c == '#' && !r.begun:
		r.skipComment()
	default:
		r.plain(c)
	}
}

// take appends n bytes of the line to the word.
func (r *wordReader) take(n int) {
	r.begin()
	r.value += r.line[r.at : r.at+n]
	r.at += n
}

func (r *wordReader) begin() {
	if !r.begun {
		r.begun, r.start = true, r.at
	}
}

func (r *wordReader) open(quote rune, n int) {
	r.begin()
	r.quote, r.quoted = quote, true
	r.at += n
}

func (r *wordReader) inQuote(c byte) {
	if c == '\'' {
		r.quote = 0
		r.at++
		return
	}
	r.take(1)
}

func (r *wordReader) inDoubleQuote(c byte) {
	switch c {
	case '"':
		r.quote = 0
		r.at++
	case '$', '`':
		r.unknown = true
		r.take(1)
	default:
		r.take(1)
	}
}

// inDollarQuote reads the escapes that Quote writes.
func (r *wordReader) inDollarQuote(rest string) {
	switch {
	case rest[0] == '\'':
		r.quote = 0
		r.at++
	case rest[0] != '\\':
		r.take(1)
	case strings.HasPrefix(rest, `\n`):
		r.value += "\n"
		r.at += 2
	case strings.HasPrefix(rest, `\'`) || strings.HasPrefix(rest, `\\`):
		r.value += rest[1:2]
		r.at += 2
	case len(rest) >= 4:
		if c, err := strconv.ParseUint(rest[1:4], 8, 8); err == nil {
			r.value += string([]byte{byte(c)})
			r.at += 4
			return
		}
		fallthrough
	default:
		r.unknown = true
		r.at = min(r.at+2, len(r.line))
	}
}

func (r *wordReader) escaped(rest string) {
	switch {
	case len(rest) == 1:
		r.take(1)
	case rest[1] == '\n':
		r.at += 2
	case r.quote == '"' && !strings.ContainsRune("\"\\$`", rune(rest[1])):
		r.take(1)
	default:
		r.begin()
		r.quoted = true
		r.at++
		_, size := utf8.DecodeRuneInString(r.line[r.at:])
		r.take(size)
	}
}

// enter begins a command inside of a word.
func (r *wordReader) enter(n int) {
	r.begin()
	r.unknown = true
	r.outer = append(r.outer, r.context)
	r.at += n
	r.next(true)
}

// next begins a new word.
func (r *wordReader) next(command bool) {
	r.context = context{command: command, start: r.at}
}

func (r *wordReader) skipComment() {
	n := strings.IndexByte(r.line[r.at:], '\n')
	if n < 0 {
		r.unknown = true // there is nothing to complete in a comment
		r.at = len(r.line)
		return
	}
	r.at += n
}

func (r *wordReader) plain(c byte) {
	switch c {
	case ' ', '\t':
		if !r.begun {
			r.at++
			r.start = r.at
			return
		}
		command := r.command && (r.target || r.assigned || !r.quoted && introducesCommand(r.value))
		r.at++
		r.next(command)
	case '\n', ';', '|', '&', '(':
		r.at++
		r.next(true)
	case ')':
		r.at++
		if n := len(r.outer); n > 0 {
			r.context, r.outer = r.outer[n-1], r.outer[:n-1]
			return
		}
		r.next(true)
	case '<', '>':
		command := r.command && !r.begun
		r.at++
		r.next(command)
		r.target = true
	case '=':
		r.equals()
	default:
		r.take(1)
	}
}

// equals begins a new word behind VARIABLE= and --flag=.
func (r *wordReader) equals() {
	name := r.value
	if r.begun && !r.quoted && (strings.HasPrefix(name, "-") || r.command && isName(name)) {
		command := r.command
		r.at++
		r.next(command)
		r.assigned = true
		return
	}
	r.take(1)
}

func isName(text string) bool {
	for i, r := range text {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return text != ""
}

// introducesCommand reports whether a command name follows the first word of a
// command.
func introducesCommand(word string) bool {
	switch word {
	case "if", "then", "elif", "else", "while", "until", "do", "{", "!", "time",
		"command", "builtin", "exec", "nohup", "sudo", "doas", "xargs", "watch":
		return true
	}
	return false
}
