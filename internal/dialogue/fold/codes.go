package fold

import "github.com/terminal-runtime/trl/api"

// The codes of the errors of Apply, besides INVALID_PARAMS.
const (
	CodeQuestionSettled api.Code = "QUESTION_SETTLED" // it has been answered, or is no longer open: data.by, data.state
	CodeDialogueEnded   api.Code = "DIALOGUE_ENDED"   // no agent runs
)
