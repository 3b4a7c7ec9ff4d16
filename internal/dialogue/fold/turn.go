package fold

import (
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// turnID returns the id of the open turn, "" if there is none.
func (f *Fold) turnID() string {
	if f.turn == nil {
		return ""
	}
	return f.turn.e.ID
}

// beginTurn opens a turn, or says what set off the one that is open. The origin ""
// is not known yet.
func (f *Fold) beginTurn(origin string) {
	if f.turn != nil {
		if f.turn.e.Origin == "" && origin != "" {
			f.put(api.DialogueEntity{Type: api.EntityTurn, ID: f.turn.e.ID, Origin: origin})
		}
		return
	}
	f.turns++
	f.turn = f.put(api.DialogueEntity{Type: api.EntityTurn, ID: "t" + strconv.Itoa(f.turns), Origin: origin, Status: "running"})
	for _, id := range f.inTurn {
		if x := f.entities[id]; x != nil && x.e.Turn == "" {
			f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Turn: f.turn.e.ID})
		}
	}
}

// endTurn closes the open turn. What is open in it ends with it, except tool calls
// whose task goes on, and what is below them.
func (f *Fold) endTurn(status, reason string, usage *api.DialogueUsage) {
	if f.turn == nil {
		return
	}
	f.flushWaiting()
	if f.turn == nil {
		return // a line that has waited ends it
	}
	f.clear(&f.retrying)
	for x := f.root.first; x != nil; {
		next := x.sibling
		if !x.detached {
			f.settleTree(x, "cut", "turn_ended", "cancelled")
		}
		x = next
	}
	turn := f.turn
	f.turn = nil
	f.put(api.DialogueEntity{Type: api.EntityTurn, ID: turn.e.ID, Status: status, Reason: reason, Usage: usage, EndedAt: f.time()})
	if status == "cut" {
		f.leaveTaken()
	}
	f.doneAll()
}

// loose closes a turn that was opened by something that the agent did outside of one.
// What is open goes on without it.
func (f *Fold) loose() {
	if f.turn == nil {
		return
	}
	for x := f.root.first; x != nil; x = x.sibling {
		f.detach(x.e.ID)
	}
	f.endTurn("done", "", nil)
}

// spend says what this run of the agent has used so far.
func (f *Fold) spend(u api.DialogueUsage) {
	f.used = u
	sum := addUsage(f.spent, u)
	f.put(api.DialogueEntity{Type: api.EntityUsage, ID: "usage", Usage: &sum})
}

// addUsage adds what is summed over runs; what is in use now is of the later one.
func addUsage(a, b api.DialogueUsage) api.DialogueUsage {
	sum := api.DialogueUsage{
		InputTokens: a.InputTokens + b.InputTokens, OutputTokens: a.OutputTokens + b.OutputTokens,
		CachedInputTokens: a.CachedInputTokens + b.CachedInputTokens, CacheWriteTokens: a.CacheWriteTokens + b.CacheWriteTokens,
		ReasoningTokens: a.ReasoningTokens + b.ReasoningTokens,
		ContextTokens:   b.ContextTokens, ContextWindow: b.ContextWindow,
	}
	if sum.ContextWindow == 0 {
		sum.ContextWindow = a.ContextWindow
	}
	if a.CostUSD != nil || b.CostUSD != nil {
		cost := 0.0
		if a.CostUSD != nil {
			cost += *a.CostUSD
		}
		if b.CostUSD != nil {
			cost += *b.CostUSD
		}
		sum.CostUSD = &cost
	}
	return sum
}

// fault puts an error entity, or changes the one with the id of e, and returns its id.
func (f *Fold) fault(e api.DialogueEntity) string {
	e.Type = api.EntityError
	if e.ID == "" {
		f.faults++
		e.ID = "e" + strconv.Itoa(f.faults)
	}
	e.Message = clip(e.Message, 16<<10)
	switch e.Code {
	case api.DialogueUnexpectedExit, api.DialogueReconnectFailed:
		f.lastCode = e.Code
	}
	f.put(e)
	return e.ID
}

// clear says that an error no longer holds.
func (f *Fold) clear(id *string) {
	if *id != "" {
		if x := f.entities[*id]; x != nil {
			x.keep = false
			f.put(api.DialogueEntity{Type: api.EntityError, ID: *id, Cleared: true})
		}
		*id = ""
	}
}

// retry says that the agent tries again. The error is cleared by moved.
func (f *Fold) retry(message string) {
	f.retrying = f.fault(api.DialogueEntity{ID: f.retrying, Code: api.DialogueRetrying, Message: message, Retryable: true})
	f.entities[f.retrying].keep = true
}

// moved says that the agent goes on, so it no longer waits to try again.
func (f *Fold) moved() {
	if f.retrying != "" {
		f.clear(&f.retrying)
	}
}

// unknown keeps a line whose type is not known.
func (f *Fold) unknown(l *line, of string) {
	f.Unknown++
	if f.unknowns++; f.unknowns > maxUnknown {
		return
	}
	f.put(api.DialogueEntity{
		Type: api.EntityUnknown, ID: "x:" + strconv.Itoa(l.raw.Run) + ":" + strconv.FormatInt(l.raw.Offset, 10), Of: clip(of, 256),
	})
}

// garbage keeps a line that is no JSON. Lines that follow each other are one error.
func (f *Fold) garbage(l *line) {
	f.Garbage++
	f.wasGarbage = true
	if f.garbageID != "" {
		if x := f.entities[f.garbageID]; x != nil {
			f.put(api.DialogueEntity{Type: api.EntityError, ID: f.garbageID, Bytes: x.e.Bytes + l.raw.Bytes})
			return
		}
	}
	if f.garbages++; f.garbages > maxGarbage {
		return
	}
	f.garbageID = f.fault(api.DialogueEntity{
		ID: "g:" + strconv.Itoa(l.raw.Run) + ":" + strconv.FormatInt(l.raw.Offset, 10), Code: api.DialogueGarbage, Message: "a line that is no JSON", Bytes: l.raw.Bytes,
	})
}

// waitingLine is a line whose parent is not known yet.
type waitingLine struct {
	Parent string
	Data   []byte
	Raw    api.DialogueRange
	Long   bool
}

// Bounds of the lines that wait.
const (
	maxWaiting     = 1000
	maxWaitingSize = 1 << 20
)

// wait keeps a line until its parent, the id of a tool call, is there. It reports
// false if it has waited enough: then its entities go to the main transcript.
func (f *Fold) wait(l *line, parent string) bool {
	if l.orphan || f.entities[parent] != nil {
		return false
	}
	if len(f.waiting) >= maxWaiting || f.waitSize+len(l.data) > maxWaitingSize {
		f.flushWaiting()
		if f.entities[parent] != nil {
			return false
		}
		if len(l.data) > maxWaitingSize {
			l.orphan = true
			return false
		}
	}
	f.waiting = append(f.waiting, waitingLine{Parent: parent, Data: append([]byte(nil), l.data...), Raw: l.raw, Long: l.long})
	f.waitSize += len(l.data)
	return true
}

// arrived folds what has waited for a tool call.
func (f *Fold) arrived(id string) {
	// A line that waits again is not looked at a second time.
	for i, left := 0, len(f.waiting); i < len(f.waiting) && left > 0; left-- {
		if f.waiting[i].Parent != id {
			i++
			continue
		}
		w := f.waiting[i]
		f.waiting = append(f.waiting[:i:i], f.waiting[i+1:]...)
		f.waitSize -= len(w.Data)
		f.again(w, false)
	}
}

// flushWaiting folds all lines that wait, without their parents.
func (f *Fold) flushWaiting() {
	for len(f.waiting) > 0 {
		w := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.waitSize -= len(w.Data)
		f.again(w, f.entities[w.Parent] == nil)
	}
	f.waiting = nil
}

func (f *Fold) again(w waitingLine, orphan bool) {
	saved := f.cur
	l := line{data: w.Data, raw: w.Raw, long: w.Long, orphan: orphan, counted: true}
	f.cur = &l
	f.agent.line(f, &l)
	f.cur = saved
}
