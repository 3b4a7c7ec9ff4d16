package daemon

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/place"
	"github.com/terminal-runtime/trl/internal/profile"
	"github.com/terminal-runtime/trl/internal/spelling"
)

// placeTable is the key of the tables [place.NAME] in the configuration file.
const placeTable = "place"

// placeName matches the NAME of such a table.
var placeName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// placeKey is a key of such a table.
type placeKey struct {
	name string
	// set stores the value. It returns what the value must be, "" if it is valid.
	set func(p *place.Configured, value any) string
}

var placeKeys = []placeKey{
	{"command", func(p *place.Configured, value any) string {
		words, ok := value.([]any)
		for _, word := range words {
			text, isText := word.(string)
			ok = ok && isText && !strings.Contains(text, "\x00")
			p.Command = append(p.Command, text)
		}
		if !ok || len(words) == 0 || p.Command[0] == "" {
			return `an array of strings in quotes, such as ["kubectl", "exec", "-i", "pod", "--", "trl", "connect", "--wait"]`
		}
		return ""
	}},
	{"deliver", func(p *place.Configured, value any) string {
		var ok bool
		if p.Deliver, ok = value.(bool); !ok {
			return "true or false"
		}
		return ""
	}},
	{"url", func(p *place.Configured, value any) string {
		p.URL, _ = value.(string)
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return `an address such as "https://build.example.com:7040", without a user`
		}
		return ""
	}},
	{"isolation", func(p *place.Configured, value any) string {
		p.Isolation, _ = value.(string)
		if !slices.Contains(profile.Names(), p.Isolation) {
			return "one of " + strings.Join(profile.Names(), ", ") + ", in quotes"
		}
		return ""
	}},
	{"token_file", func(p *place.Configured, value any) string {
		p.TokenFile, _ = value.(string)
		if !filepath.IsAbs(p.TokenFile) {
			return "an absolute path in quotes"
		}
		return ""
	}},
}

// parsePlaces reads the tables [place.NAME]. value is what the file has for place.
func (c *Config) parsePlaces(text string, value any) (problems []problem) {
	tables, ok := value.(map[string]any)
	if !ok {
		return []problem{{lineOf(text, placeTable), errors.New("place must be tables such as [place.pod]")}}
	}
	c.Places = map[string]place.Configured{}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		heading := placeTable + "." + name
		line := lineOfTable(text, name)
		table, ok := tables[name].(map[string]any)
		switch {
		case !ok:
			problems = append(problems, problem{line, fmt.Errorf("%s must be a table, as in [place.pod]", heading)})
			continue
		case !placeName.MatchString(name):
			problems = append(problems, problem{line, fmt.Errorf("place.%q must have a name of 1 to 32 characters a-z, 0-9 and \"-\"", name)})
			continue
		}
		p, wrong := parsePlace(table)
		for key, err := range wrong {
			at := line
			if key != "" {
				at += lineOf(text[lineStart(text, line):], key) - 1
			}
			problems = append(problems, problem{at, fmt.Errorf("%s: %w", heading, err)})
		}
		c.Places[name] = p
	}
	return problems
}

// parsePlace reads one table. It returns what is wrong by key; "" stands for the
// table itself.
func parsePlace(table map[string]any) (p place.Configured, wrong map[string]error) {
	wrong = map[string]error{}
	var known []string
	for _, key := range placeKeys {
		known = append(known, key.name)
		if value, ok := table[key.name]; ok {
			if must := key.set(&p, value); must != "" {
				wrong[key.name] = fmt.Errorf("%s must be %s", key.name, must)
			}
		}
	}
	for key := range table {
		if slices.Contains(known, key) {
			continue
		}
		wrong[key] = fmt.Errorf("unknown key %q; it takes %s", key, strings.Join(known, ", "))
		if near, ok := spelling.Closest(key, known); ok {
			wrong[key] = fmt.Errorf("unknown key %q; did you mean %s?", key, near)
		}
	}
	_, command := table["command"]
	_, address := table["url"]
	_, token := table["token_file"]
	switch {
	case len(wrong) > 0: // one of them may have been meant
	case command == address:
		wrong[""] = errors.New("must have either command or url")
	case p.Deliver && !command:
		wrong["deliver"] = errors.New("deliver needs a command")
	case token && !address:
		wrong["token_file"] = errors.New("token_file needs a url")
	}
	return p, wrong
}

// lineOfTable returns the line of a file that begins the table [place.NAME].
func lineOfTable(text, name string) int {
	at := regexp.MustCompile(`(?m)^[ \t]*\[?[ \t]*` + placeTable + `[ \t]*\.[ \t]*["']?` + regexp.QuoteMeta(name) + `["']?[ \t]*[=.\]]`).FindStringIndex(text)
	if at == nil {
		return lineOf(text, placeTable)
	}
	return 1 + strings.Count(text[:at[0]], "\n")
}

// lineStart returns the offset of a line in text. The first line is 1.
func lineStart(text string, line int) int {
	offset := 0
	for l := range strings.Lines(text) {
		if line--; line == 0 {
			break
		}
		offset += len(l)
	}
	return offset
}
