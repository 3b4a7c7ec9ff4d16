// Package fold makes a transcript of what an agent wrote and what TRL did: the
// entities of a dialogue, and each change to them.
//
// A fold is a pure function of its two inputs, the bytes of the runs and the
// records of what TRL did. It has no clock, no randomness, no I/O and no order of
// maps in it, so folding again gives the same transcript: after a crash, in a
// second process, and in a test. The same function says what has to be written to
// the agent next, so a daemon that finds a dialogue half said goes on with it.
//
// # Use
//
// Apply a RecordRun, then Feed the output of the run and Apply records in the order
// in which they happen. After each input take Changes, and write what Lines returns;
// a RecordWritten takes lines from that list. Feed in pieces of 16 KiB or less: the
// changes of one call are all in memory. RecordExit settles everything that is open;
// RecordEnd then puts the entity end. Checkpoint and Restore carry a fold to another
// process, at any byte. A record belongs at the Offset that the fold had when it was
// first applied.
//
// # What holds
//
// Output below Offset is skipped, so how it is cut, rewound or repeated makes no
// difference. A line that an agent says twice, under the same id, counts once. A line
// of an unknown type changes nothing but an entity of type unknown.
//
// Something open has an open parent: a tool call, or the turn. Only tool calls whose
// task goes on in the background, and what is below them, outlive their turn. What
// settles a tool call, a turn or a run settles what is open below it first, in the
// same step. An entity that is settled stays settled, and keeps its parent.
//
// Positions of changes only grow. An entity has the position of its last change, so
// a reader that knows a position needs only the entities that changed after it.
//
// A message goes from accepted to written, taken and done, never back. Until the
// agent has taken it, it goes to each run; after that never again. An answer goes
// to the run that asked, with the input that the agent asked about, byte for
// byte; if the agent repeats it differently, that is an error.
//
// # Bounds
//
// A fold takes 8 MiB at most, besides messages that the agent has not taken. Entities
// take Config.MemoryBytes; the oldest ones that are settled leave as changes with
// Archive. If an agent opens things without end, the oldest are settled. Long texts
// are cut, and Cut has their whole length. Of a line over 1 MiB, long strings and
// lists are left out while it comes in, and a line that is still over 3 MiB then is
// an error with its length.
//
// # Parts
//
// core.go has the inputs, say.go what is said to the agent, turn.go the turns, errors
// and waiting lines, entities.go the entities and their tree, fields.go their fields,
// lines.go the lines, checkpoint.go the checkpoints.
// adapter.go says what an adapter is and has the table of agents. An adapter knows one
// agent: how it is started, what its lines mean, and how something is said to it.
package fold

import (
	"github.com/terminal-runtime/trl/api"
)

// Version is the number of this fold. A checkpoint of another one can't be
// restored, and its dialogue is folded again from the bytes that are kept.
const Version = 1

// Config is what a fold must know from the start.
type Config struct {
	Agent api.Agent
	// MemoryBytes is how much the entities of the fold may take. Past it the oldest
	// entities that are settled leave as changes with Archive. 0: 2 MiB.
	MemoryBytes int
	// Read reads output of a run again, for an answer that must repeat a line too
	// long to be kept. nil: such a question can't be answered.
	Read func(api.DialogueRange) ([]byte, error)
}

// Chunk is output of the current run.
type Chunk struct {
	Offset int64 // in the output of the run; what is below the fold's own offset is skipped, what is missing is a gap
	Stderr bool
	Data   []byte
	At     api.Time // when it was written; zero: not known
}

// RecordKind says what TRL did.
type RecordKind string

// The kinds of records.
const (
	RecordRun       RecordKind = "run"       // started an agent: Run, NativeID, Start
	RecordMessage   RecordKind = "message"   // took a message: ID, Text, Content, By, Key
	RecordAnswer    RecordKind = "answer"    // took an answer: ID of the question, Answer, By
	RecordInterrupt RecordKind = "interrupt" // By
	RecordSet       RecordKind = "set"       // Model, Mode
	RecordWritten   RecordKind = "written"   // put lines into the input of the agent: Keys
	RecordExit      RecordKind = "exit"      // saw the agent end: Exit
	RecordStalled   RecordKind = "stalled"   // saw nothing for long: Evidence
	RecordLink      RecordKind = "link"      // ran the command ExecID for the tool call ID
	RecordEnd       RecordKind = "end"       // ended the dialogue: Reason. Nothing follows but RecordRun
)

// Record is something that TRL did. It is applied after all output before its
// place in the order of calls; the engine notes that place (Position) with it.
type Record struct {
	Kind     RecordKind
	At       api.Time
	By       string
	ID       string
	Key      string
	Keys     []string
	Run      int
	NativeID string
	Start    *Start
	Text     string
	Content  []api.DialogueBlock
	Answer   *api.DialogueAnswer
	Model    string
	Mode     string
	Exit     *Exit
	Evidence *api.DialogueEvidence
	ExecID   string
	Reason   string
}

// Start is how a run is started.
type Start struct {
	Argv     []string // the program and its first words; empty: the agent's own name
	Args     []string // added by the caller
	Cwd      string   // absolute
	NativeID string   // the conversation to continue, or the id to begin it with if the agent lets TRL choose
	Resume   bool     // continue the conversation NativeID
	Fork     bool     // continue it under another id
	ForkAt   string   // the agent's name of the turn after which to fork; "": at its end
	Model    string
	Mode     string
	Version  string // of TRL, for the handshake
}

// Launch is the command of a run.
type Launch struct {
	Argv     []string
	Env      map[string]string // added to the caller's
	Unset    []string          // removed from it
	NativeID string            // if TRL chooses it: known before the agent says anything
}

// Exit is how the agent ended.
type Exit struct {
	ExitCode  *int
	Signal    string
	Expected  bool   // TRL ended it, or a client ended its session
	Lost      string // "": the end was seen. Else why its place or session can't be reached any more: reconnect_failed
	StartedOK bool   // false: it never became ready
}

// Line is input for the agent.
type Line struct {
	Key  string // the same after every replay: exec.input with it writes the line once
	Data []byte // ends with a newline
}

// Change is a change of the transcript.
type Change struct {
	Entity  api.DialogueEntity // type, id, and the fields that have changed; with Archive the whole entity
	Append  *api.DialogueAppend
	At      Position // of the change
	Archive bool     // the entity is settled and leaves the fold; a later change to it is merged by its id
	Changed Position // with Archive: when the entity changed last, its place in the transcript
	Last    bool     // of an end: the end of the dialogue, until a run is started
}

// Summary is what a list shows of a dialogue.
type Summary struct {
	State        api.DialogueState
	Ready        bool   // the handshake of the run is over
	Failed       string // why the handshake failed, in words that may be shown; "" if it did not
	Background   int
	Run          int
	NativeID     string
	Model, Mode  string
	Turn         string
	Asking       []string
	Usage        *api.DialogueUsage
	Capabilities *api.DialogueCapabilities
	Retrying     bool
	Lines        int64 // counters: lines, and those that were unknown, no JSON, or repeated
	Unknown      int64
	Garbage      int64
	Duplicates   int64
}
