package session

import (
	"context"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

const (
	// holdTTL outlasts a lost connection that the client makes anew, and not
	// the patience of who waits behind a person whose machine went to sleep.
	leaseTTL = 15 * time.Second
	// minHoldTTL leaves a holder on a slow line the time to renew, maxHoldTTL
	// keeps a forgotten hold from lasting for ever.
	minLeaseTTL, maxLeaseTTL = time.Second, 10 * time.Minute
	// maxHolder is a name and a machine, in bytes.
	maxHolderName = 100
)

// hold is who has the keyboard of a session. It belongs to the session, under
// whose mu it is.
type keyboardLease struct {
	id      string
	holder  string
	since   time.Time
	until   time.Time
	ttl     time.Duration
	answers bool
	expiry  *time.Timer
}

func (h *keyboardLease) describe() *api.Hold {
	return &api.Hold{Holder: h.holder, Since: api.Time{Time: h.since}, Until: api.Time{Time: h.until}}
}

// extend puts the end of the hold off.
func (h *keyboardLease) extend(now time.Time) { h.until = now.Add(h.ttl) }

// Hold gives the keyboard of a session to the caller, or renews its hold. When
// it returns, nobody else types any more.
func (p *Pool) Hold(ctx context.Context, params api.SessionHoldParams) (*api.SessionHoldResult, error) {
	ttl, err := checkLeaseParams(params)
	if err != nil {
		return nil, err
	}
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	result, changed, err := s.takeLease(params, ttl)
	if err != nil {
		return nil, err
	}
	s.trackConnection(ctx)
	if changed {
		s.awaitOtherInput()
	}
	return result, nil
}

func checkLeaseParams(params api.SessionHoldParams) (time.Duration, error) {
	if params.Holder == "" || len(params.Holder) > maxHolderName || !printable.Line(params.Holder) {
		return 0, api.Errorf(api.CodeInvalidParams, "holder must be a name of 1 to %d bytes on one line", maxHolderName).With("field", "holder").
			WithHint("say who you are, as in alice@laptop: it is told to those who find the session held")
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

// take begins a hold or renews one, and says whether somebody else could type
// before.
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
		s.term.muteAnswers.Store(h.answers)
	}
	s.persist()
	if !renewed {
		s.emit(api.SessionEvent{Type: api.EventHeld, Holder: h.holder})
	}
	return &api.SessionHoldResult{SessionID: s.id, Lease: h.id, Hold: *h.describe()}, !renewed, nil
}

// Release ends the caller's hold. A hold that has ended already is not an
// error, unless another has taken its place.
func (p *Pool) Release(_ context.Context, params api.SessionReleaseParams) (*api.SessionReleaseResult, error) {
	s, err := p.session(params.SessionID)
	if err != nil {
		return nil, err
	}
	if err := s.releaseLease(params.Lease); err != nil {
		return nil, err
	}
	s.restoreSize()
	return &api.SessionReleaseResult{SessionID: s.id}, nil
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

// expire ends a hold that was not renewed in time.
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

// endHold makes the session nobody's. Under s.mu.
func (s *Session) endLease() {
	h := s.lease
	h.expiry.Stop()
	s.lease, s.lastAttended = nil, time.Now()
	s.newInputEpoch()
	if s.term != nil {
		s.term.muteAnswers.Store(false)
	}
	if !s.ending && s.state != api.StateTerminated {
		s.persist()
		s.emit(api.SessionEvent{Type: api.EventReleased})
	}
}

// mayAct refuses who does not have the keyboard while somebody does. Under s.mu.
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

// errHeld tells who has the keyboard. Under s.mu.
func (s *Session) errHeld() *api.Error {
	if s.lease == nil {
		return api.Errorf(api.CodeSessionHeld, "this hold of the session has ended").With("session_id", s.id).
			WithHint("session.hold without a lease begins another; without one, exec.input needs none")
	}
	return api.Errorf(api.CodeSessionHeld, "%s has taken the session's keyboard", s.lease.holder).
		With("session_id", s.id).With("holder", s.lease.holder).With("since", api.Time{Time: s.lease.since}).
		WithHint("session.hold with force: true takes it over; session.watch tells when it is free; session.screen still shows it")
}

// fence stops what is being typed by those who may not any more. Under s.mu.
func (s *Session) newInputEpoch() {
	if s.endInputEpoch != nil {
		s.endInputEpoch()
		s.inputEpoch, s.endInputEpoch = nil, nil
	}
}

// mayType returns a context that is done when the caller may not type any more.
func (s *Session) beginTyping(lease string) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLease(lease); err != nil {
		return nil, err
	}
	if s.inputEpoch == nil {
		s.inputEpoch, s.endInputEpoch = context.WithCancel(context.Background())
	}
	if lease == "" { // a holder is told by name
		s.lastTyped = time.Now()
	}
	return s.inputEpoch, nil
}

// lostKeyboard is the error of who was typing when another took over, after so
// many bytes.
func (s *Session) errLeaseLost(typed int) *api.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errHeld().With("bytes", typed)
}

// settleOthers returns when what others were doing at the time of a fence has
// ended.
func (s *Session) awaitOtherInput() {
	s.sizeMu.Lock()
	s.sizeMu.Unlock() //nolint:gocritic,staticcheck // the wait is all there is to do
	if s.term != nil {
		s.term.turn.awaitCurrent()
		return
	}
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running != nil && running.stdin != nil {
		running.stdin.turn.awaitCurrent()
	}
}
