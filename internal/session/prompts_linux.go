package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/exec"
	"github.com/terminal-runtime/trl/internal/terminal"
)

// promptShare limits what the search for commands that wait costs: between two
// rounds it pauses for this many times as long as the last one took, so that it
// takes at most a twentieth of one processor. A check takes some 100 µs: with 10,000
// running commands on terminals, watchers know within 20 s.
const promptShare = 19

// prompts knows the running commands on terminals. While there are watchers of
// commands, one goroutine looks which of them wait for input. It sleeps while there
// is no such command.
type prompts struct {
	mu       sync.Mutex
	commands map[*exec.Exec]*prompt
	added    chan struct{} // closed by the next add; nil if the goroutine does not wait for it
	watchers int
	stop     context.CancelFunc // ends the goroutine; nil if there is none
	stopped  chan struct{}      // closed when it has ended
}

// prompting is the session of a command on a terminal.
type prompting interface {
	// waitingFor returns what the command waits for, nil if for nothing.
	waitingFor(e *exec.Exec) *api.Waiting
	// reportWaiting tells watchers what the command waits for after so many inputs.
	reportWaiting(c *prompt, w *api.Waiting, inputs int)
}

// prompt is a running command on a terminal.
type prompt struct {
	session prompting
	exec    *exec.Exec

	// Guarded by prompts.mu.
	inputs     int          // how often a client has typed
	reported   *api.Waiting // the wait that watchers know of; nil means none
	reportedAt int          // inputs at that time

	// Used by the goroutine alone.
	lastByte time.Time // at the last check
	seen     int       // inputs at the last check
	pid      int       // the process that waited at the last check; 0 means none
	due      time.Time // of the next check, unless the command writes or a client types before
}

// add adds a command that runs on a terminal.
func (p *prompts) add(s prompting, e *exec.Exec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.commands == nil {
		p.commands = map[*exec.Exec]*prompt{}
	}
	p.commands[e] = &prompt{session: s, exec: e}
	if p.added != nil {
		close(p.added)
		p.added = nil
	}
}

// remove removes a command that has ended.
func (p *prompts) remove(e *exec.Exec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.commands, e)
}

// typed records that a client has typed: if the command waits again, it asks
// something else.
func (p *prompts) typed(e *exec.Exec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.commands[e]; c != nil {
		c.inputs++
	}
}

// watch makes the goroutine look until leave is called.
func (p *prompts) watch() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers++; p.watchers == 1 {
		ctx, stop := context.WithCancel(context.Background())
		before, stopped := p.stopped, make(chan struct{})
		p.stop, p.stopped = stop, stopped
		go func() {
			defer close(stopped)
			if before != nil {
				<-before
			}
			p.poll(ctx)
		}()
	}
	return p.leave
}

func (p *prompts) leave() {
	p.mu.Lock()
	stopped := p.stopped
	p.watchers--
	last := p.watchers == 0
	if last {
		p.stop()
	}
	p.mu.Unlock()
	if !last {
		return
	}
	<-stopped
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.commands {
		if p.watchers == 0 { // nothing is known any more
			c.reported = nil
		}
	}
}

// poll looks at the commands until ctx is done.
func (p *prompts) poll(ctx context.Context) {
	timer := time.NewTimer(terminal.InputPollInterval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		commands, added := p.list()
		if len(commands) == 0 {
			select {
			case <-added:
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		for _, c := range commands {
			if ctx.Err() != nil {
				return
			}
			p.check(c, began)
		}
		timer.Reset(max(terminal.InputPollInterval, promptShare*time.Since(began)))
	}
}

// list returns the commands. If there is none it returns a channel that is closed
// by the next one.
func (p *prompts) list() (commands []*prompt, added <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.commands) > 0 {
		return slices.Collect(maps.Values(p.commands)), nil
	}
	if p.added == nil {
		p.added = make(chan struct{})
	}
	return nil, p.added
}

// check looks at a command if that is due. Two checks in a row decide.
func (p *prompts) check(c *prompt, now time.Time) {
	p.mu.Lock()
	inputs := c.inputs
	p.mu.Unlock()
	lastByte := c.exec.LastByte()
	changed := inputs != c.seen || !lastByte.Equal(c.lastByte)
	if !changed && now.Before(c.due) {
		return
	}
	pid := 0
	w := c.session.waitingFor(c.exec)
	if w != nil {
		pid = w.PID
	}
	decided := pid == c.pid && inputs == c.seen
	c.lastByte, c.seen, c.pid = lastByte, inputs, pid
	if decided {
		c.session.reportWaiting(c, w, inputs)
	}
	c.due = now.Add(terminal.InputPollDelay(lastByte, !decided))
}

// reportedWaiting returns what watchers know that the command waits for.
func (p *prompts) reportedWaiting(e *exec.Exec) *api.Waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.commands[e]; c != nil {
		return c.reported
	}
	return nil
}
