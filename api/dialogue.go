package api

import "encoding/json"

// Agent names the program that a dialogue talks to, and so the language of its
// lines.
type Agent string

// The agents.
const (
	AgentClaude Agent = "claude" // Claude Code
	AgentCodex  Agent = "codex"  // Codex, its app-server
	AgentGemini Agent = "gemini" // Gemini CLI, over the Agent Client Protocol
	AgentACP    Agent = "acp"    // any program that speaks the Agent Client Protocol; argv names it
)

// DialogueState says what a dialogue does.
type DialogueState string

// The states of a dialogue.
const (
	DialogueStarting DialogueState = "starting" // the agent is not ready yet
	DialogueRunning  DialogueState = "running"  // a turn is open
	DialogueAsking   DialogueState = "asking"   // a question is open
	DialogueIdle     DialogueState = "idle"     // the agent waits for a message
	DialogueEnded    DialogueState = "ended"    // no agent runs; dialogue.resume may start one
)

// Reasons a dialogue ended.
const (
	DialogueTerminated = "terminated" // dialogue.terminate
	DialogueFinished   = "finished"   // the agent ended by itself, and nothing was open
	DialogueFailed     = "error"      // see the error entity before the end
)

// DialogueCapabilities says what the agent of a dialogue can do.
type DialogueCapabilities struct {
	Resume    bool     `json:"resume"`
	Fork      bool     `json:"fork"`
	ForkAt    bool     `json:"fork_at"`   // at a turn
	Interrupt bool     `json:"interrupt"` // the agent goes on afterwards
	Queue     bool     `json:"queue"`     // messages during a turn wait in the agent
	Images    bool     `json:"images"`
	Confirms  bool     `json:"confirms"` // it repeats each message, so taken is a fact
	Nesting   bool     `json:"nesting"`  // it names the parent of what subagents do
	Set       []string `json:"set"`      // what dialogue.set can change
}

// DialogueUsage counts what the agent has used, as it says.
type DialogueUsage struct {
	InputTokens       int64    `json:"input_tokens"`
	OutputTokens      int64    `json:"output_tokens"`
	CachedInputTokens int64    `json:"cached_input_tokens,omitempty"`
	CacheWriteTokens  int64    `json:"cache_write_tokens,omitempty"`
	ReasoningTokens   int64    `json:"reasoning_tokens,omitempty"`
	CostUSD           *float64 `json:"cost_usd,omitempty"`
	ContextTokens     int64    `json:"context_tokens,omitempty"` // in use now
	ContextWindow     int64    `json:"context_window,omitempty"`
}

// DialogueEntityType says what an entity is.
type DialogueEntityType string

// The types of entities.
const (
	EntityState    DialogueEntityType = "state"     // of the dialogue; there is one
	EntityTurn     DialogueEntityType = "turn"      // from a message to the end of what it set off
	EntityMessage  DialogueEntityType = "message"   // of a person, the agent, or its thoughts
	EntityToolCall DialogueEntityType = "tool_call" // something that the agent did
	EntityQuestion DialogueEntityType = "question"  // something that the agent waits for
	EntityPlan     DialogueEntityType = "plan"      // the agent's list of what it is going to do
	EntityUsage    DialogueEntityType = "usage"     // what it has used; there is one
	EntityError    DialogueEntityType = "error"     // what went wrong
	EntityUnknown  DialogueEntityType = "unknown"   // a line whose type this version does not know
	EntityEnd      DialogueEntityType = "end"       // of a run that was not continued
)

// DialogueEntity is a part of a transcript, or a change to one. In an event it has
// the fields that have changed, besides type and id; a field that is left out is as
// it was.
type DialogueEntity struct {
	Type   DialogueEntityType `json:"type"`
	ID     string             `json:"id"`
	Turn   string             `json:"turn,omitempty"`   // the turn it belongs to
	Parent string             `json:"parent,omitempty"` // the tool call in which it happened
	Run    int                `json:"run,omitempty"`
	At     *Time              `json:"at,omitempty"`     // when it began
	From   string             `json:"from,omitempty"`   // position at which it began
	Raw    *DialogueRange     `json:"raw,omitempty"`    // the line that says most about it
	Cut    map[string]int64   `json:"cut,omitempty"`    // fields that are too long, of which the beginning is shown, and their whole length in bytes
	Orphan bool               `json:"orphan,omitempty"` // its parent is not known

	// Of a state, and of a question.
	State      string `json:"state,omitempty"`
	Background *int   `json:"background,omitempty"`
	Model      string `json:"model,omitempty"`
	Mode       string `json:"mode,omitempty"`
	NativeID   string `json:"native_id,omitempty"`

	// Of a turn, and of a tool call.
	Status  string         `json:"status,omitempty"`
	Origin  string         `json:"origin,omitempty"` // of a turn: user, task, agent or command
	Reason  string         `json:"reason,omitempty"` // why it ended, or why it is asked, in the agent's words
	Usage   *DialogueUsage `json:"usage,omitempty"`  // also of usage
	EndedAt *Time          `json:"ended_at,omitempty"`

	// Of a message.
	Role     string          `json:"role,omitempty"` // user, agent, thought or system
	Text     string          `json:"text,omitempty"`
	Content  []DialogueBlock `json:"content,omitempty"`  // what is not text
	Final    bool            `json:"final,omitempty"`    // nothing will be appended
	Delivery string          `json:"delivery,omitempty"` // of a user's message: accepted, written, taken, done, dropped or unknown
	By       string          `json:"by,omitempty"`       // who said or answered it
	Key      string          `json:"key,omitempty"`      // of dialogue.send

	// Of a tool call.
	Name      string             `json:"name,omitempty"` // as the agent names it
	Kind      string             `json:"kind,omitempty"` // read, edit, delete, move, search, run, think, fetch, agent or other; of a question: permission, choice, form or plan
	Title     string             `json:"title,omitempty"`
	Input     json.RawMessage    `json:"input,omitempty"`
	Output    string             `json:"output,omitempty"`
	Diff      []DialogueDiff     `json:"diff,omitempty"`
	Locations []DialogueLocation `json:"locations,omitempty"`
	ExitCode  *int               `json:"exit_code,omitempty"` // also of an error; only if the agent says it
	Task      string             `json:"task,omitempty"`      // the agent's name of the task that it started
	ExecID    string             `json:"exec_id,omitempty"`   // the command that TRL ran for it

	// Of a question.
	ToolCall    string               `json:"tool_call,omitempty"`
	Options     []DialogueOption     `json:"options,omitempty"`
	Suggestions []DialogueSuggestion `json:"suggestions,omitempty"`
	Fields      []DialogueField      `json:"fields,omitempty"` // what a choice or a form asks for
	Answer      *DialogueAnswer      `json:"answer,omitempty"`
	ExpiresAt   *Time                `json:"expires_at,omitempty"`

	// Of a plan.
	Entries []DialoguePlanEntry `json:"entries,omitempty"`

	// Of an error.
	Code      string            `json:"code,omitempty"`
	Message   string            `json:"message,omitempty"`
	Retryable bool              `json:"retryable,omitempty"`
	Cleared   bool              `json:"cleared,omitempty"` // it no longer holds: the agent goes on
	Signal    string            `json:"signal,omitempty"`
	Stderr    string            `json:"stderr,omitempty"` // its end
	Bytes     int64             `json:"bytes,omitempty"`  // of a gap: how many are missing
	Healed    bool              `json:"healed,omitempty"`
	Evidence  *DialogueEvidence `json:"evidence,omitempty"` // of stalled
	Local     bool              `json:"local,omitempty"`    // the client library made it: it has lost the daemon

	// Of what is unknown.
	Of string `json:"of,omitempty"` // type and subtype of the line
}

// DialogueRange is a piece of the output of a run.
type DialogueRange struct {
	Run    int   `json:"run"`
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// DialogueBlock is a part of a message.
type DialogueBlock struct {
	Type string `json:"type"` // text, image, file or other
	Text string `json:"text,omitempty"`
	Data string `json:"data,omitempty"` // of an image, base64
	Mime string `json:"mime,omitempty"`
	URI  string `json:"uri,omitempty"`
}

// DialogueDiff is a change to a file.
type DialogueDiff struct {
	Path string  `json:"path"`
	Old  *string `json:"old,omitempty"` // null: there was no such file, or it is not known
	New  string  `json:"new,omitempty"`
	Text string  `json:"text,omitempty"` // a unified diff, where the agent says no more
}

// DialogueLocation is a place in a file.
type DialogueLocation struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

// DialogueOption is an answer that can be chosen.
type DialogueOption struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always, or other
	Name string `json:"name,omitempty"`
}

// DialogueSuggestion is a rule that the agent suggests, so that it need not ask
// again. An answer names it by its index.
type DialogueSuggestion struct {
	Title string          `json:"title"`
	Rule  json.RawMessage `json:"rule,omitempty"` // as the agent says it
}

// DialogueField is something that a question asks for.
type DialogueField struct {
	ID       string           `json:"id"`
	Title    string           `json:"title,omitempty"`
	Type     string           `json:"type"` // text, choice, choices, boolean or number
	Options  []DialogueOption `json:"options,omitempty"`
	Required bool             `json:"required,omitempty"`
}

// DialogueAnswer is what was answered to a question.
type DialogueAnswer struct {
	Option     string                     `json:"option,omitempty"`
	Suggestion *int                       `json:"suggestion,omitempty"`
	Values     map[string]json.RawMessage `json:"values,omitempty"`
	Message    string                     `json:"message,omitempty"`
	Interrupt  bool                       `json:"interrupt,omitempty"`
}

// DialoguePlanEntry is one step of a plan.
type DialoguePlanEntry struct {
	Title  string `json:"title"`
	Status string `json:"status"` // pending, running, done or cancelled
}

// DialogueEvidence is what can be seen of an agent that is silent.
type DialogueEvidence struct {
	SilentMS  int64    `json:"silent_ms"`
	CPUMS     int64    `json:"cpu_ms"`              // used by its whole tree meanwhile
	Processes []string `json:"processes,omitempty"` // names of what runs in its tree besides the agent
	Retrying  bool     `json:"retrying,omitempty"`  // the agent waits to try again
}

// The codes of error entities.
const (
	DialogueUnexpectedExit  = "unexpected_exit"  // the agent ended without a request, or something was open
	DialogueReconnectFailed = "reconnect_failed" // the place of the dialogue can't be reached, or has lost it
	DialogueAgentError      = "agent_error"      // the agent says that a turn failed
	DialogueRetrying        = "retrying"         // the agent tries again
	DialogueGap             = "gap"              // output is missing
	DialogueGarbage         = "garbage"          // a line that is no JSON
	DialogueStalled         = "stalled"          // see Evidence
	DialogueAltered         = "altered"          // the agent repeated an answer or a message differently
)

// DialogueAppend is text that is added to a field.
type DialogueAppend struct {
	Field string `json:"field"` // text or output
	At    int64  `json:"at"`    // length of the field before it, in bytes
	Text  string `json:"text"`
}
