package fold

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
)

// Bounds of the fields of an entity. What is longer is cut and named in Cut.
const (
	maxText   = 256 << 10 // of a message
	maxOutput = 32 << 10  // of a tool call, also its input and each side of a diff
	maxTitle  = 1 << 10
	maxShort  = 4 << 10
	maxItems  = 256 // of a list
	maxID     = 160
	baseSize  = 1 << 10 // of an entity without its texts
)

// entity is one entity and its place among the others.
type entity struct {
	e       api.DialogueEntity
	changed Position
	seq     int // order of creation
	size    int
	open    bool
	keep    bool // it does not leave the fold
	// detached is set for a tool call whose work outlives its turn.
	detached bool

	// A text that grows, of the field "text" or "output" of e, which has it only
	// after entity.
	text  []byte
	field string
	whole int64 // length of the text, cut or not

	// The tree of what is open. Something open has an open parent, or the root.
	parent              *entity
	first, last         *entity // open children, oldest first
	sibling, elder      *entity // among the open children of parent
	newerLink, olderLnk *entity // in the order of the last change
}

// entity returns a copy of what clients see.
func (x *entity) entity() api.DialogueEntity {
	if x.field != "" {
		s := string(x.text)
		if x.field == "output" {
			x.e.Output = s
		} else {
			x.e.Text = s
		}
	}
	e := x.e
	e.Cut = maps.Clone(e.Cut)
	return e
}

// store has the entities that have not left the fold.
type store struct {
	entities       map[string]*entity
	root           entity // parent of what is open in no tool call
	oldest, newest *entity
	seqs           int
	memory         int
	asking         []string // open questions, oldest first
	arrivals       []string // tool calls for which lines wait
}

func (s *store) unlink(x *entity) {
	if x.olderLnk != nil {
		x.olderLnk.newerLink = x.newerLink
	} else if s.oldest == x {
		s.oldest = x.newerLink
	}
	if x.newerLink != nil {
		x.newerLink.olderLnk = x.olderLnk
	} else if s.newest == x {
		s.newest = x.olderLnk
	}
	x.olderLnk, x.newerLink = nil, nil
}

func (s *store) touch(x *entity) {
	if s.newest == x {
		return
	}
	s.unlink(x)
	x.olderLnk = s.newest
	if s.newest != nil {
		s.newest.newerLink = x
	} else {
		s.oldest = x
	}
	s.newest = x
}

func (s *store) hang(x, parent *entity) {
	x.parent, x.elder = parent, parent.last
	if parent.last != nil {
		parent.last.sibling = x
	} else {
		parent.first = x
	}
	parent.last = x
}

func (s *store) unhang(x *entity) {
	p := x.parent
	if p == nil {
		return
	}
	if x.elder != nil {
		x.elder.sibling = x.sibling
	} else {
		p.first = x.sibling
	}
	if x.sibling != nil {
		x.sibling.elder = x.elder
	} else {
		p.last = x.elder
	}
	x.parent, x.elder, x.sibling = nil, nil, nil
}

func deepest(x *entity) *entity {
	for x.first != nil {
		x = x.first
	}
	return x
}

// openness reports whether an entity is open.
func openness(e *api.DialogueEntity) bool {
	switch e.Type {
	case api.EntityToolCall:
		return e.Status == "pending" || e.Status == "running"
	case api.EntityMessage:
		return !e.Final
	case api.EntityQuestion:
		return e.State == "open"
	case api.EntityTurn:
		return e.Status == "running"
	}
	return false
}

// get returns an entity as it is now, for reading; nil if it is not there.
func (f *Fold) get(id string) *api.DialogueEntity {
	x := f.entities[id]
	if x == nil {
		return nil
	}
	return &x.e
}

// isOpen reports whether the entity is there and open.
func (f *Fold) isOpen(id string) bool {
	x := f.entities[id]
	return x != nil && x.open
}

// put changes an entity, and creates it if there is none with its id: fields of e
// that are set replace those of the entity. Something closed stays closed. The
// entity keeps its parent.
func (f *Fold) put(e api.DialogueEntity) *entity {
	f.limit(&e)
	x := f.entities[e.ID]
	if x == nil {
		return f.create(e)
	}
	if x.e.Type != e.Type {
		return x // an id is of one type
	}
	if !x.open {
		stayClosed(&e)
	}
	if x.field != "" && (e.Text != "" || e.Output != "") {
		x.entity()
		x.field, x.text = "", nil
	}
	diff := api.DialogueEntity{Type: e.Type, ID: e.ID}
	e.Parent, e.From, e.At, e.Run, e.Orphan = "", "", nil, 0, false
	if !update(&x.e, &e, &diff) {
		return x
	}
	f.changed(x, Change{Entity: diff})
	return x
}

// stayClosed takes out of a change what would open its entity again.
func stayClosed(e *api.DialogueEntity) {
	next := *e
	switch e.Type {
	case api.EntityToolCall, api.EntityTurn:
		if next.Status != "" && openness(&next) {
			e.Status = ""
		}
	case api.EntityQuestion:
		e.State = ""
	}
}

// create adds an entity.
func (f *Fold) create(e api.DialogueEntity) *entity {
	x := &entity{e: e}
	n := &x.e
	if n.Run == 0 {
		n.Run = f.run
	}
	if n.At == nil {
		n.At = f.time()
	}
	x.open = openness(n)
	if l := f.cur; l != nil {
		if n.Raw == nil {
			raw := l.raw
			n.Raw = &raw
		}
		if l.orphan {
			n.Parent, n.Orphan = "", true
		}
	}
	parent := &f.root
	if n.Parent != "" {
		switch p := f.entities[n.Parent]; {
		case p == nil || p.e.Type != api.EntityToolCall:
			n.Parent, n.Orphan = "", true
		case p.open:
			parent = p
		case x.open:
			n.Parent, n.Orphan = "", true // nothing is open under something closed
		}
	}
	switch n.Type {
	case api.EntityToolCall, api.EntityQuestion, api.EntityPlan, api.EntityMessage:
		if x.open && parent == &f.root && f.turn == nil && f.alive {
			f.beginTurn("") // the agent works
		}
		if n.Turn == "" && n.Delivery == "" && f.turn != nil {
			n.Turn = f.turn.e.ID
		}
		if n.Turn == "" && parent != &f.root {
			n.Turn = parent.e.Turn
		}
	case api.EntityError, api.EntityUnknown:
		if n.Turn == "" && f.turn != nil {
			n.Turn = f.turn.e.ID
		}
	case api.EntityState, api.EntityUsage, api.EntityTurn:
		x.keep = true
	}
	if n.Delivery != "" {
		x.keep = true
	}
	if n.Type == api.EntityQuestion && x.open {
		f.asking = append(f.asking, n.ID)
		switch call := f.entities[n.ToolCall]; {
		case call == nil:
		case call.open:
			parent = call // closed with its call
		default:
			n.ToolCall = "" // another call of the same name, which is over
		}
	}
	if x.open && n.Type != api.EntityTurn {
		f.hang(x, parent)
	}
	f.seqs++
	x.seq = f.seqs
	f.entities[n.ID] = x
	n.From = f.next().String()
	f.part-- // changed takes the same position
	f.changed(x, Change{Entity: *n})
	if n.Type == api.EntityToolCall && len(f.waiting) > 0 {
		f.arrivals = append(f.arrivals, n.ID)
	}
	return x
}

// changed records a change of x.
func (f *Fold) changed(x *entity, c Change) {
	was := x.open
	x.open = openness(&x.e)
	if was && !x.open {
		f.closed(x)
	}
	c.At = f.next()
	x.changed = c.At
	f.touch(x)
	f.memory -= x.size
	x.size = sizeOf(x)
	f.memory += x.size
	f.changes = append(f.changes, c)
}

// closed takes x out of the tree of what is open. Nothing may be open below it.
func (f *Fold) closed(x *entity) {
	f.unhang(x)
	if x.detached && x.e.Type == api.EntityToolCall {
		f.background--
	}
	switch x.e.Type {
	case api.EntityQuestion:
		f.asking = slices.DeleteFunc(f.asking, func(id string) bool { return id == x.e.ID })
	case api.EntityTurn:
		x.keep = false
	case api.EntityMessage:
		if x.field != "" {
			x.entity()
			x.field, x.text = "", nil
		}
	}
}

// next returns the position of the next change of this step.
func (f *Fold) next() Position {
	f.part++
	return Position{Run: f.run, Offset: f.settled, Record: f.record, Part: f.part}
}

// time returns when this step happened; nil if that is not known.
func (f *Fold) time() *api.Time {
	if f.now.IsZero() {
		return nil
	}
	now := f.now
	return &now
}

// here returns the range of the line that is being folded.
func (f *Fold) here() *api.DialogueRange {
	if f.cur == nil {
		return nil
	}
	raw := f.cur.raw
	return &raw
}

// append adds text to the field "text" or "output" of an entity that is open.
func (f *Fold) append(id, field, text string) {
	x := f.entities[id]
	if x == nil || !x.open || text == "" {
		return
	}
	if x.field == "" {
		x.field = field
		now := x.e.Text
		if field == "output" {
			now = x.e.Output
		}
		x.text, x.whole = append([]byte(nil), now...), int64(len(now))
		if n := x.e.Cut[field]; n > 0 {
			x.whole = n
		}
	} else if x.field != field {
		return
	}
	limit := maxText
	if field == "output" {
		limit = maxOutput
	}
	at := int64(len(x.text))
	cut := x.whole > at
	x.whole += int64(len(text))
	if room := limit - len(x.text); !cut && room < len(text) {
		text, cut = clip(text, room), true
	} else if cut {
		text = ""
	}
	x.text = append(x.text, text...)
	c := Change{Entity: api.DialogueEntity{Type: x.e.Type, ID: id}}
	if text != "" {
		c.Append = &api.DialogueAppend{Field: field, At: at, Text: text}
	}
	if cut {
		x.e.Cut = withCut(x.e.Cut, field, x.whole)
		c.Entity.Cut = maps.Clone(x.e.Cut)
	}
	f.changed(x, c)
}

func withCut(m map[string]int64, field string, whole int64) map[string]int64 {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]int64{}
	}
	m[field] = whole
	return m
}

// finish closes a streamed message. text is the whole of it, or "" if that is not
// known, and whole its length if it is longer than text.
func (f *Fold) finish(id, text string, whole int64) {
	x := f.entities[id]
	if x == nil || x.e.Type != api.EntityMessage {
		return
	}
	e := api.DialogueEntity{Type: api.EntityMessage, ID: id, Final: true, Raw: f.here()}
	if x.open && x.field == "text" && text != "" {
		if int64(max(len(text), int(whole))) >= x.whole && strings.HasPrefix(text, string(x.text)) && whole <= int64(len(text)) && len(text) <= maxText {
			f.append(id, "text", text[len(x.text):])
			text = ""
		}
	}
	if text != "" {
		e.Text = text
		if whole > int64(len(text)) {
			e.Cut = map[string]int64{"text": whole}
		}
	}
	f.put(e)
}

// settle closes a tool call: first what is open below it, then itself.
func (f *Fold) settle(e api.DialogueEntity) {
	x := f.entities[e.ID]
	if x != nil && x.open {
		for x.first != nil {
			f.close(deepest(x.first), "cut", "parent_ended", "cancelled")
		}
		e.EndedAt = f.time()
	}
	f.put(e)
}

// settleTree closes x and everything open below it, and returns how much memory they
// take.
func (f *Fold) settleTree(x *entity, status, reason, question string) int {
	size := 0
	for x.first != nil {
		y := deepest(x.first)
		size += y.size
		f.close(y, status, reason, question)
	}
	f.close(x, status, reason, question)
	return size + x.size
}

// close closes one entity, which has nothing open below it.
func (f *Fold) close(x *entity, status, reason, question string) {
	e := api.DialogueEntity{Type: x.e.Type, ID: x.e.ID}
	switch x.e.Type {
	case api.EntityToolCall:
		e.Status, e.Reason, e.EndedAt = status, reason, f.time()
	case api.EntityMessage:
		e.Final = true
	case api.EntityQuestion:
		e.State, e.Reason, e.EndedAt = question, "", f.time()
	}
	f.put(e)
}

// detach says that the work of a tool call outlives its turn.
func (f *Fold) detach(id string) {
	if x := f.entities[id]; x != nil && x.open && !x.detached {
		x.detached = true
		if x.e.Type == api.EntityToolCall {
			f.background++
		}
	}
}

// ask opens a question.
func (f *Fold) ask(e api.DialogueEntity) {
	e.Type, e.State = api.EntityQuestion, "open"
	f.put(e)
}

// settleQuestion closes a question.
func (f *Fold) settleQuestion(x *entity, state, by string, a *api.DialogueAnswer) {
	if x == nil || !x.open {
		return
	}
	f.put(api.DialogueEntity{Type: api.EntityQuestion, ID: x.e.ID, State: state, By: by, Answer: a, EndedAt: f.time()})
}

// withdrawn says that the agent no longer waits for an answer.
func (f *Fold) withdrawn(id string) { f.settleQuestion(f.entities[id], "cancelled", "", nil) }

// shrink lets the oldest settled entities leave, once there are too many. It makes
// room for some more, so that it need not look at all of them each time.
func (f *Fold) shrink() {
	if f.memory <= f.cfg.MemoryBytes {
		return
	}
	low := f.cfg.MemoryBytes - f.cfg.MemoryBytes/8
	f.archiveTo(low)
	if f.memory <= low {
		return
	}
	// Nothing else is left but what is open: an agent that opens things without end.
	// What has to stay is not its fault.
	for x := f.oldest; x != nil; x = x.newerLink {
		if x.keep {
			low += x.size
		}
	}
	for left := f.memory; left > low && f.root.first != nil; {
		left -= f.settleTree(f.root.first, "cut", "too_many", "cancelled")
	}
	f.archiveTo(low)
}

// archiveTo lets the oldest settled entities leave until the others take no more than
// low.
func (f *Fold) archiveTo(low int) {
	for x := f.oldest; x != nil && f.memory > low; {
		next := x.newerLink
		if !x.open && !x.keep {
			f.archive(x)
		}
		x = next
	}
}

func (f *Fold) archive(x *entity) {
	f.unlink(x)
	f.memory -= x.size
	delete(f.entities, x.e.ID)
	f.changes = append(f.changes, Change{Entity: x.entity(), At: f.next(), Archive: true, Changed: x.changed})
}

// Entity returns an entity as it is now, unless it has been archived.
func (f *Fold) Entity(id string) (api.DialogueEntity, bool) {
	x := f.entities[id]
	if x == nil {
		return api.DialogueEntity{}, false
	}
	return x.entity(), true
}

// Placed is an entity and when it changed last.
type Placed struct {
	Entity  api.DialogueEntity
	Changed Position
}

// Entities returns the entities that are not archived, in the order of their last
// change, with the positions of these.
func (f *Fold) Entities() []Placed {
	all := make([]Placed, 0, len(f.entities))
	for x := f.oldest; x != nil; x = x.newerLink {
		all = append(all, Placed{Entity: x.entity(), Changed: x.changed})
	}
	return all
}

// clip returns the first n bytes of s at most, and no torn character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // the rest need not stay
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
