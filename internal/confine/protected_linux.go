package confine

import "path/filepath"

// protectedIn are the paths in a writable directory that programs outside of a
// confinement execute or obey.
var protectedIn = []string{
	".git/hooks", ".git/config", ".claude", ".codex", ".gemini", ".mcp.json", ".vscode", ".idea",
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".mkshrc",
}

// ProtectedIn returns what callers protect in writable directories: what programs
// outside execute or obey, if it exists.
func ProtectedIn(roots []string) []Protected {
	var list []Protected
	for _, root := range roots {
		for _, name := range protectedIn {
			path := filepath.Join(root, name)
			if resolved, err := filepath.EvalSymlinks(path); err == nil && resolved == path {
				list = append(list, Protected{Path: path})
			}
		}
	}
	return list
}
