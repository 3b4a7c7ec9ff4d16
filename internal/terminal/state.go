package terminal

import (
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
	"github.com/terminal-runtime/trl/internal/vt"
)

// Slots are the holder's slots of a terminal.
type Slots struct {
	Master, Slave holder.Slot
	Stage         [2]holder.Slot
	Leader        holder.Slot // 0 means that the command leads
	LeaderPID     int
}

// All returns the slots as a list.
func (t *Slots) All() []holder.Slot {
	return []holder.Slot{t.Master, t.Slave, t.Stage[0], t.Stage[1], t.Leader}
}

// Fields describes the slots for state.Encode and state.Decode.
func (t *Slots) Fields(c *state.Coder) {
	state.Int(c, 1, &t.Master)
	state.Int(c, 2, &t.Slave)
	state.Int(c, 3, &t.Stage[0])
	state.Int(c, 4, &t.Stage[1])
	state.Int(c, 5, &t.Leader)
	state.Int(c, 6, &t.LeaderPID)
}

// Snapshot is the screen of a terminal at an offset of a command's output. Later
// output is in the journals.
type Snapshot struct {
	exec   int64 // number of the command
	offset int64
	size   api.TTYSize
	ansi   []byte
}

// Fields describes the snapshot for state.Encode and state.Decode.
func (p *Snapshot) Fields(c *state.Coder) {
	state.Int(c, 1, &p.exec)
	state.Int(c, 2, &p.offset)
	state.Int(c, 3, &p.size.Rows)
	state.Int(c, 4, &p.size.Cols)
	state.Bytes(c, 5, &p.ansi)
}

// Encode encodes the snapshot.
func (p *Snapshot) Encode() []byte { return state.Encode(p.Fields) }

// DecodeSnapshot decodes a Snapshot.
func DecodeSnapshot(b []byte) (*Snapshot, error) {
	p := &Snapshot{}
	return p, state.Decode(b, p.Fields)
}

// scrollback is how many lines that have left the screen are kept: some pages for a
// person who looks; the journal has everything.
const scrollback = 1000

func newScreen(size api.TTYSize) *vt.Screen {
	return vt.New(vt.Config{Rows: size.Rows, Cols: size.Cols, Scrollback: scrollback})
}

// Env returns env with TERM set for programs on the terminal.
func Env(env []string) []string {
	const name = "TERM="
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name) })
	return append(env, name+api.TerminalType)
}

// size2 reads the size of a terminal in format 2.
func size2(r *state.PositionalReader) api.TTYSize {
	size := api.TTYSize{Rows: int(r.Int()), Cols: int(r.Int())}
	if size.Rows == 0 {
		return api.TTYSize{}
	}
	return size
}
