package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/terminal-runtime/trl/internal/trust"
)

// Sources is where settings come from. Flags override variables, variables override
// the file, and the file overrides the defaults.
type Sources struct {
	Flags       map[string]string // by key
	Environment Environment
	File        string // of --config; it must exist. "" means the default
}

// Load returns the effective configuration. Any mistake is an error that names the
// source and the key: a daemon must not run with only part of its settings.
func Load(src Sources) (Config, error) {
	c := Defaults(src.Environment)
	if err := c.readFile(src); err != nil {
		return Config{}, err
	}
	for _, s := range settings {
		if text, ok := src.Environment.lookup(s.Variable()); ok {
			if err := s.set(&c, text); err != nil {
				return Config{}, fmt.Errorf("%s: %w", s.Variable(), err)
			}
		}
		if text, ok := src.Flags[s.Key]; ok {
			if err := s.set(&c, text); err != nil {
				return Config{}, fmt.Errorf("--%s: %w", s.Flag(), err)
			}
		}
	}
	var err error
	if c.Socket, err = filepath.Abs(c.Socket); err != nil { // clients see it
		return Config{}, fmt.Errorf("socket: %w", err)
	}
	if c.TokenFile, err = filepath.Abs(c.TokenFile); err != nil {
		return Config{}, fmt.Errorf("token_file: %w", err)
	}
	return c, nil
}

// readFile applies the configuration file.
func (c *Config) readFile(src Sources) error {
	name, named := src.File, src.File != ""
	if !named {
		name, named = src.Environment.lookup(configVariable)
	}
	if !named {
		name = src.Environment.defaultFile()
	}
	text, err := readTrusted(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case err != nil:
		return fmt.Errorf("configuration: %w", err)
	}
	if err := c.parse(string(text)); err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	c.File = name
	return nil
}

// readTrusted reads a file that belongs to this user or root and that no one else
// can write to: its contents decide whom the daemon admits.
func readTrusted(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := trust.File(file, os.Geteuid()); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// parse applies the text of a configuration file. Every key must be known and have
// a value of the right type.
func (c *Config) parse(text string) error {
	var values map[string]toml.Primitive
	meta, err := toml.Decode(text, &values)
	if err != nil {
		// In a long file the message is useless without its line.
		if syntax, ok := errors.AsType[toml.ParseError](err); ok {
			return fmt.Errorf("line %d: %s", syntax.Position.Line, syntax.Message)
		}
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
		if i < 0 {
			return unknownKey(key)
		}
		s := settings[i]
		if err := meta.PrimitiveDecode(values[key], s.field(c)); err != nil {
			return fmt.Errorf("%s must be %s", key, s.expects())
		}
		if err := s.check(c); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func unknownKey(key string) error {
	keys := make([]string, len(settings))
	for i, s := range settings {
		keys[i] = s.Key
	}
	return fmt.Errorf("unknown key %q; the keys are %s", key, strings.Join(keys, ", "))
}
