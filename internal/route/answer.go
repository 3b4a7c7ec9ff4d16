package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
	"github.com/terminal-runtime/trl/internal/service/rawjson"
)

// errForeignID is the error for an answer that names what is not in the place.
var errForeignID = errors.New("the place answered with an id that is not its own")

// translation checks the JSON that a place sends, and translates what it says about
// itself.
type translation struct {
	names   names
	place   string // its name
	runtime string // of the place
}

// answer returns the result or the error in a line that answers a call. err means
// that the place is not to be trusted, and the line not to be passed on.
func (t translation) answer(line []byte) (result json.RawMessage, failure *api.Error, err error) {
	var found json.RawMessage
	isError := false
	w := walk{translation: t, scan: rawjson.Scan(line), raw: line}
	err = w.object(func(key []byte) error {
		kind := w.scan.Kind()
		switch string(key) {
		case "result", "error":
			if kind == rawjson.Null || found != nil {
				return errors.New("an answer with two results")
			}
			if kind != rawjson.Object {
				return errNoObject
			}
			isError = string(key) == "error"
			var err error
			found, err = w.translated()
			return err
		}
		_, err := w.scan.Value()
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case found == nil:
		return nil, nil, errors.New("an answer without a result")
	case isError:
		failure, err = tidy(found)
		return nil, failure, err
	}
	return found, nil, w.scan.End()
}

// walk is one pass over a text of a place.
type walk struct {
	translation
	scan  rawjson.Scanner
	raw   []byte
	edits []edit
	into  []byte // used for the result if it has to be built and fits
}

// edit replaces raw[start:end].
type edit struct {
	start, end int
	text       []byte
}

// translated reads the next value, and returns it as it is to be passed on. It is
// part of raw if nothing had to be changed.
func (w *walk) translated() (json.RawMessage, error) {
	w.scan.Kind() // skips white space
	start := w.scan.Offset()
	if err := w.value(0); err != nil {
		return nil, err
	}
	return w.applied(start, w.scan.Offset())
}

// applied returns raw[start:end] with the edits, as one line.
func (w *walk) applied(start, end int) (json.RawMessage, error) {
	out := w.raw[start:end:end]
	if len(w.edits) > 0 {
		at, grown := start, end-start
		for _, e := range w.edits {
			grown += len(e.text)
		}
		if out = w.into[:0]; cap(out) < grown {
			out = make([]byte, 0, grown)
		}
		for _, e := range w.edits {
			out = append(append(out, w.raw[at:e.start]...), e.text...)
			at = e.end
		}
		out = append(out, w.raw[at:end]...)
	}
	// Between values JSON may have line breaks, but ours is one line for each.
	if bytes.IndexByte(out, '\n') < 0 && bytes.IndexByte(out, '\r') < 0 {
		return out, nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, out)
	return b.Bytes(), err
}

// object calls fn with the name of each member of the next object; fn must read
// the value.
func (w *walk) object(fn func(key []byte) error) error {
	if err := w.scan.Enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		key, ok, err := w.scan.Key(first)
		if !ok || err != nil {
			return err
		}
		if err := fn(key); err != nil {
			return err
		}
	}
}

// value reads the next value.
func (w *walk) value(depth int) error {
	if depth > rawjson.MaxDepth {
		return fmt.Errorf("nested deeper than %d", rawjson.MaxDepth)
	}
	switch w.scan.Kind() {
	case rawjson.Object:
		return w.object(func(key []byte) error { return w.member(key, depth+1) })
	case rawjson.Array:
		if err := w.scan.Enter(); err != nil {
			return err
		}
		for first := true; ; first = false {
			ok, err := w.scan.Element(first)
			if !ok || err != nil {
				return err
			}
			if err := w.value(depth + 1); err != nil {
				return err
			}
		}
	default:
		_, err := w.scan.Value()
		return err
	}
}

// idMembers are the members of results that name a session or an exec.
var idMembers = [...][]byte{[]byte("session_id"), []byte("exec_id"), []byte("parent"), []byte("rolled_back_to")}

var runtimeMember = []byte("runtime")

// maxFolded bounds a name that a decoder could take for one of ours: some letters
// that take three bytes count as the same as an ASCII letter.
const maxFolded = 3 * len("rolled_back_to")

// member reads the value of a member. Names are compared without regard to case,
// as clients in Go do.
func (w *walk) member(key []byte, depth int) error {
	if w.scan.Kind() != rawjson.String || len(key) > maxFolded {
		return w.value(depth)
	}
	raw, err := w.scan.Value()
	if err != nil {
		return err
	}
	for _, name := range idMembers {
		if !bytes.EqualFold(key, name) {
			continue
		}
		if id := text(raw); len(id) > 0 && !w.names.owns(w.place, id) {
			return errForeignID
		}
		return nil
	}
	if bytes.EqualFold(key, runtimeMember) {
		inner, ok := stringOf(raw)
		if !ok {
			return errors.New("the runtime is not text")
		}
		end := w.scan.Offset()
		w.edits = append(w.edits, edit{end - len(raw), end, quote(joinRuntime(w.runtime, inner))})
	}
	return nil
}

// joinRuntime returns the runtime of a session, seen from outside of its place.
func joinRuntime(place, inner string) string {
	if inner == "" || inner == api.RuntimeHost {
		return place
	}
	return place + "/" + inner
}

// Limits of the errors of a place, in bytes: longer ones are cut, and details
// dropped, for they are shown to people and models.
const (
	maxMessage = 2 << 10
	maxHint    = 1 << 10
	maxDetails = 8 << 10
)

var knownCodes = api.Codes()

// tidy decodes the error of a place: with a code of the contract, and text that is
// safe to show.
func tidy(raw []byte) (*api.Error, error) {
	var e api.Error
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	if _, known := knownCodes[e.Code]; !known {
		e.Code = api.CodeInternal
	}
	e.Message, e.Hint = clipped(e.Message, maxMessage), clipped(e.Hint, maxHint)
	if e.Message == "" {
		e.Message = "the place gave no reason"
	}
	if len(e.Details) > 0 {
		details, err := json.Marshal(e.Details)
		if err != nil || len(details) > maxDetails {
			e.Details = nil
		}
	}
	return &e, nil
}

func clipped(s string, limit int) string {
	s = printable.Text(s)
	if len(s) <= limit {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:limit]), nil)) + "…"
}
