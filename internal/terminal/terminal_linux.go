package terminal

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/arrival"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
	"github.com/terminal-runtime/trl/internal/process"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/vt"
)

// Terminal is the terminal of a tty session: stdin, stdout and stderr of its
// commands. It outlives them, and so does what they do to its screen.
type Terminal struct {
	cfg    Config
	master *os.File
	raw    syscall.RawConn // of master
	turn   arrival.Turn    // of callers that type
	// slave is kept open, so that the master does not hang up between commands.
	slave  *os.File
	leader *process.Terminal // nil in a direct session, where the command leads
	stage  [2]int            // pipe through which output is spliced into the journal
	slots  *Slots

	settings unix.Termios // that every command begins with

	muteAnswers atomic.Bool // the keyboard lease holder's own terminal answers the queries of programs

	mu     sync.Mutex // allows one pull at a time; guards the fields below
	output Output     // the command that runs, or ran last; nil before the first
	screen *vt.Screen // shows the output
	buf    []byte
	gone   bool
	// persisted is the snapshot in the ledger. nextSnapshot replaces it once enough
	// bytes (sinceSnapshot) have been shown after it.
	persisted, nextSnapshot *Snapshot
	sinceSnapshot           int
}

// Output is the command that the terminal's output belongs to.
type Output interface {
	ID() string
	// Number returns the command's place among those of its session, from 1 on.
	Number() int64
	Journal() *journal.Journal
	// Touch records that the command wrote something just now.
	Touch()
	// LastByte returns when the command last wrote or was sent something.
	LastByte() time.Time
	// SetInitialSize records the size of the terminal when the command begins.
	SetInitialSize(size api.TTYSize)
	// Resized records and persists that the terminal has another size from the end
	// of the journal on. The caller makes sure that no byte is appended meanwhile.
	Resized(size api.TTYSize)
	// CloseJournal is called when the terminal appends nothing more.
	CloseJournal()
}

// Config configures a Terminal.
type Config struct {
	// Keeper holds the descriptors that must outlive this process.
	Keeper holder.Keeper
	// Spawn starts a goroutine.
	Spawn func(func())
	// SaveScreen stores an encoded Snapshot for a later process, in place of the
	// previous one. nil disables it.
	SaveScreen func(snapshot []byte)
}

// ErrNoTerminal is the error for a request that needs a terminal.
func ErrNoTerminal() *api.Error {
	return api.Errorf(api.CodeInvalidRequest, "the session has no terminal").
		WithHint(`create a session that has one: session.create with tty: {"rows": 24, "cols": 80}`)
}

// ErrNotTaken is the error for input that a command does not take.
func ErrNotTaken(why error) *api.Error {
	return api.Errorf(api.CodeInvalidParams, "the command does not take its input: %w", why).
		WithHint("exec.info says whether it is still running")
}

// Name returns the path of the terminal.
func (t *Terminal) Name() string { return t.slave.Name() }

// SlaveFD returns a descriptor of the terminal that a program can inherit. It is
// valid until the terminal is closed.
func (t *Terminal) SlaveFD() int { return int(t.slave.Fd()) }

// Slots returns the holder's slots of the terminal. The caller must not change
// them.
func (t *Terminal) Slots() *Slots { return t.slots }

// Leader returns the process that leads the terminal, nil if the command does.
func (t *Terminal) Leader() *process.Terminal { return t.leader }

// Turn serializes callers of Type: a caller joins, awaits its turn, types, and
// passes the turn on.
func (t *Terminal) Turn() *arrival.Turn { return &t.turn }

// Leads reports whether the process with this pid is the terminal's leader.
func (t *Terminal) Leads(pid int) bool { return t.leader != nil && t.leader.PID() == pid }

// SetAnswers sets whether the terminal answers the queries of programs. If not, the
// terminal of the client that has the keyboard does.
func (t *Terminal) SetAnswers(answers bool) { t.muteAnswers.Store(!answers) }

// size returns the size of the screen. The caller must hold mu.
func (t *Terminal) size() api.TTYSize {
	rows, cols := t.screen.Size()
	return api.TTYSize{Rows: rows, Cols: cols}
}

// KernelSize returns the size that the kernel has for the terminal. It may be newer
// than the one that was persisted.
func (t *Terminal) KernelSize() (api.TTYSize, error) {
	size, err := pty.GetSize(t.master)
	return api.TTYSize{Rows: size.Rows, Cols: size.Cols}, err
}

// onSlave calls fn with the descriptor of the slave, see pty.Control.
func (t *Terminal) onSlave(fn func(fd int) error) error { return pty.Control(t.slave, fn) }

func (t *Terminal) currentSettings() (settings *unix.Termios, err error) {
	err = t.onSlave(func(fd int) (err error) {
		settings, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return settings, err
}

// noKey disables a function of the terminal that has a key.
const noKey = 0

// maxDrain is more than the kernel buffers for a terminal: all that can be pending
// when a command ends. A process left behind may go on writing and is not waited
// for.
const maxDrain = 256<<10 + 1
