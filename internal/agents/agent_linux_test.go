package agents

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
)

// All agents run with telemetry and update checks disabled.
var claude = agent{
	name: "Claude Code",
	wire: anthropic{prefix: claudePrefix},
	configure: func(r *rig) {
		r.write(filepath.Join(r.project, ".mcp.json"), block(r.t, "claude .mcp.json"))
		r.write(filepath.Join(r.home(), ".claude", "settings.json"), block(r.t, "claude settings.json"))
	},
	env: func(r *rig) []string {
		return []string{
			"ANTHROPIC_BASE_URL=" + r.model.URL, "ANTHROPIC_API_KEY=" + r.key(),
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		}
	},
	begin: func(prompt string) []string {
		return []string{"claude", "-p", prompt, "--output-format", "stream-json", "--verbose"}
	},
	resume: func(id, prompt string) []string {
		return []string{"claude", "--resume", id, "-p", prompt, "--output-format", "stream-json", "--verbose"}
	},
	conversation: field("session_id"),
}

var codex = agent{
	name: "Codex",
	wire: openai{namespace: codexNamespace},
	configure: func(r *rig) {
		r.write(filepath.Join(r.home(), ".codex", "config.toml"),
			codexModel(r)+strings.Replace(block(r.t, "codex config.toml"), `["XDG_RUNTIME_DIR"]`, `["XDG_RUNTIME_DIR", "TRL_SECRET_PIN"]`, 1))
	},
	env: func(r *rig) []string { return []string{"SCRIPTED_KEY=" + r.key()} },
	begin: func(prompt string) []string {
		return []string{"codex", "exec", "--json", "--skip-git-repo-check", prompt}
	},
	resume: func(id, prompt string) []string {
		return []string{"codex", "exec", "resume", "--json", "--skip-git-repo-check", id, prompt}
	},
	conversation: field("thread_id"),
}

// codexModel returns the settings that point Codex to the scripted model.
func codexModel(r *rig) string {
	return `
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "` + r.model.URL + `/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
[analytics]
enabled = false
`
}

var geminiCLI = agent{
	name: "Gemini CLI",
	wire: gemini{},
	configure: func(r *rig) {
		var settings map[string]any
		if err := json.Unmarshal([]byte(block(r.t, "gemini settings.json")), &settings); err != nil {
			r.t.Fatal(err)
		}
		// It passes on variables with SECRET in the name only if they are listed.
		settings["mcpServers"].(object)["trl"].(object)["env"] = object{"TRL_SECRET_PIN": "$TRL_SECRET_PIN"}
		settings["security"] = object{"auth": object{"selectedType": "gemini-api-key"}}
		settings["general"] = object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false}
		settings["privacy"] = object{"usageStatisticsEnabled": false}
		r.write(filepath.Join(r.home(), ".gemini", "settings.json"), mustJSON(settings))
	},
	env: func(r *rig) []string {
		return []string{"GEMINI_API_KEY=" + r.key(), "GOOGLE_GEMINI_BASE_URL=" + r.model.URL}
	},
	begin: func(prompt string) []string {
		return []string{"gemini", "-m", "gemini-2.5-flash", "--skip-trust", "-o", "json", "-p", prompt}
	},
}

// field returns a function that finds the first value of a field in lines of JSON.
func field(name string) func(string) string {
	value := regexp.MustCompile(`"` + name + `":"([^"]+)"`)
	return func(output string) string {
		found := value.FindStringSubmatch(output)
		if found == nil {
			return ""
		}
		return strings.TrimSpace(found[1])
	}
}
