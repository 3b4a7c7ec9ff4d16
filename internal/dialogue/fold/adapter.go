package fold

import (
	"fmt"

	"github.com/terminal-runtime/trl/api"
)

// An adapter knows one agent: how it is started, what its lines mean, and how
// something is said to it. It has no I/O, no clock and no goroutine. There is one
// instance for each fold. What it must remember between lines is in its exported
// fields: a checkpoint has them as JSON.
//
// It changes the transcript only by the small language of the fold:
//
//	f.put(e)                  an upsert: fields that are set change the entity, which is created if need be
//	f.append(id, field, text) text at the end of "text" or "output"
//	f.finish(id, text)        a streamed message is over, and this is its whole text
//	f.settle(id, status, why) an entity is over, and everything open below it with it
//	f.ask(e)                  a question opens
//	f.answered(id, ...)       a question is settled: answered or cancelled by the agent
//	f.beginTurn, f.endTurn    what a message sets off
//	f.taken, f.done, f.drop   how far a message of a person has come
//	f.fault(e)                an error entity
//	f.unknown(l, of)          a line whose type is not known. No line is thrown away silently
//	f.wait(l, parent)         a line whose parent is not known yet comes back when it is
//	f.tell(key, data)         a line for the agent
//	f.ready(), f.fail(why)    the end of the handshake
//
// and reads it by f.get(id), f.turnID(), f.now. The fold itself assigns turns, times, ranges and
// positions, and sees to it that nothing is open under something closed.
type adapter interface {
	// launch returns the command of a run.
	launch(s Start) (Launch, error)
	// typeOf names a line for people, as in "system/init"; "" if it has no type.
	typeOf(line []byte) string
	// capabilities says what the agent can do. It is asked again after each line.
	capabilities() *api.DialogueCapabilities
	// begin is called at the start of each run, with f.run and f.start set. It
	// forgets what belonged to the last run and tells the first lines of a handshake.
	begin(f *Fold)
	// line folds one line of stdout, which is not blank. A line that is no JSON is
	// for f.garbage.
	line(f *Fold, l *line)
	// message tells a message. It is called once in a run for each message that the
	// agent has not taken, in their order, after f.ready.
	message(f *Fold, m *message) error
	// again reports whether a message may be said again that was written to an
	// earlier run, which ended before it took it. If not, its delivery is unknown.
	again(f *Fold, m *message) bool
	// answer tells the answer to an open question. An error means that the answer
	// does not fit; then nothing may have changed.
	answer(f *Fold, q *api.DialogueEntity, a *api.DialogueAnswer) error
	// interrupt tells the agent to stop the turn.
	interrupt(f *Fold) error
	// set changes the model or the mode, whichever is not "".
	set(f *Fold, model, mode string) error
	// exit is called at the end of a run, before the fold settles what is open.
	exit(f *Fold, e *Exit)
}

// adapterOf returns a new adapter for an agent. This is the one table of agents.
func adapterOf(agent api.Agent) (adapter, error) {
	switch agent {
	case api.AgentClaude:
		return newClaude(), nil
	case api.AgentCodex:
		return newCodex(), nil
	case api.AgentGemini, api.AgentACP:
		return newACP(agent), nil
	default:
		return nil, fmt.Errorf("no adapter for the agent %q", agent)
	}
}

// line is a line of stdout.
type line struct {
	data    []byte            // without the newline; valid only during the call
	raw     api.DialogueRange // the line in the output of the run
	long    bool              // strings in data may be cut short: use text to read them
	orphan  bool              // it has waited for its parent in vain: entities go to the main transcript
	counted bool              // it has been counted
}

// message is something that a person said and the agent has not taken yet.
type message struct {
	ID      string // of the entity
	Key     string
	Text    string
	Content []api.DialogueBlock
	Told    int  // the run whose lines have it; 0: none
	Written int  // the last run to whose agent it was written; 0: none
	Seen    bool // the agent has it in its own queue
}

// LaunchOf returns the command of a run.
func LaunchOf(agent api.Agent, s Start) (Launch, error) {
	a, err := adapterOf(agent)
	if err != nil {
		return Launch{}, err
	}
	return a.launch(s)
}

// TypeOf returns the type and subtype of a line, "" if it has none.
func TypeOf(agent api.Agent, line []byte) string {
	a, err := adapterOf(agent)
	if err != nil {
		return ""
	}
	return a.typeOf(line)
}
