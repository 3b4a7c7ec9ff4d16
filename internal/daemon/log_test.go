package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

const hush = "s3cr3t"

func TestRedaction(t *testing.T) {
	for name, log := range map[string]func(*slog.Logger){
		"key":        func(l *slog.Logger) { l.Info("m", "env", hush) },
		"value":      func(l *slog.Logger) { l.Info("m", "env", []string{"TOKEN=" + hush}) },
		"map":        func(l *slog.Logger) { l.Info("m", "stdin", map[string]string{"a": hush}) },
		"command":    func(l *slog.Logger) { l.Info("m", "command", "curl -H "+hush) },
		"part":       func(l *slog.Logger) { l.Info("m", "github_token", hush) },
		"case":       func(l *slog.Logger) { l.Info("m", "Authorization", hush) },
		"separators": func(l *slog.Logger) { l.Info("m", "API-Key", hush) },
		"password":   func(l *slog.Logger) { l.Info("m", "db.password", hush) },
		"group":      func(l *slog.Logger) { l.Info("m", slog.Group("env", "HOME", hush)) },
		"inner":      func(l *slog.Logger) { l.Info("m", slog.Group("g", "secret", hush)) },
		"with":       func(l *slog.Logger) { l.With("argv", hush).Info("m") },
		"with group": func(l *slog.Logger) { l.WithGroup("credentials").Info("m", "user", hush) },
	} {
		for _, format := range []string{FormatJSON, FormatText} {
			t.Run(name+" "+format, func(t *testing.T) {
				var out bytes.Buffer
				log(newLogger(&out, Config{LogLevel: "debug", LogFormat: format}, false))
				if text := out.String(); strings.Contains(text, hush) || !strings.Contains(text, redacted) {
					t.Errorf("%s", text)
				}
			})
		}
	}
}

func TestWhatIsNoSecretIsLogged(t *testing.T) {
	for _, key := range []string{"session", "pid", "error", "env_keys", "reason", "on", "method"} {
		var out bytes.Buffer
		newLogger(&out, Config{LogLevel: "info", LogFormat: FormatJSON}, false).Info("m", key, "plain")
		if !strings.Contains(out.String(), `"plain"`) {
			t.Errorf("%s: %s", key, &out)
		}
	}
}

func TestLogFormat(t *testing.T) {
	for _, c := range []struct {
		format   string
		terminal bool
		want     string
	}{
		{FormatAuto, true, "level=WARN"},
		{FormatAuto, false, `"level":"WARN"`},
		{FormatJSON, true, `"level":"WARN"`},
		{FormatText, false, "level=WARN"},
	} {
		var out bytes.Buffer
		log := newLogger(&out, Config{LogLevel: "warn", LogFormat: c.format}, c.terminal)
		log.Info("below the level")
		log.Warn("m")
		if text := out.String(); !strings.Contains(text, c.want) || strings.Contains(text, "below") {
			t.Errorf("%s, terminal %t: %s", c.format, c.terminal, text)
		}
	}
}
