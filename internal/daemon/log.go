package daemon

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/printable"
)

// redacted replaces secret values in the log.
const redacted = "[redacted]"

// Commands, environments and input of sessions must not be logged: they may contain
// secrets, and not everyone who may read the log may read those. Keys are compared
// without case and separators.
var (
	// secretKeys are the keys whose values are redacted.
	secretKeys = []string{"env", "environment", "stdin", "input", "command", "argv", "args", "data", "params", "key", "cookie"}
	// secretWords are redacted wherever a key contains them.
	secretWords = []string{"token", "password", "passwd", "passphrase", "secret", "authorization", "credential", "apikey", "privatekey"}
)

// redact is the ReplaceAttr of every logger. It redacts everything in a group whose
// name is secret.
func redact(groups []string, a slog.Attr) slog.Attr {
	if secret(a.Key) || slices.ContainsFunc(groups, secret) {
		return slog.String(a.Key, redacted)
	}
	return a
}

func secret(key string) bool {
	key = strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-. ", r) {
			return -1
		}
		return r
	}, strings.ToLower(key))
	return slices.Contains(secretKeys, key) ||
		slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(key, word) })
}

// newLogger makes the daemon's logger. Load has checked the level and the format.
func newLogger(w io.Writer, cfg Config, terminal bool) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redact}
	if logsText(cfg, terminal) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(visibleJSON{w}, options))
}

// visibleJSON escapes invisible characters in JSON: logs are read on terminals, and
// JSON itself does not escape C1 and bidi controls. The text handler quotes all of
// them.
type visibleJSON struct{ w io.Writer }

// Write writes one whole log record.
func (v visibleJSON) Write(record []byte) (int, error) {
	if _, err := v.w.Write(printable.JSON(record)); err != nil {
		return 0, err
	}
	return len(record), nil
}

// logsText reports whether the log is text, for a person.
func logsText(cfg Config, terminal bool) bool {
	return cfg.LogFormat == FormatText || cfg.LogFormat == FormatAuto && terminal
}
