package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/environ"
)

// defaultPath is used when the daemon itself has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the environment that the shell starts with. The daemon's own
// settings (TRL_*) are never inherited.
func environment(inherit string, add api.Env, own []string) ([]string, error) {
	env := map[string]string{}
	for _, kv := range own {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || strings.HasPrefix(name, "TRL_") {
			continue
		}
		switch inherit {
		case "", api.InheritBase:
			if !environ.IsBase(name) {
				continue
			}
		case api.InheritAll:
		case api.InheritNone:
			continue
		default:
			return nil, api.Errorf(api.CodeInvalidParams, "inherit_env is not one of base, all, none").With("field", "inherit_env").
				WithHint(`use "base" (the default), "all" or "none"`)
		}
		env[name] = value
	}
	for name, value := range add {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || value != api.Unset && strings.Contains(value, "\x00"):
			return nil, errEnvName()
		case value == api.Unset:
			delete(env, name)
		default:
			env[name] = value
		}
	}
	if _, ok := env["PATH"]; !ok && inherit != api.InheritNone && add["PATH"] != api.Unset {
		env["PATH"] = defaultPath
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}

func errEnvName() *api.Error {
	return api.Errorf(api.CodeInvalidParams, "env has an invalid variable name, or a value with a NUL byte").With("field", "env").
		WithHint("names are letters, digits and _, and do not begin with a digit")
}

// commandEnv checks the environment of one command and returns it as NAME=value, or
// NAME for a variable to unset. The shell sets it, so its names must be valid in
// the shell's language.
func commandEnv(env api.Env) ([]string, error) {
	if len(env) == 0 {
		return nil, nil
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch value := env[name]; {
		case !isName(name) || value != api.Unset && strings.Contains(value, "\x00"):
			return nil, errEnvName()
		case value == api.Unset:
			out = append(out, name)
		default:
			out = append(out, name+"="+value)
		}
	}
	return out, nil
}

func isName(s string) bool {
	for i, c := range s {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
