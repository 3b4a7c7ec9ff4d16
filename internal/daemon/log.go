package daemon

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/internal/printable"
)

// redacted stands in a log for what must not be in it.
const redacted = "[redacted]"

// What sessions run and are given is not the log's: it may hold secrets, and
// whoever may read a log need not be allowed to read them. The names are
// compared without case and separators.
var (
	// secretKeys are redacted when a key is one of them.
	secretKeys = []string{"env", "environment", "stdin", "input", "command", "argv", "args", "data", "params", "key", "cookie"}
	// secretWords are redacted when a key has one of them in it.
	secretWords = []string{"token", "password", "passwd", "passphrase", "secret", "authorization", "credential", "apikey", "privatekey"}
)

// redact is the ReplaceAttr of every logger. A group that is secret is so with
// all that is in it.
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

// newLogger makes the daemon's logger. The level and the format have been
// checked by Load.
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

// visibleJSON writes JSON in which nothing is hidden: logs are read on terminals,
// and JSON itself escapes no C1 and no bidi controls. The handler for people
// quotes all of them.
type visibleJSON struct{ w io.Writer }

// Write writes whole records, as a handler does.
func (v visibleJSON) Write(record []byte) (int, error) {
	if _, err := v.w.Write(printable.JSON(record)); err != nil {
		return 0, err
	}
	return len(record), nil
}

// logsText says whether the log is for a person.
func logsText(cfg Config, terminal bool) bool {
	return cfg.LogFormat == FormatText || cfg.LogFormat == FormatAuto && terminal
}
