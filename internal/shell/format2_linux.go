package shell

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/state"
)

// States of format 2 have their fields by position: a version, then unsigned
// varints; a slot or a status is stored as its value plus one, so that zero means
// none; a text follows its length.

const format2Version = 1

var errFormat2 = errors.New("malformed shell state of format 2")

// format2Scripts are the boot scripts whose slots end the state of a driver.
var format2Scripts = []string{"copy", "exit", "gone", "dash", "ash", "bash", "zsh"}

// ConvertState2 converts the state of a shell from format 2 to what Driver.Adopt
// reads.
func ConvertState2(saved []byte) ([]byte, error) {
	r := state.Positional(saved)
	if r.Uint() != format2Version {
		return nil, errFormat2
	}
	st := shellState{token: r.Text(), pid: int(r.Uint())}
	format2Flags(r, &st.inCopy)
	st.promoting, st.seq, st.last, st.lastID, st.acked = promotion(r.Uint()), int(r.Uint()), int(r.Uint()), r.Text(), r.Uint()
	st.control, st.controlRead = format2Slot(r), format2Slot(r)
	if n := r.Uint(); n > 0 {
		st.exits, st.exit = true, int(n-1)
	}
	st.standby, st.exitCopy = format2Copy(r), format2Copy(r)
	st.pendingStandby, st.promotionScript = format2CopyFDs(r), format2Slot(r)
	if format2Flags(r, &st.hasRun); st.hasRun {
		cmd := &st.command
		cmd.id, cmd.stage, cmd.reportSeq, cmd.copyFDs = r.Text(), stage(r.Uint()), int(r.Uint()), format2CopyFDs(r)
		for i := range cmd.scripts {
			cmd.scripts[i] = format2Slot(r)
		}
		format2Flags(r, &cmd.reported, &cmd.calledExit, &cmd.stopping, &cmd.killed, &cmd.aborted, &cmd.emergency)
		cmd.stopSince, cmd.doubtSeq, cmd.code, cmd.keySignal = time.Duration(r.Uint()), int(r.Uint()), int(r.Uint()), unix.Signal(r.Uint())
		format2Flags(r, &cmd.stopped, &cmd.rolledBack)
		cmd.resultCode, cmd.resultSignal, cmd.ending, cmd.rolledBackTo = int(r.Uint()), unix.Signal(r.Uint()), Ending(r.Uint()), r.Text()
	}
	if r.Err() != nil {
		return nil, errFormat2
	}
	return state.Encode(st.fields), nil
}

// ConvertDriverState2 converts the state of a driver from format 2 to what
// AdoptDriver reads.
func ConvertDriverState2(saved []byte) ([]byte, error) {
	r := state.Positional(saved)
	if r.Uint() != format2Version {
		return nil, errFormat2
	}
	st := driverState{statusR: format2Slot(r), statusW: format2Slot(r), ring: format2Slot(r)}
	for _, name := range format2Scripts {
		st.scripts = append(st.scripts, scriptState{name, format2Slot(r)})
	}
	if r.Err() != nil {
		return nil, errFormat2
	}
	return state.Encode(st.fields), nil
}

func format2Slot(r *state.PositionalReader) holder.Slot {
	n := r.Uint()
	if n == 0 {
		return 0
	}
	return holder.Slot(n - 1)
}

func format2CopyFDs(r *state.PositionalReader) copyFDsState {
	wake := format2Slot(r)
	if wake == 0 {
		return copyFDsState{}
	}
	return copyFDsState{wake: wake, traps: format2Slot(r)}
}

func format2Copy(r *state.PositionalReader) copyState {
	pid := int(r.Uint())
	if pid == 0 {
		return copyState{}
	}
	return copyState{pid: pid, id: r.Text(), traps: r.Blob()}
}

func format2Flags(r *state.PositionalReader, flags ...*bool) {
	bits := r.Byte()
	for i, f := range flags {
		*f = bits&(1<<i) != 0
	}
}
