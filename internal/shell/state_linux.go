package shell

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// stage is how far a command has come. The values are persisted.
type stage byte

const (
	stageReady     stage = iota // nothing was written to the shell
	stageSending                // the line may have been written, or not
	stageSent                   // it was written
	stageReplacing              // the command is over, and the shell is being replaced
	stageReplaced               // the shell has been replaced
	stageOver                   // the result is final
)

// promotion is what takes the place of a shell that is gone. The values are
// persisted.
type promotion byte

const (
	promotionNone promotion = iota
	promotionExitCopy
	promotionStandby
	promotionNewShell // a new shell is started
)

// shellState is all that Adopt needs to know about a shell. A slot of 0 means none.
type shellState struct {
	driver          holder.Slot // where the shell reports: the status pipe of its driver
	token           string
	pid             int
	inCopy          bool
	promoting       promotion
	seq, last       int
	lastID          string
	acked           uint64
	control         holder.Slot
	controlRead     holder.Slot
	exits           bool // it reported that it exits,
	exit            int  // with this status
	standby         copyState
	exitCopy        copyState
	pendingStandby  copyFDsState
	promotionScript holder.Slot
	hasRun          bool         // command is valid
	command         commandState // the last command, or the one that runs
}

// commandState is what Adopt needs to know about a command.
type commandState struct {
	id           string
	stage        stage
	reportSeq    int
	copyFDs      copyFDsState
	scripts      [3]holder.Slot
	reported     bool
	calledExit   bool
	stopping     bool
	killed       bool
	aborted      bool
	emergency    bool
	stopSince    time.Duration
	doubtSeq     int
	code         int
	keySignal    unix.Signal
	stopped      bool
	rolledBack   bool
	resultCode   int
	resultSignal unix.Signal
	ending       Ending
	rolledBackTo string
}

// copyState is a sleeping copy; pid 0 means none.
type copyState struct {
	pid   int
	id    string
	traps []byte
}

type copyFDsState struct{ wake, traps holder.Slot }

func (st *shellState) fields(c *state.Coder) {
	state.Int(c, 1, &st.driver)
	state.Text(c, 2, &st.token)
	state.Int(c, 3, &st.pid)
	state.Bool(c, 4, &st.inCopy)
	state.Int(c, 5, &st.promoting)
	state.Int(c, 6, &st.seq)
	state.Int(c, 7, &st.last)
	state.Text(c, 8, &st.lastID)
	state.Int(c, 9, &st.acked)
	state.Int(c, 10, &st.control)
	state.Int(c, 11, &st.controlRead)
	state.Bool(c, 12, &st.exits)
	state.Int(c, 13, &st.exit)
	st.standby.fields(c, 14)
	st.exitCopy.fields(c, 17)
	st.pendingStandby.fields(c, 20)
	state.Int(c, 22, &st.promotionScript)
	state.Bool(c, 23, &st.hasRun)
	st.command.fields(c)
}

// fields are those of the shell's state, in the same list of tags.
func (st *commandState) fields(c *state.Coder) {
	state.Text(c, 24, &st.id)
	state.Int(c, 25, &st.stage)
	state.Int(c, 26, &st.reportSeq)
	st.copyFDs.fields(c, 27)
	for i := range st.scripts {
		state.Int(c, uint64(29+i), &st.scripts[i])
	}
	state.Bool(c, 32, &st.reported)
	state.Bool(c, 33, &st.calledExit)
	state.Bool(c, 34, &st.stopping)
	state.Bool(c, 35, &st.killed)
	state.Bool(c, 36, &st.aborted)
	state.Bool(c, 37, &st.emergency)
	state.Int(c, 38, &st.stopSince)
	state.Int(c, 39, &st.doubtSeq)
	state.Int(c, 40, &st.code)
	state.Int(c, 41, &st.keySignal)
	state.Bool(c, 42, &st.stopped)
	state.Bool(c, 43, &st.rolledBack)
	state.Int(c, 44, &st.resultCode)
	state.Int(c, 45, &st.resultSignal)
	state.Int(c, 46, &st.ending)
	state.Text(c, 47, &st.rolledBackTo)
}

func (cs *copyState) fields(c *state.Coder, tag uint64) {
	state.Int(c, tag, &cs.pid)
	state.Text(c, tag+1, &cs.id)
	state.Bytes(c, tag+2, &cs.traps)
}

func (cs *copyFDsState) fields(c *state.Coder, tag uint64) {
	state.Int(c, tag, &cs.wake)
	state.Int(c, tag+1, &cs.traps)
}

// CheckState returns an error for a state that Driver.Adopt could not read.
func CheckState(saved []byte) error { return state.Decode(saved, new(shellState).fields) }

// SlotsOf returns the slots that the state of a shell names. Some may be 0.
func SlotsOf(saved []byte) []holder.Slot {
	var st shellState
	if state.Decode(saved, st.fields) != nil {
		return nil
	}
	cmd := &st.command
	return []holder.Slot{
		st.control, st.controlRead, st.pendingStandby.wake, st.pendingStandby.traps, st.promotionScript,
		cmd.copyFDs.wake, cmd.copyFDs.traps, cmd.scripts[0], cmd.scripts[1], cmd.scripts[2],
	}
}

// UnderWay returns the id of the command that a shell was running when it saved this
// state. ok is false if it was running none: the result of the last one was final.
func UnderWay(saved []byte) (id string, ok bool) {
	var st shellState
	err := state.Decode(saved, st.fields)
	cmd := &st.command
	return cmd.id, err == nil && st.hasRun && cmd.stage != stageOver && cmd.id != ""
}

// driverState is all that AdoptDriver needs to know.
type driverState struct {
	statusR, statusW, ring holder.Slot
	scripts                []scriptState
}

// scriptState is where a boot script is held.
type scriptState struct {
	key  string // see scriptKey; in states of format 2, the name
	slot holder.Slot
}

func (st *driverState) fields(c *state.Coder) {
	state.Int(c, 1, &st.statusR)
	state.Int(c, 2, &st.statusW)
	state.Int(c, 3, &st.ring)
	state.List(c, 4, &st.scripts, func(c *state.Coder, s *scriptState) {
		state.Text(c, 1, &s.key)
		state.Int(c, 2, &s.slot)
	})
}

// CheckDriverState returns an error for a state that AdoptDriver could not read.
func CheckDriverState(saved []byte) error { return state.Decode(saved, new(driverState).fields) }
