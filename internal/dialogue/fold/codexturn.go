package fold

import (
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
)

func (c *codex) turnStarted(f *Fold, l *line, p *codexParams) {
	_, main, ok := c.place(f, l, p.thread)
	if !ok {
		return
	}
	if !main {
		if a, known := c.Agents.get(keyOf(str(p.thread))); known && a.Idle && f.isOpen(a.Call) {
			a.Idle = false
			c.Agents.put(keyOf(str(p.thread)), a)
		}
		return
	}
	origin := "agent"
	if c.starting() {
		origin = "user"
	}
	c.Turn = str(member(p.turn, "id"))
	c.Before = f.used
	f.busy = true
	f.beginTurn(origin)
	f.put(api.DialogueEntity{Type: api.EntityTurn, ID: f.turnID(), NativeID: c.Turn})
	if c.Stop {
		c.Stop = false
		_ = c.interrupt(f)
	}
}

func (c *codex) turnCompleted(f *Fold, l *line, p *codexParams) {
	_, main, ok := c.place(f, l, p.thread)
	if !ok {
		return
	}
	var id, status, fault, all []byte
	each(p.turn, func(key, value []byte) {
		switch string(key) {
		case "id":
			id = value
		case "status":
			status = inner(value)
		case "error":
			fault = value
		case "items":
			all = value
		}
	})
	end := "done"
	switch string(status) {
	case "interrupted":
		end = "interrupted"
	case "failed":
		end = "failed"
	}
	reason := ""
	if has(fault) {
		reason = errorKind(member(fault, "codexErrorInfo"))
		if end == "failed" && c.Blamed != str(id) {
			c.blame(f, str(id), fault, "")
		}
	}
	if !main {
		if end == "interrupted" {
			end = "cut"
		}
		text := ""
		items(all, func(value []byte) {
			if is(member(value, "type"), "agentMessage") {
				text, _ = l.text(member(value, "text"))
			}
		})
		c.agentDone(f, str(p.thread), end, text)
		return
	}
	c.Stop = false
	var left []codexSent
	for _, s := range c.Sent {
		if s.Turn == str(id) { // the agent had it, and did not come to show it
			f.taken(s.Msg)
		} else {
			left = append(left, s)
		}
	}
	c.Sent = left
	if end == "done" { // commands that have been left to run
		for id := range c.Runs.m {
			f.detach(id)
		}
	}
	c.Turn = ""
	f.busy = false
	used := lessUsage(f.used, c.Before)
	f.endTurn(end, reason, &used)
	forget(f, &c.Runs)
	forget(f, &c.Asked)
}

// forget drops what is about entities that are settled.
func forget[V any](f *Fold, t *table[V]) {
	for _, id := range slices.Clone(t.order) {
		if !f.isOpen(id) {
			t.delete(id)
		}
	}
}

// errorKind names the kind of an error in the agent's words.
func errorKind(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return str(raw)
	}
	kind := ""
	each(raw, func(key, _ []byte) {
		if kind == "" {
			kind = string(key)
		}
	})
	return kind
}

// failed folds an error of a turn.
func (c *codex) failed(f *Fold, l *line, p *codexParams) {
	parent, main, ok := c.place(f, l, p.thread)
	if !ok {
		return
	}
	if isTrue(p.retry) {
		if main {
			f.retry(errorText(p.fault))
		}
		return
	}
	c.blame(f, str(p.turnID), p.fault, parent)
}

func (c *codex) blame(f *Fold, turn string, fault []byte, parent string) {
	if turn != "" && c.Blamed == turn {
		return
	}
	c.Blamed = turn
	f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: errorText(fault), Reason: errorKind(member(fault, "codexErrorInfo")), Parent: parent})
}

func errorText(fault []byte) string {
	text := strings.TrimSpace(nestedError(strings.TrimSpace(str(member(fault, "message")))))
	if more := str(member(fault, "additionalDetails")); more != "" {
		text += ": " + more
	}
	return text
}

// usage adds up what the threads have used since this run began.
func (c *codex) usage(f *Fold, p *codexParams) {
	var total, last, window []byte
	each(p.usage, func(key, value []byte) {
		switch string(key) {
		case "total":
			total = value
		case "last":
			last = value
		case "modelContextWindow":
			window = value
		}
	})
	thread := str(p.thread)
	u, known := c.Total.get(keyOf(thread))
	now := codexTokens(total)
	switch { // what earlier runs have used
	case known:
	case thread == c.Thread && c.Turn == "": // it is said again when the thread is resumed
		u.Base = now
	default:
		u.Base = lessUsage(now, codexTokens(last))
	}
	u.Now = now
	c.Total.put(keyOf(thread), u)
	sum := api.DialogueUsage{ContextTokens: f.used.ContextTokens, ContextWindow: f.used.ContextWindow}
	if thread == c.Thread {
		sum.ContextTokens, sum.ContextWindow = num(member(last, "totalTokens")), num(window)
	}
	for _, u := range c.Total.m {
		d := lessUsage(u.Now, u.Base)
		sum.InputTokens += d.InputTokens
		sum.OutputTokens += d.OutputTokens
		sum.CachedInputTokens += d.CachedInputTokens
		sum.CacheWriteTokens += d.CacheWriteTokens
		sum.ReasoningTokens += d.ReasoningTokens
	}
	f.spend(sum)
}

func codexTokens(raw []byte) (u api.DialogueUsage) {
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "inputTokens":
			u.InputTokens = num(value)
		case "outputTokens":
			u.OutputTokens = num(value)
		case "cachedInputTokens":
			u.CachedInputTokens = num(value)
		case "cacheWriteInputTokens":
			u.CacheWriteTokens = num(value)
		case "reasoningOutputTokens":
			u.ReasoningTokens = num(value)
		}
	})
	return u
}

// lessUsage returns what a has more than b.
func lessUsage(a, b api.DialogueUsage) api.DialogueUsage {
	return api.DialogueUsage{
		InputTokens: a.InputTokens - b.InputTokens, OutputTokens: a.OutputTokens - b.OutputTokens,
		CachedInputTokens: a.CachedInputTokens - b.CachedInputTokens, CacheWriteTokens: a.CacheWriteTokens - b.CacheWriteTokens,
		ReasoningTokens: a.ReasoningTokens - b.ReasoningTokens,
	}
}

// planEntries reads the entries of a plan, whose text is in a member.
func planEntries(raw []byte, text string) (entries []api.DialoguePlanEntry) {
	items(raw, func(value []byte) {
		if len(entries) >= maxItems {
			return
		}
		status := "pending"
		switch string(inner(member(value, "status"))) {
		case "inProgress", "in_progress":
			status = "running"
		case "completed":
			status = "done"
		case "cancelled":
			status = "cancelled"
		}
		entries = append(entries, api.DialoguePlanEntry{Title: clip(str(member(value, text)), maxTitle), Status: status})
	})
	return entries
}
