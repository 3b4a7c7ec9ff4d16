package fold

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

// system folds what the agent says about itself.
func (c *claude) system(f *Fold, l *line, e *claudeEvent) {
	switch string(e.subtype) {
	case `"init"`:
		f.model, f.mode = cmpOr(clip(str(e.model), maxID), f.model), cmpOr(clip(str(e.mode), maxID), f.mode)
		c.startTurn(f)
	case `"status"`:
		f.mode = cmpOr(clip(str(e.mode), maxID), f.mode)
		if has(e.userUUIDs) && f.turn != nil {
			f.beginTurn("user")
		}
	case `"session_state_changed"`:
		c.States = true
		c.Running = !is(e.state, "idle")
		if !c.Running {
			f.endTurn("done", "idle", nil)
			f.doneAll()
		}
	case `"task_started"`:
		c.taskStarted(f, e)
	case `"task_updated"`:
		if status := member(e.patch, "status"); has(status) {
			c.taskStatus(f, e, str(status), "")
		}
	case `"task_notification"`:
		c.taskStatus(f, e, str(e.status), str(e.summary))
	case `"api_retry"`:
		m := "the agent tries again"
		if n, of := num(e.attempt), num(e.maxRetries); n > 0 {
			m += fmt.Sprintf(", attempt %d of %d", n, of)
		}
		if s := num(e.errorStatus); s > 0 {
			m += fmt.Sprintf(": status %d", s)
		} else if s := str(e.errorStr); s != "" && s != "unknown" {
			m += ": " + clip(s, maxShort)
		}
		f.retry(m)
	case `"permission_denied"`:
		if id := callID(str(e.toolUseID)); f.isOpen(id) {
			c.Denied.put(id, true)
		}
	case `"informational"`:
		c.note(f, l, e, e.content)
	case `"compact_boundary"`:
		c.note(f, l, e, []byte(`"The conversation was compacted."`))
	case `"task_progress"`, `"background_tasks_changed"`, `"hook_started"`, `"hook_progress"`, `"hook_response"`, `"thinking_tokens"`, `"task_summary"`, `"model_refusal_no_fallback"`:
		// What they say is said by other lines, or is not for a transcript.
	default:
		f.unknown(l, typeName("system", str(e.subtype)))
	}
}

// note puts what the agent's program says to the person.
func (c *claude) note(f *Fold, l *line, e *claudeEvent, text []byte) {
	if s, _ := l.text(text); s != "" {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: "m:" + letters("note", str(e.uuid)), Role: "system", Text: s, Final: true})
	}
}

func (c *claude) startTurn(f *Fold) {
	origin := ""
	if c.Started {
		origin = "user"
	}
	c.Started = false
	f.beginTurn(origin)
}

func (c *claude) taskStarted(f *Fold, e *claudeEvent) {
	id := callID(str(e.toolUseID))
	task := clip(str(e.taskID), maxID)
	if task == "" || len(e.toolUseID) <= 2 {
		return
	}
	if _, ok := c.Tasks.get(task); ok {
		return
	}
	if f.get(id) != nil {
		f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: id, Status: "running", Task: task})
	}
	t := claudeTask{Call: id}
	if isTrue(e.background) {
		f.detach(id)
		if t.Holds = is(e.taskType, "local_agent"); t.Holds {
			c.Agents++
		}
	}
	c.Tasks.put(task, t)
}

// taskStatus ends a task, and its tool call if that has returned before.
func (c *claude) taskStatus(f *Fold, e *claudeEvent, status, summary string) {
	task := clip(str(e.taskID), maxID)
	t, ok := c.Tasks.get(task)
	if !ok || claudeStatus(status) == "" {
		return
	}
	if t.Final == "" {
		t.Final = clip(status, maxID)
		if t.Holds {
			c.Agents--
		}
		c.Tasks.put(task, t)
	}
	x := f.entities[t.Call]
	if x == nil || !x.detached {
		return
	}
	call := api.DialogueEntity{Type: api.EntityToolCall, ID: t.Call, Status: claudeStatus(t.Final), Output: summary}
	if code, ok := strings.CutSuffix(summary, ")"); ok {
		if i := strings.LastIndex(code, "(exit code "); i >= 0 {
			if n, err := strconv.Atoi(code[i+len("(exit code "):]); err == nil {
				call.ExitCode = &n
			}
		}
	}
	f.settle(call)
}

// claudeStatus returns the status of a tool call whose task has ended, "" if it has
// not.
func claudeStatus(status string) string {
	switch status {
	case "completed":
		return "done"
	case "failed", "error":
		return "failed"
	case "killed", "stopped", "cancelled", "canceled":
		return "cut"
	}
	return ""
}

// result ends a turn.
func (c *claude) result(f *Fold, e *claudeEvent) {
	origin := "user"
	if has(e.origin) && strings.HasPrefix(str(member(e.origin, "kind")), "task") {
		origin = "task"
	}
	f.beginTurn(origin)
	c.endStream(f, "")
	status, reason := "done", cmpOr(str(e.terminal), str(e.subtype))
	switch {
	case strings.HasPrefix(reason, "aborted"):
		status = "interrupted"
	case isTrue(e.isError):
		status = "failed"
	}
	u := claudeUsage(e.usage)
	if cost, ok := float(e.cost); ok {
		if turn := cost - c.Cost; turn >= 0 && u != nil {
			u.CostUSD = &turn
		}
		c.Cost = cost
	}
	if status == "failed" {
		s := num(e.apiStatus)
		m := str(e.result)
		if m == "" {
			items(e.errors, func(v []byte) {
				if m == "" {
					m = str(v)
				}
			})
		}
		f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: cmpOr(m, reason), Retryable: s == 408 || s == 429 || s >= 500})
	}
	if c.Last != "" {
		f.put(api.DialogueEntity{Type: api.EntityTurn, ID: f.turnID(), NativeID: c.Last})
		c.Last = ""
	}
	c.spend(f, e)
	f.endTurn(status, reason, u)
	if !f.isReady {
		f.fail(cmpOr(lastLine(f.stderr), reason))
	}
}

func claudeUsage(raw []byte) *api.DialogueUsage {
	if !has(raw) {
		return nil
	}
	u := &api.DialogueUsage{}
	each(raw, func(key, v []byte) {
		switch string(key) {
		case "input_tokens":
			u.InputTokens = num(v)
		case "output_tokens":
			u.OutputTokens = num(v)
		case "cache_read_input_tokens":
			u.CachedInputTokens = num(v)
		case "cache_creation_input_tokens":
			u.CacheWriteTokens = num(v)
		case "output_tokens_details":
			u.ReasoningTokens = num(member(v, "thinking_tokens"))
		}
	})
	return u
}

// spend sums what the models have used, which the agent says for the whole run.
func (c *claude) spend(f *Fold, e *claudeEvent) {
	u := api.DialogueUsage{}
	each(e.models, func(_, m []byte) {
		each(m, func(key, v []byte) {
			switch string(key) {
			case "inputTokens":
				u.InputTokens += num(v)
			case "outputTokens":
				u.OutputTokens += num(v)
			case "cacheReadInputTokens":
				u.CachedInputTokens += num(v)
			case "cacheCreationInputTokens":
				u.CacheWriteTokens += num(v)
			case "thinkingTokens":
				u.ReasoningTokens += num(v)
			case "contextWindow":
				u.ContextWindow = max(u.ContextWindow, num(v))
			}
		})
	})
	if cost, ok := float(e.cost); ok {
		u.CostUSD = &cost
	}
	f.spend(u)
}
