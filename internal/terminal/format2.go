package terminal

import (
	"github.com/terminal-runtime/trl/internal/state"
)

// ConvertSnapshot2 converts a snapshot of format 2 to the current format.
func ConvertSnapshot2(b []byte) ([]byte, error) {
	p, err := decodeScreenSnapshot2(b)
	if err != nil {
		return nil, err
	}
	return p.Encode(), nil
}

func decodeScreenSnapshot2(b []byte) (*Snapshot, error) {
	r := state.Positional(b)
	p := &Snapshot{exec: r.Int(), offset: r.Int()}
	p.size = size2(r)
	p.ansi = r.Blob()
	return p, r.Err()
}
