package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/place"
)

// user returns the environment of a user with the given variables and no files.
func user(t *testing.T, variables ...string) Environment {
	t.Helper()
	return Environment{Variables: variables, Home: t.TempDir()}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPrecedence(t *testing.T) {
	file := "max_sessions = 2\n"
	for name, c := range map[string]struct {
		file, variable, flag string
		want                 int64
	}{
		"default":            {want: 10_000},
		"file":               {file: file, want: 2},
		"variable over file": {file: file, variable: "3", want: 3},
		"flag over all":      {file: file, variable: "3", flag: "4", want: 4},
		"empty variable":     {file: file, variable: "", want: 2},
		"flag over default":  {flag: "5", want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			src := Sources{Environment: user(t, "TRL_MAX_SESSIONS="+c.variable), Flags: map[string]string{}}
			if c.file != "" {
				src.File = writeFile(t, c.file)
			}
			if c.flag != "" {
				src.Flags["max_sessions"] = c.flag
			}
			cfg, err := Load(src)
			if err != nil || cfg.MaxSessions != c.want || cfg.File != src.File {
				t.Errorf("max_sessions %d from %q, %v; want %d", cfg.MaxSessions, cfg.File, err, c.want)
			}
		})
	}
}

// Every setting can be set by flag, variable and file, and shows in system.info.
func TestEverySettingEverywhere(t *testing.T) {
	for _, s := range Settings() {
		t.Run(s.Key, func(t *testing.T) {
			value, want := "/somewhere", any("/somewhere")
			switch {
			case s.IsDuration():
				value, want = "1h30m", int64(90*60*1000)
			case s.IsSize():
				value, want = "256MiB", int64(256<<20)
			case s.IsNumber():
				value, want = "123456", int64(123456)
			case s.IsSwitch():
				value, want = "true", true
			case s.IsList():
				value, want = "/a, /b", []string{"/a", "/b"}
			case s.Key == "node":
				value, want = "eu1-n7", "eu1-n7"
			case s.Key == "default_isolation", s.Key == "mcp_isolation":
				value, want = "offline", "offline"
			case s.Key == "default_runtime":
				value, want = "cmd:pod", "cmd:pod"
			case s.choices != nil:
				value = s.choices[len(s.choices)-1]
				want = value
			}
			quoted := value
			switch {
			case s.IsList():
				quoted = `["/a", "/b"]`
			case !s.IsNumber() && !s.IsSwitch(), s.IsDuration(), s.IsSize():
				quoted = `"` + value + `"`
			}
			for way, src := range map[string]Sources{
				"flag":     {Environment: user(t), Flags: map[string]string{s.Key: value}},
				"variable": {Environment: user(t, s.Variable()+"="+value)},
				"file":     {Environment: user(t), File: writeFile(t, s.Key+" = "+quoted)},
			} {
				cfg, err := Load(src)
				if err != nil {
					t.Fatalf("%s: %v", way, err)
				}
				if diff := cmp.Diff(want, cfg.Public()[s.Key]); diff != "" {
					t.Errorf("%s: %s", way, diff)
				}
			}
		})
	}
}

func TestDefaultsAreValid(t *testing.T) {
	cfg := Defaults(user(t))
	for _, s := range Settings() {
		if err := s.check(&cfg); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		if s.Usage == "" {
			t.Errorf("%s has no usage", s.Key)
		}
		if s.Group == "" {
			t.Errorf("%s has no group: choose a heading for it in the help and the documents", s.Key)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		src  Sources
		want []string
	}{
		"unknown key":      {Sources{File: writeFile(t, "max_sesions = 2")}, []string{`config.toml:1: unknown setting "max_sesions"; did you mean max_sessions?`}},
		"table":            {Sources{File: writeFile(t, "\n[limits]\nx = 1")}, []string{`config.toml:2: unknown setting "limits"; `, "trl serve --help"}},
		"dotted":           {Sources{File: writeFile(t, "max_sessions.x = 1")}, []string{"max_sessions"}},
		"string as number": {Sources{File: writeFile(t, `max_sessions = "2"`)}, []string{"max_sessions", "whole number"}},
		"number as string": {Sources{File: writeFile(t, `socket = 2`)}, []string{"socket", "quotes"}},
		"fraction":         {Sources{File: writeFile(t, `grace_ms = 1.5`)}, []string{"grace_ms must be a duration", "(got 1.5)"}},
		"too small":        {Sources{File: writeFile(t, `max_sessions = 0`)}, []string{"max_sessions must be at least 1 (got 0)"}},
		"a small size":     {Sources{File: writeFile(t, `max_request_bytes = "10B"`)}, []string{"max_request_bytes must be at least 1KiB (got 10B)"}},
		"negative":         {Sources{File: writeFile(t, `idle_ttl_ms = -1`)}, []string{"idle_ttl_ms must be at least 0 (got -1ms)"}},
		"no choice":        {Sources{File: writeFile(t, `cgroup = "on"`)}, []string{`cgroup must be one of auto, off (got "on")`}},
		"empty":            {Sources{File: writeFile(t, `socket = ""`)}, []string{"socket", "empty"}},
		"no switch":        {Sources{File: writeFile(t, `insecure_http = "yes"`)}, []string{"insecure_http", "true or false"}},
		"switch variable":  {Sources{Environment: user(t, "TRL_INSECURE_HTTP=maybe")}, []string{"TRL_INSECURE_HTTP", "maybe"}},
		"no list":          {Sources{File: writeFile(t, `http_allowed_hosts = "a"`)}, []string{"http_allowed_hosts", "array"}},
		"a list of others": {Sources{File: writeFile(t, `http_allowed_hosts = [1]`)}, []string{"http_allowed_hosts", "array"}},
		"node":             {Sources{File: writeFile(t, `node = "Eu_1"`)}, []string{"config.toml:1: node must be", `"eu1-n7" (got "Eu_1", which`}},
		"node variable":    {Sources{Environment: user(t, "TRL_NODE=a.b")}, []string{"TRL_NODE", `"a.b"`}},
		"node flag":        {Sources{Flags: map[string]string{"node": "a--b"}}, []string{"--node", "has an empty part"}},
		"no runtime":       {Sources{Flags: map[string]string{"default_runtime": "pigeon:home"}}, []string{"--default-runtime must be host or", `(got "pigeon:home")`, "cmd:"}},
		"no pattern":       {Sources{File: writeFile(t, `allowed_runtimes = ["docker:*", "ssh:[a"]`)}, []string{"config.toml:1: allowed_runtimes", `(got "ssh:[a")`}},
		"no host":          {Sources{File: writeFile(t, "host_runtime = \"off\"\ndefault_runtime = \"host\"")}, []string{"default_runtime", "host_runtime is off"}},
		"no place table":   {Sources{File: writeFile(t, `place = 1`)}, []string{"config.toml:1: place must be tables"}},
		"no TOML":          {Sources{File: writeFile(t, "\n\nmax_sessions")}, []string{"config.toml:3: "}},
		"no file":          {Sources{File: "/no/such/file.toml"}, []string{"/no/such/file.toml"}},
		"variable":         {Sources{Environment: user(t, "TRL_GRACE_MS=soon")}, []string{"TRL_GRACE_MS", "soon"}},
		"flag":             {Sources{Flags: map[string]string{"log_level": "loud"}}, []string{"--log-level", "loud", "debug"}},
		"named by variable": {
			Sources{Environment: user(t, "TRL_CONFIG=/no/such/other.toml")},
			[]string{"/no/such/other.toml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(c.src)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}

func TestNodeNames(t *testing.T) {
	for name, wrong := range map[string]string{ // "": the name is valid
		"":                                    "",
		"n":                                   "",
		"7":                                   "",
		"eu1-n7":                              "",
		"abcdefgh-01234567-abcdefgh-01234567": "",
		"a-b-c-d-e":                           "has 5 parts",
		"abcdefghi":                           `has 9 characters in "abcdefghi"`,
		"-":                                   "has an empty part",
		"eu1-":                                "has an empty part",
		"-n7":                                 "has an empty part",
		"eu1--n7":                             "has an empty part",
		"Eu1":                                 `has other characters in "Eu1"`,
		"eu1_n7":                              `has other characters in "eu1_n7"`,
		"eu 1":                                `has other characters in "eu 1"`,
		"eu1-n/7":                             `has other characters in "n/7"`,
		"é":                                   `has other characters in "é"`,
		"n7\n":                                `has other characters in "n7\n"`,
	} {
		cfg, err := Load(Sources{Environment: user(t), Flags: map[string]string{"node": name}})
		switch {
		case wrong == "":
			if err != nil || cfg.Node != name {
				t.Errorf("%q: got %q, %v", name, cfg.Node, err)
			}
		case err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), `such as "eu1-n7"`):
			t.Errorf("%q: %v; want %s", name, err, wrong)
		}
	}
}

func TestDefaultPlaces(t *testing.T) {
	type places struct{ Socket, File, Tokens string }
	for name, c := range map[string]struct {
		env  Environment
		want places
	}{
		"user": {
			Environment{Home: "/home/u"},
			places{"/home/u/.local/state/trl/trl.sock", "/home/u/.config/trl/config.toml", "/home/u/.local/state/trl/tokens.json"},
		},
		"user with directories": {
			Environment{Home: "/home/u", Variables: []string{"XDG_RUNTIME_DIR=/run/user/7", "XDG_CONFIG_HOME=/c", "XDG_STATE_HOME=/s"}},
			places{"/run/user/7/trl/trl.sock", "/c/trl/config.toml", "/s/trl/tokens.json"},
		},
		"relative directories do not count": {
			Environment{Home: "/home/u", Variables: []string{"XDG_RUNTIME_DIR=run", "XDG_CONFIG_HOME=c", "XDG_STATE_HOME=s"}},
			places{"/home/u/.local/state/trl/trl.sock", "/home/u/.config/trl/config.toml", "/home/u/.local/state/trl/tokens.json"},
		},
		"root": {
			Environment{Home: "/root", Root: true},
			places{"/run/trl/trl.sock", "/etc/trl/config.toml", "/var/lib/trl/tokens.json"},
		},
		"no home": {Environment{}, places{"/run/trl/trl.sock", "/etc/trl/config.toml", "/var/lib/trl/tokens.json"}},
		"the last of two counts": {
			Environment{Home: "/h", Variables: []string{"XDG_RUNTIME_DIR=/a", "XDG_RUNTIME_DIR=/b"}},
			places{"/b/trl/trl.sock", "/h/.config/trl/config.toml", "/h/.local/state/trl/tokens.json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, _ := c.env.user().ConfigFile()
			got := places{c.env.user().Socket(), file, c.env.defaultTokenFile()}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// All mistakes are reported at once, those of the file by their lines.
func TestAllMistakesAtOnce(t *testing.T) {
	file := writeFile(t, "log_level = \"verbose\"\n# max_sessions = 3\n\n  max_sessions = \"ten\"\nmax_sesions = 2\ntotal_quota_bytes = \"lots\"\n")
	_, err := Load(Sources{
		File: file, Flags: map[string]string{"cgroup": "on"},
		Environment: user(t, "TRL_GRACE_MS=soon", "TRL_HTTP_RATE=0"),
	})
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, problem := range wrong.Problems {
		got = append(got, strings.ReplaceAll(problem.Error(), file, "FILE"))
	}
	want := []string{
		`FILE:1: log_level must be one of debug, info, warn, error (got "verbose")`,
		`FILE:4: max_sessions must be a whole number (got "ten")`,
		`FILE:5: unknown setting "max_sesions"; did you mean max_sessions?`,
		`FILE:6: total_quota_bytes must be a size such as "256MiB", or a number of bytes (got "lots")`,
		`TRL_GRACE_MS must be a duration such as "30s" or "1h30m", or a number of milliseconds (got "soon")`,
		`TRL_HTTP_RATE must be at least 1 (got 0)`,
		`--cgroup must be one of auto, off (got "on")`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A bare number is in the unit of the key's name, with or without quotes.
func TestBareNumbersKeepTheirUnit(t *testing.T) {
	for _, text := range []string{"grace_ms = 1500\nmax_output_bytes = 4096", "grace_ms = \"1500\"\nmax_output_bytes = \"4KiB\"", "grace_ms = \"1.5s\"\nmax_output_bytes = \"4096B\""} {
		cfg, err := Load(Sources{Environment: user(t), File: writeFile(t, text)})
		if err != nil || cfg.GraceMS != 1500 || cfg.MaxOutputBytes != 4096 {
			t.Errorf("%q: %d ms, %d bytes, %v", text, cfg.GraceMS, cfg.MaxOutputBytes, err)
		}
	}
	// 0 means no timeout, and a very short one is not none.
	cfg, err := Load(Sources{Environment: user(t, "TRL_DEFAULT_TIMEOUT_MS=1us")})
	if err != nil || cfg.DefaultTimeoutMS != 1 {
		t.Errorf("%d ms, %v", cfg.DefaultTimeoutMS, err)
	}
}

// What is shown can be typed.
func TestValuesAreReadBack(t *testing.T) {
	env := user(t)
	want := Defaults(env)
	want.HTTPAllowedHosts = []string{"a", "b"}
	flags := map[string]string{}
	for _, s := range Settings() {
		flags[s.Key] = s.Value(&want)
	}
	got, err := Load(Sources{Environment: env, Flags: flags})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestUnknownVariables(t *testing.T) {
	env := Environment{Variables: []string{"TRL_SOCKET=/x", "TRL_SECRET_KEY=1", "TRL_MAX_SESIONS=2", "HOME=/", "TRL_CONFIG=y", "XTRL_A=1"}}
	want := []UnknownVariable{{"TRL_MAX_SESIONS", "TRL_MAX_SESSIONS"}, {"TRL_SECRET_KEY", ""}}
	if diff := cmp.Diff(want, env.UnknownVariables()); diff != "" {
		t.Error(diff)
	}
	var log strings.Builder
	env.warnUnknownVariables(slog.New(slog.NewTextHandler(&log, nil)))
	if got := log.String(); !strings.Contains(got, "variable=TRL_MAX_SESIONS did_you_mean=TRL_MAX_SESSIONS\n") || !strings.Contains(got, "variable=TRL_SECRET_KEY\n") {
		t.Errorf("the log says %s", got)
	}
}

func TestPlaceTables(t *testing.T) {
	cfg, err := Load(Sources{Environment: user(t), File: writeFile(t, `
log_level = "warn"

[place.pod]
command = ["kubectl", "exec", "-i", "pod", "--"]
deliver = true

[place.build-2]
url = "https://build.example.com:7040"
token_file = "/etc/trl/build.token"
`)})
	want := map[string]place.Configured{
		"pod":     {Command: []string{"kubectl", "exec", "-i", "pod", "--"}, Deliver: true},
		"build-2": {URL: "https://build.example.com:7040", TokenFile: "/etc/trl/build.token"},
	}
	if diff := cmp.Diff(want, cfg.Places); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// All mistakes in tables of places are reported at once, each with its line.
func TestMistakesInPlaceTables(t *testing.T) {
	file := writeFile(t, `[place.a]
comand = ["x"]

[place.b]
command = "x"
deliver = "yes"

[place.c]

[place.d]
command = ["x"]
url = "http://x"

[place."E F"]
command = ["x"]

[place.g]
url = "https://me@build"
token_file = "secret"

[place.h]
command = ["x"]
token_file = "/x"

[place.i]
url = "http://x"
deliver = true
`)
	_, err := Load(Sources{Environment: user(t), File: file})
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, problem := range wrong.Problems {
		got = append(got, strings.ReplaceAll(problem.Error(), file, "FILE"))
	}
	want := []string{
		`FILE:2: place.a: unknown key "comand"; did you mean command?`,
		`FILE:5: place.b: command must be an array of strings in quotes, such as ["kubectl", "exec", "-i", "pod", "--", "trl", "connect", "--wait"]`,
		`FILE:6: place.b: deliver must be true or false`,
		`FILE:8: place.c: must have either command or url`,
		`FILE:10: place.d: must have either command or url`,
		`FILE:14: place."E F" must have a name of 1 to 32 characters a-z, 0-9 and "-"`,
		`FILE:18: place.g: url must be an address such as "https://build.example.com:7040", without a user`,
		`FILE:19: place.g: token_file must be an absolute path in quotes`,
		`FILE:23: place.h: token_file needs a url`,
		`FILE:27: place.i: deliver needs a command`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
