package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/internal/units"
)

// Setting describes one key of the configuration. Its name is the same everywhere:
// max_sessions in the file, TRL_MAX_SESSIONS in the environment, --max-sessions as a
// flag. A key that ends in _ms is a duration and one that ends in _bytes is a size:
// both take text such as 30s or 256MiB, and a bare number in the unit of the name.
type Setting struct {
	Key      string
	Group    string // heading in help and documents
	Takes    string // what stands for the value in help, such as FILE; "": its type does
	Usage    string // one sentence of help
	choices  []string
	min      int64
	optional bool               // "" is allowed
	valid    func(string) error // further check of a string that is not "", or of each in a list; nil: none
	field    func(*Config) any  // *string, *int64, *bool or *[]string
}

// Settings returns every setting, in the order in which they are documented.
func Settings() []Setting { return slices.Clone(settings) }

// Variable returns the name of the setting in the environment.
func (s Setting) Variable() string { return envPrefix + strings.ToUpper(s.Key) }

// Flag returns the name of the setting on the command line.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// IsNumber reports whether the setting is a number, which a duration and a size are
// too.
func (s Setting) IsNumber() bool {
	_, ok := s.field(&Config{}).(*int64)
	return ok
}

// IsDuration reports whether the setting is a duration.
func (s Setting) IsDuration() bool { return strings.HasSuffix(s.Key, "_ms") }

// IsSize reports whether the setting is a number of bytes.
func (s Setting) IsSize() bool { return strings.HasSuffix(s.Key, "_bytes") }

// IsSwitch reports whether the setting is a bool.
func (s Setting) IsSwitch() bool {
	_, ok := s.field(&Config{}).(*bool)
	return ok
}

// IsList reports whether the setting takes several values: an array in the file,
// separated by commas elsewhere.
func (s Setting) IsList() bool {
	_, ok := s.field(&Config{}).(*[]string)
	return ok
}

// Placeholder returns what stands for the value in help texts.
func (s Setting) Placeholder() string {
	switch {
	case s.Takes != "":
		return s.Takes
	case s.IsDuration():
		return "DURATION"
	case s.IsSize():
		return "SIZE"
	case s.IsNumber():
		return "NUMBER"
	case s.IsList():
		return "LIST"
	default:
		return "TEXT"
	}
}

// expects describes the value that the setting takes, to go after "must be".
func (s Setting) expects() string {
	switch {
	case s.IsDuration():
		return `a duration such as "30s" or "1h30m", or a number of milliseconds`
	case s.IsSize():
		return `a size such as "256MiB", or a number of bytes`
	case s.IsNumber():
		return "a whole number"
	case s.IsSwitch():
		return "true or false"
	case s.IsList():
		return "an array of strings in quotes"
	default:
		return "a string in quotes"
	}
}

// Value returns the setting's value in c as text that can be typed.
func (s Setting) Value(c *Config) string { return s.Format(s.get(c)) }

// Format returns a value of the setting, from a Config or from system.info, as text
// that can be typed.
func (s Setting) Format(value any) string {
	switch value := value.(type) {
	case int64:
		return s.formatNumber(value)
	case float64: // as JSON numbers arrive
		return s.formatNumber(int64(value))
	case []string:
		return strings.Join(value, ",")
	case []any:
		words := make([]string, len(value))
		for i, word := range value {
			words[i] = fmt.Sprint(word)
		}
		return strings.Join(words, ",")
	default:
		return fmt.Sprint(value)
	}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (s Setting) formatNumber(n int64) string {
	switch {
	case s.IsDuration():
		return units.ExactDuration(milliseconds(n))
	case s.IsSize():
		return units.ExactSize(n)
	default:
		return strconv.FormatInt(n, 10)
	}
}

func (s Setting) get(c *Config) any {
	switch field := s.field(c).(type) {
	case *int64:
		return *field
	case *string:
		return *field
	case *bool:
		return *field
	case *[]string:
		return *field
	default:
		panic(fmt.Sprintf("daemon: setting %s is a %T", s.Key, field))
	}
}

// mismatch reports a value of the wrong kind. It repeats the value: settings are the
// operator's own, and none is secret.
func (s Setting) mismatch(value any) error {
	switch value.(type) {
	case string:
		return fmt.Errorf("must be %s (got %q)", s.expects(), value)
	case int64, float64, bool:
		return fmt.Errorf("must be %s (got %v)", s.expects(), value)
	default:
		return fmt.Errorf("must be %s", s.expects())
	}
}

// set parses text as the setting's value and stores it in c.
func (s Setting) set(c *Config, text string) error {
	switch field := s.field(c).(type) {
	case *int64:
		n, err := s.parseNumber(text)
		if err != nil {
			return s.mismatch(text)
		}
		*field = n
	case *string:
		*field = text
	case *bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return s.mismatch(text)
		}
		*field = on
	case *[]string:
		*field = nil
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				*field = append(*field, word)
			}
		}
	}
	return s.check(c)
}

// parseNumber parses a number, which is in the unit of the key's name unless it has
// its own.
func (s Setting) parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil:
		return n, nil
	case s.IsSize():
		return units.ParseSize(text)
	case s.IsDuration():
		d, err := units.ParseDuration(text)
		if d > 0 {
			d = max(d, time.Millisecond) // 0 may mean no limit
		}
		return d.Milliseconds(), err
	default:
		return 0, err
	}
}

// assign stores a value of the configuration file in c.
func (s Setting) assign(c *Config, value any) error {
	switch value := value.(type) {
	case string:
		if !s.IsSwitch() && !s.IsList() && (!s.IsNumber() || s.IsDuration() || s.IsSize()) {
			return s.set(c, value)
		}
	case int64:
		if field, ok := s.field(c).(*int64); ok {
			*field = value
			return s.check(c)
		}
	case bool:
		if field, ok := s.field(c).(*bool); ok {
			*field = value
			return s.check(c)
		}
	case []any:
		if field, ok := s.field(c).(*[]string); ok {
			return s.assignList(c, field, value)
		}
	}
	return s.mismatch(value)
}

func (s Setting) assignList(c *Config, field *[]string, values []any) error {
	*field = nil
	for _, value := range values {
		word, ok := value.(string)
		if !ok {
			return s.mismatch(values)
		}
		*field = append(*field, word)
	}
	return s.check(c)
}

// Check returns an error if text is not a valid value of the setting.
func (s Setting) Check(text string) error { return s.set(&Config{}, text) }

// check returns an error if the value in c is not valid.
func (s Setting) check(c *Config) error {
	switch value := s.get(c).(type) {
	case int64:
		if value < s.min {
			return fmt.Errorf("must be at least %s (got %s)", s.formatNumber(s.min), s.formatNumber(value))
		}
	case string:
		if s.choices == nil && value == "" && !s.optional {
			return errors.New("must not be empty")
		}
		if s.choices != nil && !slices.Contains(s.choices, value) {
			return fmt.Errorf("must be one of %s (got %q)", strings.Join(s.choices, ", "), value)
		}
		if s.valid != nil && value != "" {
			return s.valid(value)
		}
	case []string:
		if s.valid == nil {
			return nil
		}
		for _, word := range value {
			if err := s.valid(word); err != nil {
				return err
			}
		}
	}
	return nil
}
