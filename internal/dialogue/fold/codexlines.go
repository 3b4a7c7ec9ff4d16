package fold

import (
	"bytes"

	"github.com/terminal-runtime/trl/api"
)

// codexParams are the members of params, as they are.
type codexParams struct {
	thread, turnID, turn, itemID, item, delta, status, fault, retry, plan, usage, request, settings, changes, index, message, toModel []byte
}

func (p *codexParams) parse(raw []byte) {
	each(raw, func(key, value []byte) {
		switch string(key) {
		case "threadId":
			p.thread = value
		case "turnId":
			p.turnID = value
		case "turn":
			p.turn = value
		case "itemId":
			p.itemID = value
		case "item":
			p.item = value
		case "delta":
			p.delta = value
		case "status":
			p.status = value
		case "error":
			p.fault = value
		case "willRetry":
			p.retry = value
		case "plan":
			p.plan = value
		case "tokenUsage":
			p.usage = value
		case "requestId":
			p.request = value
		case "threadSettings":
			p.settings = value
		case "changes":
			p.changes = value
		case "summaryIndex", "contentIndex":
			p.index = value
		case "message":
			p.message = value
		case "toModel":
			p.toModel = value
		}
	})
}

// name returns the id of an entity for an item. Items of different turns may have
// the same id, since it comes from the model.
func (c *codex) name(kind string, turn, item []byte) string {
	if kind == c.lastKind && bytes.Equal(turn, c.lastTurn) && bytes.Equal(item, c.lastItem) {
		return c.lastName
	}
	id := ""
	if kind == "c:" {
		id = name(kind, str(item)+"."+letters(str(turn))[:5])
	} else {
		id = kind + letters(str(turn), str(item))
	}
	c.lastKind, c.lastName = kind, id
	c.lastTurn, c.lastItem = append(c.lastTurn[:0], turn...), append(c.lastItem[:0], item...)
	return id
}

// place returns the tool call in which a thread works. ok is false if the line must
// wait until that is known.
func (c *codex) place(f *Fold, l *line, thread []byte) (call string, main, ok bool) {
	if len(thread) == 0 || is(thread, c.Thread) || c.Thread == "" {
		return "", true, true
	}
	id := str(thread)
	if a, known := c.Agents.get(keyOf(id)); known {
		return a.Call, false, true
	}
	return "", false, !f.wait(l, "thread:"+keyOf(id))
}

// notified folds a notification.
func (c *codex) notified(f *Fold, l *line, r *rpcLine) {
	var p codexParams
	switch string(r.method) {
	case "item/agentMessage/delta", "item/plan/delta", "item/reasoning/summaryTextDelta", "item/reasoning/textDelta", "item/reasoning/summaryPartAdded",
		"item/commandExecution/outputDelta", "item/fileChange/outputDelta", "item/mcpToolCall/progress":
		p.parse(r.params)
		if parent, main, ok := c.place(f, l, p.thread); ok {
			if main {
				f.moved()
			}
			c.piece(f, l, string(r.method), &p, parent)
		}
	case "item/started", "item/completed":
		p.parse(r.params)
		if parent, main, ok := c.place(f, l, p.thread); ok {
			if main {
				f.moved()
			}
			c.item(f, l, &p, parent, main, string(r.method) == "item/completed")
		}
	case "item/fileChange/patchUpdated":
		p.parse(r.params)
		if _, _, ok := c.place(f, l, p.thread); ok {
			id := c.name("c:", p.turnID, p.itemID)
			if f.isOpen(id) {
				diff, _, _, _ := fileChanges(l, p.changes)
				f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: id, Diff: diff})
			}
		}
	case "turn/started":
		p.parse(r.params)
		c.turnStarted(f, l, &p)
	case "turn/completed":
		p.parse(r.params)
		c.turnCompleted(f, l, &p)
	case "turn/plan/updated":
		p.parse(r.params)
		if parent, _, ok := c.place(f, l, p.thread); ok {
			f.put(api.DialogueEntity{Type: api.EntityPlan, ID: "p:" + letters(str(p.turnID)), Parent: parent, Entries: planEntries(p.plan, "step")})
		}
	case "thread/tokenUsage/updated":
		p.parse(r.params)
		c.usage(f, &p)
	case "thread/settings/updated":
		p.parse(r.params)
		if is(p.thread, c.Thread) {
			c.settings(f, p.settings)
		}
	case "model/rerouted":
		p.parse(r.params)
		if is(p.thread, c.Thread) {
			f.model = clip(cmpOr(str(p.toModel), f.model), maxTitle)
		}
	case "thread/closed":
		p.parse(r.params)
		c.agentDone(f, str(p.thread), "done", "")
	case "error":
		p.parse(r.params)
		c.failed(f, l, &p)
	case "serverRequest/resolved":
		p.parse(r.params)
		c.resolved(f, p.request)
	case "thread/started", "thread/status/changed", "thread/readState/changed", "thread/name/updated", "thread/queue/changed", "thread/goal/updated",
		"thread/goal/cleared", "thread/compacted", "thread/archived", "thread/unarchived", "thread/prediction/updated", "thread/attachment/updated",
		"turn/diff/updated", "turn/moderationMetadata", "item/commandExecution/terminalInteraction", "rawResponseItem/completed", "rawResponse/completed",
		"account/rateLimits/updated", "account/updated", "remoteControl/status/changed", "skills/changed", "app/list/updated", "fs/changed",
		"warning", "configWarning", "deprecationNotice", "guardianWarning", "hook/started", "hook/completed", "model/verification",
		"model/safetyBuffering/updated", "mcpServer/startupStatus/updated", "mcpServer/oauthLogin/completed",
		"item/autoApprovalReview/started", "item/autoApprovalReview/completed", "thread/environment/connected", "thread/environment/disconnected":
		// Known, and no part of the transcript.
	default:
		f.unknown(l, string(r.method))
	}
}

// piece folds a piece of a text.
func (c *codex) piece(f *Fold, l *line, method string, p *codexParams, parent string) {
	text, _ := l.text(p.delta)
	kind, role := "m:", "agent"
	switch method {
	case "item/commandExecution/outputDelta", "item/fileChange/outputDelta", "item/mcpToolCall/progress":
		id := c.name("c:", p.turnID, p.itemID)
		if method == "item/mcpToolCall/progress" {
			text = str(p.message) + "\n"
		}
		if f.get(id) == nil {
			f.put(api.DialogueEntity{Type: api.EntityToolCall, ID: id, Parent: parent, Status: "running", Kind: "run"})
		}
		f.append(id, "output", text)
		return
	case "item/reasoning/summaryTextDelta":
		role = "thought"
	case "item/reasoning/summaryPartAdded":
		if num(p.index) == 0 {
			return
		}
		role, text = "thought", "\n\n"
	case "item/reasoning/textDelta":
		kind, role = "r:", "thought"
	}
	id := c.name(kind, p.turnID, p.itemID)
	if f.get(id) == nil {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Role: role, Parent: parent})
	}
	f.append(id, "text", text)
}
