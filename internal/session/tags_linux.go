package session

import (
	"slices"
)

// Visible returns an error for a session without the tag, or an exec of one:
// exactly the error for an id that does not exist. Either id may be "" for none. A
// session keeps its tags until its retention ends.
func (p *Pool) Visible(tag, sessionID, execID string) error {
	const noID = "" // no session and no exec has this id
	if sessionID != "" {
		s, err := p.session(sessionID)
		if err == nil && !slices.Contains(s.params.Tags, tag) {
			_, err = p.session(noID)
		}
		if err != nil {
			return err
		}
	}
	if execID == "" {
		return nil
	}
	s, _, err := p.exec(execID)
	if err == nil && !slices.Contains(s.params.Tags, tag) {
		_, _, err = p.exec(noID)
	}
	return err
}
