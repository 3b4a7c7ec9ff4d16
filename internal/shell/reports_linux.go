package shell

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// drain takes the reports that have arrived already.
func (r *running) drainReports() {
	for {
		select {
		case rep := <-r.reports:
			r.handleReport(rep, r)
		default:
			return
		}
	}
}

// flush takes the reports that were written before now. The pipe keeps the
// order, so a line of our own that has come through it says that all are in.
func (r *running) flushReports() {
	r.seq++
	line := "\n" + r.token + " " + string(reportReady) + " " + strconv.Itoa(r.seq) + "\n"
	mark := r.seq
	if _, err := unix.Write(r.driver.statusW.fd, []byte(line)); err != nil {
		return
	}
	limit := time.NewTimer(time.Second) // forged reports may have crowded it out
	defer limit.Stop()
	for {
		select {
		case rep := <-r.reports:
			if rep.kind == reportReady && rep.a == mark {
				r.ack(rep)
				return
			}
			r.handleReport(rep, r)
		case <-r.abandoned:
			return
		case <-limit.C:
			return
		}
	}
}

// hear notes that a report was acted upon.
func (s *Shell) ack(rep report) {
	s.acked = max(s.acked, rep.at)
	s.unacked++
}

// handle acts on one report. r is nil when no command runs.
func (s *Shell) handleReport(rep report, r *running) {
	s.ack(rep)
	switch rep.kind {
	case reportDone, reportCalledExit:
		if r != nil && rep.a == r.reportSeq && !r.reported {
			r.reported, r.code, r.calledExit = true, rep.b, rep.kind == reportCalledExit
		}
		return // and the end of the command saves it
	case reportExit:
		code := rep.a
		s.exitStatus = &code
	case reportExitCopy:
		if r != nil && r.copyFDs != nil && s.exitCopy == nil {
			s.exitCopy = s.adoptCopy(rep, r.copyFDs, r.cmd.ID)
			r.copyFDs = nil
		}
	case reportStandby:
		if s.pendingStandby != nil {
			s.standbyTaken(s.adoptCopy(rep, s.pendingStandby, s.lastID))
		}
	case reportReady: // or late: its asker gave up
		if r != nil && r.doubtSeq != 0 && rep.a == r.doubtSeq && !r.reported && s.exitStatus == nil {
			r.lineLost = true
		}
		return
	}
	s.save()
}

// takeReports is for those that come while the shell is idle.
func (s *Shell) handleIdleReports() {
	if !s.mu.TryLock() {
		return // who holds it takes them
	}
	defer s.mu.Unlock()
	if s.closed || s.current != nil && s.current.stage != stageOver {
		return // Resume is about to take them: they are about the command
	}
	s.handlePending()
	s.save()
}

// heedReports acts on those that have come.
func (s *Shell) handlePending() {
	for len(s.reports) > 0 {
		s.handleReport(<-s.reports, nil)
	}
}
