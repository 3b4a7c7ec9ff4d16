package conformance

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// Job is one case in one shell.
type Job struct {
	Case  Case
	Shell string
}

// Jobs returns the cases in the order in which they are best run: shell by shell, so
// that the same case rarely comes twice in a row.
func Jobs(cases []Case, shells []string) []Job {
	var jobs []Job
	for _, shell := range shells {
		for _, c := range cases {
			if c.AppliesTo(shell) {
				jobs = append(jobs, Job{c, shell})
			}
		}
	}
	return jobs
}

// Queue lets several runners share a machine. It does at most as many jobs at a time
// as it was made for, and never two of the same case.
type Queue struct {
	slots chan struct{}

	mu    sync.Mutex
	alone map[string]*sync.Mutex // by the name of the case
}

// NewQueue returns a queue. With more than six jobs at a time on two cores, cases
// begin to miss their max_ms for lack of a processor.
func NewQueue(atATime int) *Queue {
	return &Queue{slots: make(chan struct{}, atATime), alone: map[string]*sync.Mutex{}}
}

// Do does the jobs in their order, as many at a time as the queue allows, and returns
// when all are done. It may be called concurrently.
func (q *Queue) Do(jobs []Job, do func(Job)) {
	waiting := make(chan Job)
	var workers sync.WaitGroup
	for range cap(q.slots) {
		// Not as many as there are cores: most cases wait, and the table is meant to
		// run concurrently.
		workers.Go(func() {
			for j := range waiting {
				q.doAlone(j, do)
			}
		})
	}
	for _, j := range jobs {
		waiting <- j
	}
	close(waiting)
	workers.Wait()
}

func (q *Queue) doAlone(j Job, do func(Job)) {
	q.mu.Lock()
	alone := q.alone[j.Case.Name]
	if alone == nil {
		alone = new(sync.Mutex)
		q.alone[j.Case.Name] = alone
	}
	q.mu.Unlock()
	alone.Lock()
	defer alone.Unlock()
	q.slots <- struct{}{}
	defer func() { <-q.slots }()
	do(j)
}

// lateTries is how often a case may be late before it fails: other load on the
// machine makes a result late but never wrong.
const lateTries = 3

// RunPatiently runs a case, and again if it fails only because it was too slow.
// retried is called with the verdict before each further run.
func (r *Runner) RunPatiently(ctx context.Context, j Job, retried func(Verdict)) Verdict {
	verdict := r.Run(ctx, j.Case, j.Shell, newToken())
	for try := 1; verdict.Late && try < lateTries; try++ {
		retried(verdict)
		verdict = r.Run(ctx, j.Case, j.Shell, newToken())
	}
	return verdict
}

var tokens atomic.Int64

// newToken returns a decimal token that is unique on this machine. All have the
// same length, so that none is a prefix of another.
func newToken() string { return fmt.Sprintf("%07d%06d", os.Getpid(), tokens.Add(1)) }
