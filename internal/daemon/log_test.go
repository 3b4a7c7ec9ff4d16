package daemon

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/printable"
)

const secretValue = "s3cr3t"

func TestRedaction(t *testing.T) {
	for name, log := range map[string]func(*slog.Logger){
		"key":        func(l *slog.Logger) { l.Info("m", "env", secretValue) },
		"value":      func(l *slog.Logger) { l.Info("m", "env", []string{"TOKEN=" + secretValue}) },
		"map":        func(l *slog.Logger) { l.Info("m", "stdin", map[string]string{"a": secretValue}) },
		"command":    func(l *slog.Logger) { l.Info("m", "command", "curl -H "+secretValue) },
		"part":       func(l *slog.Logger) { l.Info("m", "github_token", secretValue) },
		"case":       func(l *slog.Logger) { l.Info("m", "Authorization", secretValue) },
		"separators": func(l *slog.Logger) { l.Info("m", "API-Key", secretValue) },
		"password":   func(l *slog.Logger) { l.Info("m", "db.password", secretValue) },
		"group":      func(l *slog.Logger) { l.Info("m", slog.Group("env", "HOME", secretValue)) },
		"inner":      func(l *slog.Logger) { l.Info("m", slog.Group("g", "secret", secretValue)) },
		"with":       func(l *slog.Logger) { l.With("argv", secretValue).Info("m") },
		"with group": func(l *slog.Logger) { l.WithGroup("credentials").Info("m", "user", secretValue) },
	} {
		for _, format := range []string{FormatJSON, FormatText} {
			t.Run(name+" "+format, func(t *testing.T) {
				var out bytes.Buffer
				log(newLogger(&out, Config{LogLevel: "debug", LogFormat: format}, false))
				if text := out.String(); strings.Contains(text, secretValue) || !strings.Contains(text, redacted) {
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

// Logs are read on terminals, so they must not contain control characters.
func TestLogsHideNothing(t *testing.T) {
	const odd = "a\x1b[2J\n\u009b31m\u202e\u2066\U000e0041\u2028\x7f\xffz"
	for _, format := range []string{FormatJSON, FormatText} {
		var out bytes.Buffer
		log := newLogger(&out, Config{LogLevel: "info", LogFormat: format}, false)
		log.Info(odd, "owner", odd, "error", errors.New(odd), "tags", []string{odd}, slog.Group("g", "cwd", odd))
		text := strings.TrimSuffix(out.String(), "\n")
		if printable.Text(text) != text || !strings.Contains(text, "202e") {
			t.Errorf("%s: %q", format, text)
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

// docs/operations.md lists exactly the events that are logged.
func TestEventsAreDocumented(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented, logged := map[string]bool{}, map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (?:info|warn|error) \\|").FindAllSubmatch(page, -1) {
		documented[string(match[1])] = true
	}
	event := regexp.MustCompile(`"event", "([a-z_]+)"`)
	err = fs.WalkDir(os.DirFS(root), "internal", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, match := range event.FindAllSubmatch(text, -1) {
			logged[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(logged, documented); diff != "" || len(logged) == 0 {
		t.Errorf("logged (-) and documented (+) differ: %s", diff)
	}
}
