package cell

import (
	"encoding/json"
	"fmt"

	"github.com/terminal-runtime/trl/api"
)

// Variable is the environment variable that tells a TRL that it is in a cell: an
// Inside as JSON. Sessions do not get it.
const Variable = "TRL_CELL"

// Inside is what the daemon tells the TRL in a cell: what is in force for its
// session, as session.info shows it.
type Inside struct {
	// Limits has only those that are enforced from outside.
	Limits    *api.LimitsInForce    `json:"limits,omitempty"`
	Isolation *api.IsolationInForce `json:"isolation,omitempty"`
	// Files says what the descriptors are that follow the listening socket among those
	// that were passed to this process. Those that it does not know mean nothing.
	Files []string `json:"files,omitempty"`
}

// fileDenials is the log of denials.
const fileDenials = "denials"

// Split returns which of the descriptors that were passed to a TRL are sockets, and
// which are files, by their names.
func (in *Inside) Split(passed []int) (sockets []int, files map[string]int) {
	first := len(passed) - len(in.Files)
	if first < 0 {
		return passed, nil // a holder that was executed anew passes none
	}
	files = map[string]int{}
	for i, name := range in.Files {
		files[name] = passed[first+i]
	}
	return passed[:first], files
}

// ParseInside reads the value of Variable.
func ParseInside(text string) (*Inside, error) {
	in := &Inside{}
	if err := json.Unmarshal([]byte(text), in); err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	return in, nil
}
