package cli

import (
	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/doctor"
)

// resultNames returns, for each command, the names in its result with --json, or
// in an entry if the result is a list. A command without a result has none; it
// prints only its errors as JSON.
func resultNames() map[string][]string {
	return map[string][]string{
		"attach":          nil,
		"connect":         nil,
		"docs man":        nil,
		"doctor":          namesOf[doctor.Finding](),
		"events":          namesOf[api.SessionEvent](),
		"exec cancel":     namesOf[api.ExecCancelResult](),
		"exec list":       namesOf[api.ExecResult](),
		"exec output":     namesOf[api.ExecOutputResult](),
		"info":            namesOf[api.SystemInfo](),
		"input":           namesOf[api.ExecInputResult](),
		"keys":            namesOf[api.ExecInputResult](),
		"logs":            nil, // records of a log have any names
		"mcp":             nil,
		"place add":       namesOf[api.Place](),
		"place check":     namesOf[api.Place](),
		"place list":      namesOf[api.Place](),
		"place remove":    namesOf[api.PlaceRemoveResult](),
		"place upgrade":   namesOf[api.Place](),
		"ps":              namesOf[api.Session](),
		"quickstart":      nil,
		"run":             namesOf[api.ExecResult](),
		"screen":          namesOf[api.SessionScreenResult](),
		"serve":           nil,
		"session create":  namesOf[api.Session](),
		"session destroy": namesOf[api.SessionDestroyResult](),
		"session info":    namesOf[api.SessionInfo](),
		"session list":    namesOf[api.Session](),
		"shell":           nil,
		"stats":           namesOf[api.SystemStats](),
		"status":          namesOf[statusResult](),
		"stop":            {"message", "kept_by"},
		"token create":    append(namesOf[access.Token](), "token"),
		"token list":      namesOf[access.Token](),
		"token revoke":    nil,
		"upgrade":         {"from", "to", "sessions", "took_ms"},
		"wait":            namesOf[api.ExecResult](),
		"version":         {"version", "protocol"},
	}
}
