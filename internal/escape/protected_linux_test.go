package escape

import (
	"os"
	"path/filepath"
)

// protectedAttempts change files inside the writable root that other programs run or
// obey: hooks, settings of editors and agents, startup files.
func protectedAttempts() []attempt {
	hook := work + "/.git/hooks/pre-commit"
	rows := []attempt{
		{name: "hook_create", try: create(work + "/.git/hooks/post-commit")},
		{name: "hook_overwrite", changes: true, try: func(*scene) error { return writeTo(hook, 0) }},
		{name: "hook_mode", changes: true, try: func(*scene) error { return at("chmod", os.Chmod(hook, 0o755)) }},
		{name: "hook_unlink", changes: true, try: func(*scene) error { return at("unlink", os.Remove(hook)) }},
		{name: "hook_hard_link", changes: true, try: hookHardLink},
		{name: "hook_rename_over", changes: true, try: func(*scene) error { return at("rename", os.Rename(work+"/mine", hook)) }},
		{name: "hooks_replace", changes: true, try: replace(work+"/.git/hooks", "pre-commit")},
		{name: "git_replace", changes: true, try: replace(work+"/.git", "hooks/pre-commit")},
		{name: "git_exchange", changes: true, try: gitExchange},
		{name: "git_config", changes: true, try: func(*scene) error { return writeTo(work+"/.git/config", 0) }},
		{name: "git_config_rename_over", changes: true, try: func(*scene) error { return at("rename", os.Rename(work+"/mine", work+"/.git/config")) }},
		{name: "claude_settings", changes: true, try: func(*scene) error { return writeTo(work+"/.claude/settings.json", 0) }},
		{name: "claude_replace", changes: true, try: replace(work+"/.claude", "settings.json")},
		{name: "vscode_tasks", changes: true, try: func(*scene) error { return writeTo(work+"/.vscode/tasks.json", 0) }},
		{name: "mcp_settings", changes: true, try: func(*scene) error { return writeTo(work+"/.mcp.json", 0) }},
		{name: "startup_file", changes: true, try: func(*scene) error { return writeTo(work+"/.bashrc", 0) }},
	}
	for i := range rows {
		rows[i].group, rows[i].who, rows[i].alone = "protected inside", both, []string{byFilesystem}
	}
	return rows
}

// create makes a file that is missing, with its directory.
func create(name string) func(*scene) error {
	return func(*scene) error {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return at("mkdir", err)
		}
		return at("create", os.WriteFile(name, []byte(overwrite), 0o755))
	}
}

// replace moves a directory away and makes another one with the protected file.
func replace(dir, file string) func(*scene) error {
	return func(*scene) error {
		if err := os.Rename(dir, work+"/away"); err != nil {
			return at("rename", err)
		}
		name := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return at("mkdir", err)
		}
		return at("create", os.WriteFile(name, []byte(overwrite), 0o755))
	}
}

// hookHardLink writes to a protected file by another name.
func hookHardLink(*scene) error {
	if err := os.Link(work+"/.git/hooks/pre-commit", work+"/alias"); err != nil {
		return at("link", err)
	}
	return writeTo(work+"/alias", 0)
}

// gitExchange exchanges the whole repository directory with one made beside it.
func gitExchange(*scene) error {
	if err := os.MkdirAll(work+"/other/hooks", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(work+"/other/hooks/pre-commit", []byte(overwrite), 0o755); err != nil {
		return err
	}
	return exchange(work+"/other", work+"/.git")
}
