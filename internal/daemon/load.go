package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/spelling"
	"github.com/terminal-runtime/trl/internal/trust"
)

// Sources is where settings come from. Flags override variables, variables override
// the file, and the file overrides the defaults.
type Sources struct {
	Flags       map[string]string // by key
	Environment Environment
	File        string // of --config; it must exist. "" means the default
}

// ConfigError reports everything that is wrong with the settings, each problem with
// its source and its key.
type ConfigError struct{ Problems []error }

func (e *ConfigError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		texts[i] = problem.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the problems.
func (e *ConfigError) Unwrap() []error { return e.Problems }

// Load returns the effective configuration. Any mistake makes it a *ConfigError: a
// daemon must not run with only part of its settings.
func Load(src Sources) (Config, error) {
	c := Defaults(src.Environment)
	problems := c.readFile(src)
	note := func(where string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %w", where, err))
		}
	}
	for _, s := range settings {
		if text, ok := src.Environment.lookup(s.Variable()); ok {
			note(s.Variable(), s.set(&c, text))
		}
	}
	for _, s := range settings {
		if text, ok := src.Flags[s.Key]; ok {
			note("--"+s.Flag(), s.set(&c, text))
		}
	}
	var err error
	c.Socket, err = filepath.Abs(c.Socket) // clients see it
	note("socket:", err)
	c.TokenFile, err = filepath.Abs(c.TokenFile)
	note("token_file:", err)
	if c.HostRuntime == HostRuntimeOff && c.DefaultRuntime == api.RuntimeHost {
		note("default_runtime", errors.New("must be the runtime of a place, since host_runtime is off (got \"host\")"))
	}
	if len(problems) > 0 {
		return Config{}, &ConfigError{problems}
	}
	return c, nil
}

// readFile applies the configuration file.
func (c *Config) readFile(src Sources) (problems []error) {
	if src.Environment.inCell() {
		return nil // the daemon outside passes its settings as flags
	}
	name, named := src.File, src.File != ""
	if !named {
		name, named = src.Environment.user().ConfigFile()
	}
	// Its contents decide whom the daemon admits.
	text, err := trust.ReadFile(name, os.Geteuid())
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case err != nil:
		return []error{fmt.Errorf("configuration: %w", err)}
	}
	for _, p := range c.parse(string(text)) {
		problems = append(problems, fmt.Errorf("%s:%d: %w", name, p.line, p.err))
	}
	c.File = name
	return problems
}

// problem is a mistake in a line of the configuration file.
type problem struct {
	line int
	err  error
}

// parse applies the text of a configuration file. Every key must be known and have
// a valid value.
func (c *Config) parse(text string) (problems []problem) {
	var values map[string]any
	if _, err := toml.Decode(text, &values); err != nil {
		if syntax, ok := errors.AsType[toml.ParseError](err); ok {
			return []problem{{syntax.Position.Line, errors.New(syntax.Message)}}
		}
		return []problem{{1, err}}
	}
	for key, value := range values {
		if key == placeTable {
			problems = append(problems, c.parsePlaces(text, value)...)
			continue
		}
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
		if i < 0 {
			problems = append(problems, problem{lineOf(text, key), unknownKey(key)})
		} else if err := settings[i].assign(c, value); err != nil {
			problems = append(problems, problem{lineOf(text, key), fmt.Errorf("%s %w", key, err)})
		}
	}
	slices.SortFunc(problems, func(p, q problem) int {
		return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.err.Error(), q.err.Error()))
	})
	return problems
}

// lineOf returns the line of a file that sets the key, as a key or as a table. The
// parser does not tell.
func lineOf(text, key string) int {
	at := regexp.MustCompile(`(?m)^[ \t]*\[*[ \t]*["']?` + regexp.QuoteMeta(key) + `["']?[ \t]*[=.\]]`).FindStringIndex(text)
	if at == nil {
		return 1 // a key with escapes in it
	}
	return 1 + strings.Count(text[:at[0]], "\n")
}

func unknownKey(key string) error {
	keys := []string{placeTable}
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	if near, ok := spelling.Closest(key, keys); ok {
		return fmt.Errorf("unknown setting %q; did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown setting %q; `trl serve --help` lists them all", key)
}
