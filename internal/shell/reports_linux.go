package shell

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// drain takes the reports that have arrived already.
func (r *running) drain() {
	for {
		select {
		case rep := <-r.reports:
			r.handle(rep, r)
		default:
			return
		}
	}
}

// flush takes the reports that were written before now. The pipe keeps the
// order, so a line of our own that has come through it says that all are in.
func (r *running) flush() {
	r.seq++
	line := "\n" + r.token + " " + string(reportReady) + " " + strconv.Itoa(r.seq) + "\n"
	mark := r.seq
	if _, err := unix.Write(r.hub.statusW.fd, []byte(line)); err != nil {
		return
	}
	limit := time.NewTimer(time.Second) // forged reports may have crowded it out
	defer limit.Stop()
	for {
		select {
		case rep := <-r.reports:
			if rep.kind == reportReady && rep.a == mark {
				r.hear(rep)
				return
			}
			r.handle(rep, r)
		case <-r.gone:
			return
		case <-limit.C:
			return
		}
	}
}

// hear notes that a report was acted upon.
func (s *Shell) hear(rep report) {
	s.heard = max(s.heard, rep.at)
	s.owed++
}

// handle acts on one report. r is nil when no command runs.
func (s *Shell) handle(rep report, r *running) {
	s.hear(rep)
	switch rep.kind {
	case reportDone, reportLeft:
		if r != nil && rep.a == r.seqOf && !r.reported {
			r.reported, r.code, r.left = true, rep.b, rep.kind == reportLeft
		}
		return // and the end of the command saves it
	case reportExit:
		code := rep.a
		s.exit = &code
	case reportHeir:
		if r != nil && r.kit != nil && s.heir == nil {
			s.heir = s.adopt(rep, r.kit, r.cmd.ID)
			r.kit = nil
		}
	case reportStandby:
		if s.taking != nil {
			s.tookStandby(s.adopt(rep, s.taking, s.lastID))
		}
	case reportReady: // or late: its asker gave up
		if r != nil && r.doubt != 0 && rep.a == r.doubt && !r.reported && s.exit == nil {
			r.missed = true
		}
		return
	}
	s.save()
}

// takeReports is for those that come while the shell is idle.
func (s *Shell) takeReports() {
	if !s.mu.TryLock() {
		return // who holds it takes them
	}
	defer s.mu.Unlock()
	if s.closed || s.now != nil && s.now.stage != stageOver {
		return // Resume is about to take them: they are about the command
	}
	s.heedReports()
	s.save()
}

// heedReports acts on those that have come.
func (s *Shell) heedReports() {
	for len(s.reports) > 0 {
		s.handle(<-s.reports, nil)
	}
}
