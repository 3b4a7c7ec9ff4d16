package fold

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// claudeKind returns the kind of a tool of Claude Code.
func claudeKind(tool string) string {
	switch tool {
	case "Read", "NotebookRead", "BashOutput", "TaskOutput":
		return "read"
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		return "edit"
	case "Bash", "KillShell", "KillBash", "TaskStop", "Monitor":
		return "run"
	case "Glob", "Grep", "LS", "ToolSearch", "LSP":
		return "search"
	case "WebFetch", "WebSearch":
		return "fetch"
	case "Task", "Agent", "SendMessage", "Workflow":
		return "agent"
	case "TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList", "EnterPlanMode", "ExitPlanMode":
		return "think"
	default:
		return "other"
	}
}

// claudeDetails is what the input of a tool says.
type claudeDetails struct {
	title     string
	diff      []api.DialogueDiff
	locations []api.DialogueLocation
	plan      []api.DialoguePlanEntry
}

// claudeInput reads the input of a tool.
func claudeInput(tool string, input []byte) claudeDetails {
	var d claudeDetails
	var path, command, description, pattern, url, query, before, after, content, todos, offset, edits, plan, subject []byte
	each(input, func(key, v []byte) {
		switch string(key) {
		case "file_path", "notebook_path", "path":
			path = v
		case "command":
			command = v
		case "description":
			description = v
		case "pattern":
			pattern = v
		case "url":
			url = v
		case "query":
			query = v
		case "old_string":
			before = v
		case "new_string", "new_source":
			after = v
		case "content":
			content = v
		case "todos":
			todos = v
		case "offset":
			offset = v
		case "edits":
			edits = v
		case "plan":
			plan = v
		case "subject":
			subject = v
		}
	})
	for _, v := range [][]byte{command, pattern, url, query, path, subject, description, plan} {
		if d.title = clip(str(v), maxTitle); d.title != "" {
			break
		}
	}
	if claudeKind(tool) == "agent" && len(description) > 2 {
		d.title = clip(str(description), maxTitle)
	}
	if p := clip(str(path), maxShort); p != "" && claudeKind(tool) != "search" {
		d.locations = []api.DialogueLocation{{Path: p, Line: int(max(0, min(num(offset), 1<<31-1)))}}
		change := func(before, after []byte) {
			if len(d.diff) >= maxItems {
				return
			}
			diff := api.DialogueDiff{Path: p, New: clip(uncut(str(after)), maxOutput)}
			if before != nil {
				old := clip(uncut(str(before)), maxOutput)
				diff.Old = &old
			}
			d.diff = append(d.diff, diff)
		}
		switch {
		case tool == "Write" && content != nil:
			change(nil, content)
		case edits != nil:
			room := maxText
			items(edits, func(v []byte) {
				if room -= len(v); room > 0 {
					change(member(v, "old_string"), member(v, "new_string"))
				}
			})
		case claudeKind(tool) == "edit" && after != nil:
			change(before, after)
		}
	}
	if tool == "TodoWrite" {
		items(todos, func(v []byte) {
			if len(d.plan) >= maxItems {
				return
			}
			entry := api.DialoguePlanEntry{Title: clip(str(member(v, "content")), maxTitle), Status: "pending"}
			switch str(member(v, "status")) {
			case "in_progress":
				entry.Status = "running"
			case "completed":
				entry.Status = "done"
			case "cancelled":
				entry.Status = "cancelled"
			}
			d.plan = append(d.plan, entry)
		})
	}
	return d
}

// uncut takes away what a string that was cut ends with.
func uncut(s string) string {
	if len(s) < maxText || !strings.Contains(s, "\x00cut:") {
		return s
	}
	s, _ = cutOf(s)
	return s
}

// toolResult settles a tool call, unless its task goes on.
func (c *claude) toolResult(f *Fold, l *line, e *claudeEvent, b []byte) {
	var native, content, isError []byte
	each(b, func(key, v []byte) {
		switch string(key) {
		case "tool_use_id":
			native = v
		case "content":
			content = v
		case "is_error":
			isError = v
		}
	})
	id := callID(str(native))
	var async, task []byte
	denied := false
	if len(e.toolUseResult) > 0 && e.toolUseResult[0] == '{' {
		each(e.toolUseResult, func(key, v []byte) {
			switch string(key) {
			case "isAsync":
				async = v
			case "agentId", "backgroundTaskId":
				task = v
			}
			if string(key) == "backgroundTaskId" && len(v) > 2 {
				async = []byte("true")
			}
		})
	}
	items(e.toolResultMeta, func(m []byte) {
		var of, kind []byte
		each(m, func(key, v []byte) {
			switch string(key) {
			case "id":
				of = v
			case "non_execution_kind":
				kind = v
			}
		})
		if bytes.Equal(of, native) && is(kind, "user-rejected") {
			denied = true
		}
	})
	if _, ok := c.Denied.get(id); ok {
		denied = true
		c.Denied.delete(id)
	}
	call := api.DialogueEntity{Type: api.EntityToolCall, ID: id, Status: "done"}
	if f.get(id) == nil {
		call.Parent, call.Raw = e.parentID(), f.here()
	}
	if isTrue(async) {
		t, _ := c.Tasks.get(clip(str(task), maxID))
		if t.Final == "" {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: id, Parent: call.Parent, Status: "running", Task: clip(str(task), maxID)})
			f.detach(id)
			return
		}
		call.Status = claudeStatus(t.Final)
	} else {
		text, whole := claudeOutput(l, content)
		call.Output = text
		if whole > int64(len(text)) {
			call.Cut = map[string]int64{"output": whole}
		}
	}
	switch {
	case denied:
		call.Status = "denied"
	case isTrue(isError):
		call.Status = "failed"
		if code, ok := claudeExit(call.Output); ok {
			call.ExitCode = &code
		}
	}
	f.settle(call)
}

// claudeOutput returns the text of a result, and its length before it was cut.
func claudeOutput(l *line, content []byte) (string, int64) {
	if len(content) > 0 && content[0] == '"' {
		return l.text(content)
	}
	var out strings.Builder
	whole := int64(0)
	items(content, func(b []byte) {
		text := member(b, "text")
		if text == nil {
			return
		}
		s, n := l.text(text)
		if whole > 0 {
			whole++
			if out.Len() < maxOutput {
				out.WriteByte('\n')
			}
		}
		whole += n
		out.WriteString(clip(s, max(0, maxOutput-out.Len())))
	})
	return out.String(), whole
}

// claudeExit returns the exit code that the agent names.
func claudeExit(output string) (int, bool) {
	rest, ok := strings.CutPrefix(output, "Exit code ")
	if !ok {
		return 0, false
	}
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil && n >= 0 && n < 256
}
