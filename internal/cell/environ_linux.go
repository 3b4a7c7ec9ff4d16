package cell

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// caches lead programs to a directory for what they can fetch or build again. Some fail
// if they can't write to the one in the home directory: npm, for example.
var caches = []string{"XDG_CACHE_HOME=/tmp/.cache", "npm_config_cache=/tmp/.cache/npm"}

// planCaches sets caches for a session with a /tmp of its own, unless it can write to
// the home directory.
func (p *plan) planCaches() {
	fs, home := p.spec.Files, homeIn(p.spec.Env)
	if fs == nil || !fs.PrivateTmp || slices.ContainsFunc(fs.Write, func(dir string) bool { return within(home, dir) }) {
		return
	}
	p.addEnv(caches)
}

// addEnv adds variables to the session's environment, unless the caller has set them.
func (p *plan) addEnv(entries []string) {
	env := api.Env{}
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	maps.Copy(env, p.inner.Env)
	p.inner.Env = env
}

// homeIn returns the home directory that an environment names, or "".
func homeIn(env []string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, "HOME="); ok && filepath.IsAbs(value) {
			return filepath.Clean(value)
		}
	}
	return ""
}

// setVariable returns env with the only value of a variable.
func setVariable(env []string, name, value string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	return append(kept, name+"="+value)
}
