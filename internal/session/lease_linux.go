package session

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

const (
	// leaseTTL is longer than a client needs to reconnect, and shorter than the
	// patience of others who wait for a person whose machine went to sleep.
	leaseTTL = 15 * time.Second
	// minLeaseTTL leaves a client on a slow line the time to renew; maxLeaseTTL
	// keeps a forgotten lease from lasting forever.
	minLeaseTTL, maxLeaseTTL = time.Second, 10 * time.Minute
	// maxHolderName fits a name and a machine, in bytes.
	maxHolderName = 100
)

func checkLeaseParams(params api.SessionHoldParams) (time.Duration, error) {
	if params.Holder == "" || len(params.Holder) > maxHolderName || !printable.Line(params.Holder) {
		return 0, api.Errorf(api.CodeInvalidParams, "holder must be a name of 1 to %d bytes on one line", maxHolderName).With("field", "holder").
			WithHint("say who you are, for example alice@laptop: other clients see it while you hold the session")
	}
	if params.TTLMS == 0 {
		return leaseTTL, nil
	}
	ttl := time.Duration(params.TTLMS) * time.Millisecond
	if params.TTLMS > maxLeaseTTL.Milliseconds() || ttl < minLeaseTTL {
		return 0, api.Errorf(api.CodeInvalidParams, "ttl_ms must be between %d and %d", minLeaseTTL.Milliseconds(), maxLeaseTTL.Milliseconds()).
			With("field", "ttl_ms").WithHint("leave it out for %d, and renew with session.hold and the lease", leaseTTL.Milliseconds())
	}
	return ttl, nil
}

// takeLease gives the caller the lease or renews it, and reports whether other
// clients could type before.
func (s *Session) takeLease(params api.SessionHoldParams, ttl time.Duration) (result *api.SessionHoldResult, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || s.state == api.StateTerminated {
		return nil, false, s.errTerminated()
	}
	if s.state == api.StateCreating {
		return nil, false, s.errCreating()
	}
	if err := s.errIfUnreadable(); err != nil {
		return nil, false, err
	}
	now := time.Now()
	before := s.lease
	renewed := before != nil && params.Lease == before.id
	if !renewed && !params.Force && (before != nil || params.Lease != "") {
		return nil, false, s.errHeld()
	}
	h := before
	if !renewed {
		h = &keyboardLease{id: newID("l-"), holder: params.Holder, since: now}
		if before != nil {
			before.expiry.Stop()
		}
		h.expiry = time.AfterFunc(ttl, func() { s.expireLease(h) })
		s.lease = h
		s.newInputEpoch()
	}
	h.ttl, h.answers = ttl, params.Answers
	h.extend(now)
	s.lastAttended = now
	if s.term != nil {
		s.term.SetAnswers(!h.answers)
	}
	s.persist()
	if !renewed {
		s.emit(api.SessionEvent{Type: api.EventHeld, Holder: h.holder})
	}
	return &api.SessionHoldResult{SessionID: s.id, Lease: h.id, Hold: *h.describe()}, !renewed, nil
}

func (s *Session) releaseLease(lease string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil
	}
	if s.lease.id != lease {
		return s.errHeld()
	}
	s.endLease()
	return nil
}

// expireLease ends a lease that was not renewed in time.
func (s *Session) expireLease(h *keyboardLease) {
	if s.endIfExpired(h) {
		s.restoreSize()
	}
}

func (s *Session) endIfExpired(h *keyboardLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != h {
		return false
	}
	if left := time.Until(h.until); left > 0 {
		h.expiry.Reset(left)
		return false
	}
	s.endLease()
	return true
}

// endLease ends the lease: every client may type. The caller must hold s.mu.
func (s *Session) endLease() {
	h := s.lease
	h.expiry.Stop()
	s.lease, s.lastAttended = nil, time.Now()
	s.newInputEpoch()
	if s.term != nil {
		s.term.SetAnswers(true)
	}
	if !s.ending && s.state != api.StateTerminated {
		s.persist()
		s.emit(api.SessionEvent{Type: api.EventReleased})
	}
}

// checkLease returns an error if another client has the lease, or if the given one
// has ended. The caller must hold s.mu.
func (s *Session) checkLease(lease string) *api.Error {
	switch {
	case s.lease == nil && lease == "":
		return nil
	case s.lease == nil || s.lease.id != lease:
		return s.errHeld()
	}
	s.lease.extend(time.Now())
	return nil
}

// errHeld returns an error that names the holder of the lease. The caller must hold
// s.mu.
func (s *Session) errHeld() *api.Error {
	if s.lease == nil {
		return api.Errorf(api.CodeSessionHeld, "this keyboard lease has ended").With("session_id", s.id).
			WithHint("call session.hold without lease for a new one, or exec.input without lease")
	}
	return api.Errorf(api.CodeSessionHeld, "%s has taken the session's keyboard", s.lease.holder).
		With("session_id", s.id).With("holder", s.lease.holder).With("since", api.Time{Time: s.lease.since}).
		WithHint("session.hold with force: true takes it over; session.watch tells when it is free; session.screen still shows it")
}

// newInputEpoch stops the typing of clients that are no longer allowed to. The
// caller must hold s.mu.
func (s *Session) newInputEpoch() {
	if s.endInputEpoch != nil {
		s.endInputEpoch()
		s.inputEpoch, s.endInputEpoch = nil, nil
	}
}

// beginTyping returns a context that is done when the caller is no longer allowed
// to type.
func (s *Session) beginTyping(lease string) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLease(lease); err != nil {
		return nil, err
	}
	if s.inputEpoch == nil {
		s.inputEpoch, s.endInputEpoch = context.WithCancel(context.Background())
	}
	if lease == "" { // the holder of a lease is known by name
		s.lastTyped = time.Now()
	}
	return s.inputEpoch, nil
}

// errLeaseLost returns the error for a client that was typing when another took
// over, after the given number of bytes.
func (s *Session) errLeaseLost(typed int) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errHeld().With("bytes", typed)
}

// awaitOtherInput returns when the typing and resizing that was under way when a
// new input epoch began has ended.
func (s *Session) awaitOtherInput() {
	s.sizeMu.Lock()
	s.sizeMu.Unlock() //nolint:gocritic,staticcheck // the wait is all there is to do
	if s.term != nil {
		s.term.AwaitTyping()
		return
	}
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil {
		running.AwaitTyping()
	}
}

// checkResize returns an error if the caller must not change the size, and records
// the size from before the lease. The caller must hold s.sizeMu.
func (s *Session) checkResize(lease string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == api.StateTerminated {
		return s.errTerminated()
	}
	if err := s.checkLease(lease); err != nil {
		return err
	}
	switch {
	case s.lease == nil:
		s.sizeBeforeLease = nil // from now on this is the size without a lease
	case s.sizeBeforeLease == nil:
		s.sizeBeforeLease = s.params.TTY
		s.persist()
	}
	return nil
}

// restoreSize gives the terminal back the size that it had before the lease, once
// that has ended.
func (s *Session) restoreSize() {
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	s.mu.Lock()
	size := s.sizeBeforeLease
	if s.lease != nil || s.ending || size == nil {
		s.mu.Unlock()
		return
	}
	s.sizeBeforeLease = nil
	same := *size == *s.params.TTY
	s.mu.Unlock()
	if !same && s.term.Resize(*size) == nil { // a terminal that is gone has no size
		s.announceSize(*size)
	}
}

// announceSize persists the new size of the terminal and tells watchers. The caller
// must hold s.sizeMu.
func (s *Session) announceSize(size api.TTYSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.params.TTY = &size
	s.persist()
	s.emit(api.SessionEvent{Type: api.EventResized, TTY: &size})
}
