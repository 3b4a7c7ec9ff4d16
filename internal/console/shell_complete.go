package console

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/shellsyntax"
)

// completer completes words as the session's shell sees them. The session may be
// on another machine, so it asks the session itself.
type completer struct {
	client interface {
		Run(context.Context, api.ExecRunParams) (*api.ExecResult, error)
	}
	session string
	dialect shellsyntax.Dialect
}

// completion is what a word can become.
type completion struct {
	replacement string   // for the word; "" if nothing can be added
	names       []string // to choose from, if there are several
}

//go:embed lookup/lookup.sh
var lookupScript string

const (
	// CompletionLabel is the label of commands that look up names for a prompt:
	// no user has asked for them.
	CompletionLabel = "completion"
	// lookupTimeout is as long as a person waits for a list of names before they
	// go on typing.
	lookupTimeout = time.Second
	// lookupBytes is the longest list that is read: some 50,000 names.
	lookupBytes = 1 << 20
)

// errTooMany reports that the list is longer than lookupBytes.
var errTooMany = errors.New("too many names: type more of it")

// complete returns what the last word of a line can become. It never waits for
// another command in the session.
func (c *completer) complete(ctx context.Context, line string) (completion, shellsyntax.Word, error) {
	word, ok := shellsyntax.WordBefore(line, c.dialect)
	if !ok {
		return completion{}, word, nil
	}
	kind := "file"
	if word.Command && !strings.Contains(word.Text, "/") {
		kind = "command"
	}
	out, err := c.lookUp(ctx, kind, word.Text)
	if err != nil {
		return completion{}, word, err
	}
	if kind == "command" {
		return c.choose(word, "", commandNames(out, word.Text)), word, nil
	}
	dir := word.Text[:strings.LastIndexByte(word.Text, '/')+1]
	return c.choose(word, dir, fileNames(out, word.Text[len(dir):])), word, nil
}

// lookUp runs the script in the session.
func (c *completer) lookUp(ctx context.Context, kind, word string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	quoted, ok := shellsyntax.Quote(word, '\'', true, shellsyntax.Dialect{})
	if !ok {
		return nil, nil
	}
	timeout, limit := lookupTimeout.Milliseconds(), int64(3*lookupBytes) // a terminal gets them as hex
	r, err := c.client.Run(ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{
			SessionID: c.session, Label: CompletionLabel, TimeoutMS: &timeout,
			Command: strings.NewReplacer("@KIND@", kind, "@WORD@", quoted).Replace(lookupScript),
		},
		MaxOutputBytes: &limit,
	})
	if err != nil {
		return nil, err
	}
	if r.Truncated {
		return nil, errTooMany
	}
	out, err := api.DecodeBytes(r.Stdout, r.StdoutEncoding)
	if err != nil || r.TTY == nil {
		return out, err
	}
	return fromTerminal(out)
}

// fromTerminal returns what the script wrote as hex between two marks.
func fromTerminal(out []byte) ([]byte, error) {
	_, out, begun := bytes.Cut(out, []byte("\x1b_trl;"))
	out, _, ended := bytes.Cut(out, []byte("\x1b\\"))
	if !begun || !ended {
		return nil, nil
	}
	digits := bytes.Join(bytes.Fields(out), nil)
	names := make([]byte, hex.DecodedLen(len(digits)))
	_, err := hex.Decode(names, digits)
	return names, err
}

// candidate is one name. Path separators are not part of it.
type candidate struct {
	name      string
	directory bool
}

// shown returns the name as a list shows it.
func (c candidate) shown() string {
	if c.directory {
		return c.name + "/"
	}
	return c.name
}

// fileNames returns the files in the output of the script whose names have the
// prefix. Hidden files need a prefix with a dot.
func fileNames(out []byte, prefix string) []candidate {
	directories := map[string]bool{}
	if prefix == ".." { // not every shell lists it
		directories[".."] = true
	}
	for path := range strings.SplitSeq(string(out), "\x00") {
		trimmed, isDirectory := strings.CutSuffix(path, "/")
		name := trimmed[strings.LastIndexByte(trimmed, '/')+1:]
		hidden := name == "." || name == ".." || prefix == "" && strings.HasPrefix(name, ".")
		if name == "" || hidden || !strings.HasPrefix(name, prefix) {
			continue
		}
		directories[name] = directories[name] || isDirectory
	}
	var found []candidate
	for _, name := range slices.Sorted(maps.Keys(directories)) {
		found = append(found, candidate{name, directories[name]})
	}
	return found
}

// posixCommands are those that no file on PATH has, and that dash, ash and mksh
// can't list.
var posixCommands = strings.Fields(`alias bg break case command continue do done elif else esac eval exec exit export fi for getopts hash
	if jobs local read readonly return set shift source then times trap type ulimit umask unalias unset until wait while`)

// commandNames returns the commands in the output of the script that have the
// prefix.
func commandNames(out []byte, prefix string) []candidate {
	names := slices.Concat(strings.Split(string(out), "\n"), posixCommands)
	slices.Sort(names)
	var found []candidate
	for _, name := range slices.Compact(names) {
		if name = strings.TrimSuffix(name, "\r"); name != "" && strings.HasPrefix(name, prefix) {
			found = append(found, candidate{name: name})
		}
	}
	return found
}

// choose returns what to do with the names that were found in a directory.
func (c *completer) choose(word shellsyntax.Word, dir string, found []candidate) completion {
	var done completion
	switch len(found) {
	case 0:
		return done
	case 1:
		done.replacement = c.quote(word, dir+found[0].shown(), !found[0].directory)
		return done
	}
	shared := found[0].name
	for _, f := range found[1:] {
		shared = sharedPrefix(shared, f.name)
	}
	if len(dir+shared) > len(word.Text) {
		done.replacement = c.quote(word, dir+shared, false)
		return done
	}
	for _, f := range found {
		done.names = append(done.names, f.shown())
	}
	return done
}

// quote returns a path as a word of the line, with a blank behind it if it is
// whole. A name that begins with a dash must not look like an option.
func (c *completer) quote(word shellsyntax.Word, path string, whole bool) string {
	home := ""
	switch {
	case word.Home:
		home, path = "~/", strings.TrimPrefix(path, "~/")
	case strings.HasPrefix(path, "-") && !strings.HasPrefix(word.Text, "-"):
		path = "./" + path
	}
	quoted, ok := shellsyntax.Quote(path, word.Quote, whole, c.dialect)
	if !ok {
		return ""
	}
	if whole {
		quoted += " "
	}
	return home + quoted
}

// sharedPrefix returns what two names begin with, in whole characters.
func sharedPrefix(a, b string) string {
	for i, r := range a {
		if !strings.HasPrefix(b[min(i, len(b)):], string(r)) {
			return a[:i]
		}
	}
	return a
}

// why returns what to tell a user whose word was not completed.
func (*completer) why(err error) string {
	switch {
	case errors.Is(err, errTooMany):
		return errTooMany.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no completion: the daemon does not answer"
	case api.IsCode(err, api.CodeSessionBusy):
		return "no completion: another command runs in the session"
	case api.IsCode(err, api.CodeSessionHeld):
		by, _ := leaseHolder(err)
		return "no completion: " + cmp.Or(by, "another client") + " is typing"
	}
	return "no completion: the session can't be asked"
}
