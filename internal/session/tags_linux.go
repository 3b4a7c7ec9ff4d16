package session

import "slices"

// Visible refuses sessions without a tag, and their execs, with the very error
// of those that do not exist. Either id may be "", for none. A session keeps
// its tags to the end of its retention.
func (p *Pool) Visible(tag, sessionID, execID string) error {
	const nobody = "" // no session and no exec has this id
	if sessionID != "" {
		s, err := p.session(sessionID)
		if err == nil && !slices.Contains(s.params.Tags, tag) {
			_, err = p.session(nobody)
		}
		if err != nil {
			return err
		}
	}
	if execID == "" {
		return nil
	}
	e, err := p.exec(execID)
	if err == nil && !slices.Contains(e.session.params.Tags, tag) {
		_, err = p.exec(nobody)
	}
	return err
}
