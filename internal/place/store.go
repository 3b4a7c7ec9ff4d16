package place

import (
	"errors"
	"io/fs"
	"os"

	"github.com/terminal-runtime/trl/internal/trust"
)

// load reads the notes from the file and from the copy, and returns the newer ones.
// What can't be read is logged, and moved aside if it is damaged.
func (r *Registry) load() *notes {
	fromFile, copied := r.readFile(), r.readCopy()
	switch {
	case fromFile == nil && copied == nil:
		return &notes{}
	case fromFile == nil || copied != nil && copied.serial > fromFile.serial:
		return copied
	default:
		return fromFile
	}
}

func (r *Registry) readFile() *notes {
	if r.cfg.File == "" {
		return nil
	}
	text, err := trust.ReadFile(r.cfg.File, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil { // another user could have written it: it is not ours to move
		r.freeze(err)
		return nil
	}
	n, err := parseNotes(text)
	switch {
	case err == nil:
		return n
	case errors.Is(err, errVersion):
		r.freeze(err)
	default:
		aside := r.cfg.File + damagedSuffix
		r.cfg.Log.Error("cannot read the notes of places; they were moved aside", "event", "places_damaged",
			"file", r.cfg.File, "moved_to", aside, "error", err)
		if err := os.Rename(r.cfg.File, aside); err != nil {
			r.freeze(err)
		}
	}
	return nil
}

// freeze keeps the notes file as it is from now on.
func (r *Registry) freeze(err error) {
	r.frozen = err
	r.cfg.Log.Error("cannot use the notes of places; no new place is accepted", "event", "places_unreadable", "file", r.cfg.File, "error", err)
}

func (r *Registry) readCopy() *notes {
	if r.cfg.Load == nil {
		return nil
	}
	text := r.cfg.Load()
	if len(text) == 0 {
		return nil
	}
	n, err := parseNotes(text)
	if err != nil {
		r.cfg.Log.Error("cannot read the copy of the notes of places", "event", "places_damaged", "file", "", "error", err)
	}
	return n
}

// save writes the notes to the file and to the copy. A failure is logged: the places
// still work, but may not survive this daemon.
func (r *Registry) save() {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	if r.frozen != nil {
		r.mu.Unlock()
		return
	}
	n := r.notesNow()
	text, err := n.encode()
	r.mu.Unlock()
	if err == nil && r.cfg.File != "" {
		if len(n.places) == 0 {
			if err = os.Remove(r.cfg.File); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else {
			err = writeNotes(r.cfg.File, text)
		}
	}
	if r.cfg.Save != nil {
		if len(n.places) == 0 {
			text = nil
		}
		err = errors.Join(err, r.cfg.Save(text))
	}
	if err != nil {
		r.cfg.Log.Error("cannot save the notes of places", "event", "places_not_saved", "file", r.cfg.File, "error", err)
	}
}
