package fold

import (
	"maps"
	"reflect"

	"github.com/terminal-runtime/trl/api"
)

// sizeOf estimates the memory of an entity.
func sizeOf(x *entity) int {
	e := &x.e
	n := baseSize + len(e.ID) + len(e.Title) + len(e.Reason) + len(e.Input) + len(e.Message) + len(e.Stderr) + len(e.Text) + len(e.Output) + len(e.Key) + len(e.By)
	switch x.field { // which has the growing text only at times
	case "text":
		n += max(len(e.Text), cap(x.text)) - len(e.Text)
	case "output":
		n += max(len(e.Output), cap(x.text)) - len(e.Output)
	}
	for i := range e.Content {
		b := &e.Content[i]
		n += 96 + len(b.Text) + len(b.Data) + len(b.URI)
	}
	for i := range e.Diff {
		d := &e.Diff[i]
		n += 96 + len(d.Path) + len(d.New) + len(d.Text)
		if d.Old != nil {
			n += len(*d.Old)
		}
	}
	for i := range e.Options {
		n += 64 + len(e.Options[i].ID) + len(e.Options[i].Name)
	}
	for i := range e.Suggestions {
		n += 64 + len(e.Suggestions[i].Title) + len(e.Suggestions[i].Rule)
	}
	for i := range e.Fields {
		n += 128 + len(e.Fields[i].ID) + len(e.Fields[i].Title)
		for j := range e.Fields[i].Options {
			n += 64 + len(e.Fields[i].Options[j].ID) + len(e.Fields[i].Options[j].Name)
		}
	}
	for i := range e.Entries {
		n += 48 + len(e.Entries[i].Title)
	}
	for i := range e.Locations {
		n += 32 + len(e.Locations[i].Path)
	}
	if e.Answer != nil {
		n += 128 + len(e.Answer.Message)
		for k, v := range e.Answer.Values {
			n += 64 + len(k) + len(v)
		}
	}
	return n
}

// limit cuts what is too long in e.
func (f *Fold) limit(e *api.DialogueEntity) {
	cut := func(field string, s *string, limit int) {
		if len(*s) > limit {
			if e.Cut[field] < int64(len(*s)) {
				e.Cut = withCut(e.Cut, field, int64(len(*s)))
			}
			*s = clip(*s, limit)
		}
	}
	cut("text", &e.Text, maxText)
	cut("output", &e.Output, maxOutput)
	switch {
	case len(e.Input) == 0:
		e.Input = nil
	case len(e.Input) > maxOutput:
		if e.Cut["input"] < int64(len(e.Input)) {
			e.Cut = withCut(e.Cut, "input", int64(len(e.Input)))
		}
		e.Input = compact(shorten(e.Input, maxOutput))
	default:
		e.Input = compact(e.Input) // also because it may be a piece of a line
	}
	cut("title", &e.Title, maxTitle)
	cut("reason", &e.Reason, maxShort)
	cut("name", &e.Name, maxTitle)
	cut("stderr", &e.Stderr, stderrTail)
	cut("message", &e.Message, 4*maxShort)
	room := 2 * maxOutput // of all changes to files
	for i := range e.Diff {
		d := &e.Diff[i]
		cut("diff", &d.New, min(room, maxOutput))
		cut("diff", &d.Text, min(room, maxOutput))
		room -= len(d.New) + len(d.Text)
		if d.Old != nil {
			old := *d.Old
			cut("diff", &old, max(0, min(room, maxOutput)))
			d.Old = &old
			room -= len(old)
		}
		if room = max(0, room); len(d.Path) > maxShort {
			d.Path = clip(d.Path, maxShort)
		}
	}
	e.Diff = e.Diff[:min(len(e.Diff), maxItems)]
	e.Locations = e.Locations[:min(len(e.Locations), maxItems)]
	e.Entries = e.Entries[:min(len(e.Entries), maxItems)]
	e.Options = e.Options[:min(len(e.Options), maxItems)]
	e.Fields = e.Fields[:min(len(e.Fields), maxItems)]
	f.limitContent(e)
}

// limitContent cuts what is not text in a message: pictures are there if they are
// small.
func (f *Fold) limitContent(e *api.DialogueEntity) {
	room := maxText
	whole := int64(0)
	for i := range e.Content {
		b := &e.Content[i]
		whole += int64(len(b.Data) + len(b.Text) + len(b.URI))
		room -= len(b.Data) + len(b.Text) + len(b.URI)
	}
	if room >= 0 && len(e.Content) <= maxItems {
		return
	}
	e.Cut = withCut(e.Cut, "content", whole)
	room = maxText
	content := make([]api.DialogueBlock, min(len(e.Content), maxItems))
	for i := range content {
		b := e.Content[i]
		if room -= len(b.Data); room < 0 {
			room += len(b.Data)
			b.Data = ""
		}
		b.Text, b.URI = clip(b.Text, room), clip(b.URI, min(room, maxShort))
		room = max(0, room-len(b.Text)-len(b.URI))
		content[i] = b
	}
	e.Content = content
}

// set copies a field that is set.
func set[T comparable](dst, src, diff *T) bool {
	var zero T
	if *src == zero || *src == *dst {
		return false
	}
	*dst, *diff = *src, *src
	return true
}

// setAny is set for fields that have pointers in them.
func setAny[T any](dst, src, diff *T, isSet bool) bool {
	if !isSet || reflect.DeepEqual(*dst, *src) {
		return false
	}
	*dst, *diff = *src, *src
	return true
}

// update copies the fields of src that are set and different to dst, and to diff.
// It reports whether there are any.
func update(dst, src, diff *api.DialogueEntity) bool {
	c := set(&dst.Turn, &src.Turn, &diff.Turn)
	c = set(&dst.Parent, &src.Parent, &diff.Parent) || c
	c = set(&dst.Run, &src.Run, &diff.Run) || c
	c = setAny(&dst.At, &src.At, &diff.At, src.At != nil) || c
	c = set(&dst.From, &src.From, &diff.From) || c
	if src.Raw != nil && (dst.Raw == nil || *dst.Raw != *src.Raw) {
		raw := *src.Raw
		dst.Raw, diff.Raw, c = &raw, &raw, true
	}
	if len(src.Cut) > 0 && !maps.Equal(dst.Cut, src.Cut) {
		m := maps.Clone(dst.Cut)
		if m == nil {
			m = map[string]int64{}
		}
		maps.Copy(m, src.Cut)
		dst.Cut, diff.Cut, c = m, maps.Clone(m), true
	}
	c = set(&dst.Orphan, &src.Orphan, &diff.Orphan) || c
	c = set(&dst.State, &src.State, &diff.State) || c
	if src.Background != nil && (dst.Background == nil || *dst.Background != *src.Background) {
		dst.Background, diff.Background, c = src.Background, src.Background, true
	}
	c = set(&dst.Model, &src.Model, &diff.Model) || c
	c = set(&dst.Mode, &src.Mode, &diff.Mode) || c
	c = set(&dst.NativeID, &src.NativeID, &diff.NativeID) || c
	c = set(&dst.Status, &src.Status, &diff.Status) || c
	c = set(&dst.Origin, &src.Origin, &diff.Origin) || c
	c = set(&dst.Reason, &src.Reason, &diff.Reason) || c
	c = setAny(&dst.Usage, &src.Usage, &diff.Usage, src.Usage != nil) || c
	c = setAny(&dst.EndedAt, &src.EndedAt, &diff.EndedAt, src.EndedAt != nil) || c
	c = set(&dst.Role, &src.Role, &diff.Role) || c
	c = set(&dst.Text, &src.Text, &diff.Text) || c
	c = setAny(&dst.Content, &src.Content, &diff.Content, len(src.Content) > 0) || c
	c = set(&dst.Final, &src.Final, &diff.Final) || c
	c = set(&dst.Delivery, &src.Delivery, &diff.Delivery) || c
	c = set(&dst.By, &src.By, &diff.By) || c
	c = set(&dst.Key, &src.Key, &diff.Key) || c
	c = set(&dst.Name, &src.Name, &diff.Name) || c
	c = set(&dst.Kind, &src.Kind, &diff.Kind) || c
	c = set(&dst.Title, &src.Title, &diff.Title) || c
	c = setAny(&dst.Input, &src.Input, &diff.Input, len(src.Input) > 0) || c
	c = set(&dst.Output, &src.Output, &diff.Output) || c
	c = setAny(&dst.Diff, &src.Diff, &diff.Diff, len(src.Diff) > 0) || c
	c = setAny(&dst.Locations, &src.Locations, &diff.Locations, len(src.Locations) > 0) || c
	c = setAny(&dst.ExitCode, &src.ExitCode, &diff.ExitCode, src.ExitCode != nil) || c
	c = set(&dst.Task, &src.Task, &diff.Task) || c
	c = set(&dst.ExecID, &src.ExecID, &diff.ExecID) || c
	c = set(&dst.ToolCall, &src.ToolCall, &diff.ToolCall) || c
	c = setAny(&dst.Options, &src.Options, &diff.Options, len(src.Options) > 0) || c
	c = setAny(&dst.Suggestions, &src.Suggestions, &diff.Suggestions, len(src.Suggestions) > 0) || c
	c = setAny(&dst.Fields, &src.Fields, &diff.Fields, len(src.Fields) > 0) || c
	c = setAny(&dst.Answer, &src.Answer, &diff.Answer, src.Answer != nil) || c
	c = setAny(&dst.ExpiresAt, &src.ExpiresAt, &diff.ExpiresAt, src.ExpiresAt != nil) || c
	c = setAny(&dst.Entries, &src.Entries, &diff.Entries, len(src.Entries) > 0) || c
	c = set(&dst.Code, &src.Code, &diff.Code) || c
	c = set(&dst.Message, &src.Message, &diff.Message) || c
	c = set(&dst.Retryable, &src.Retryable, &diff.Retryable) || c
	c = set(&dst.Cleared, &src.Cleared, &diff.Cleared) || c
	c = set(&dst.Signal, &src.Signal, &diff.Signal) || c
	c = set(&dst.Stderr, &src.Stderr, &diff.Stderr) || c
	c = set(&dst.Bytes, &src.Bytes, &diff.Bytes) || c
	c = set(&dst.Healed, &src.Healed, &diff.Healed) || c
	c = setAny(&dst.Evidence, &src.Evidence, &diff.Evidence, src.Evidence != nil) || c
	c = set(&dst.Local, &src.Local, &diff.Local) || c
	c = set(&dst.Of, &src.Of, &diff.Of) || c
	return c
}

// Merge applies a change to an entity, as a client does.
func Merge(e *api.DialogueEntity, c Change) {
	var diff api.DialogueEntity
	e.Type, e.ID = c.Entity.Type, c.Entity.ID
	update(e, &c.Entity, &diff)
	if a := c.Append; a != nil {
		field := &e.Text
		if a.Field == "output" {
			field = &e.Output
		}
		if at := int(a.At); at <= len(*field) {
			*field = (*field)[:at] + a.Text
		}
	}
}
