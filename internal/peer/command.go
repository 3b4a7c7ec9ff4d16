package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/nowait"
	"github.com/terminal-runtime/trl/internal/printable"
)

// Command starts a relay: a program that carries the messages of a TRL on its
// standard input and output, such as `ssh host trl connect`.
type Command struct {
	Argv []string
	Env  []string // nil: the environment of this process

	// HelloTimeout is how long the relay may take to say which TRL it reaches. 0
	// means 30 s: a slow login over a slow line.
	HelloTimeout time.Duration
	// MaxMessage limits a message in bytes, unless a call asks for more; 0 means
	// MaxMessage.
	MaxMessage int
	// First, if set, returns what to send before the hello, less than a pipe holds. It
	// is called while the relay starts.
	First func() []byte
	// Banner, if set, is called with each line before the hello, without its end.
	Banner func(line []byte)
}

// CommandError is the error of a command that ended, or was silent for too long.
type CommandError struct {
	Message string // what happened
	Status  int    // its exit status; -1 if a signal ended it or it has not ended
	Stderr  string // the last words that it wrote to standard error, in one line
}

func (e *CommandError) Error() string {
	if e.Stderr == "" {
		return e.Message
	}
	return e.Message + ": " + e.Stderr
}

const (
	defaultHelloTimeout = 30 * time.Second

	// maxBannerBytes is how much a relay may print before its hello: startup files
	// of a shell greet people on the same standard output.
	maxBannerBytes = 64 << 10

	// HeartbeatInterval is how often both ends of a relay send an empty line.
	HeartbeatInterval = 15 * time.Second
	// SilenceLimit is how long a relay may send nothing before its connection has
	// ended: four heartbeats.
	SilenceLimit = 60 * time.Second

	// stderrGrace is how long a process that a relay left in the background may keep
	// its standard error open.
	stderrGrace = time.Second
	// exitTimeout is how long a relay that was killed may take to be gone. Only one
	// that the kernel itself blocks takes longer.
	exitTimeout = 5 * time.Second
)

// StartCommand starts a relay and waits for its hello. The error of a relay that
// ends has the last lines that it wrote to standard error.
func StartCommand(ctx context.Context, cmd Command) (Wire, *api.Hello, error) {
	w, err := startRelay(cmd)
	if err != nil {
		return nil, nil, err
	}
	if cmd.First != nil {
		_, _ = w.input.Write(cmd.First()) // awaitHello finds out why a relay does not read
	}
	hello, err := w.awaitHello(ctx, cmd)
	if err != nil {
		_ = w.Close()
		return nil, nil, err
	}
	go w.sendHeartbeats()
	return w, hello, nil
}

// commandWire is a wire to a relay.
type commandWire struct {
	cmd    *exec.Cmd
	name   string // of the program
	in     io.WriteCloser
	input  *nowait.Writer // to in
	out    *os.File
	lines  *Lines
	max    int // of a message in bytes, unless a call asks for more
	stderr *Tail
	exited chan struct{} // closed when the process has been waited for

	armed   time.Time // when the read deadline was last set
	closing sync.Once

	sending sync.Mutex // one message at a time; Begin leaves it locked for Finish if there is a rest
}

func startRelay(c Command) (*commandWire, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("the command is empty")
	}
	w := &commandWire{name: filepath.Base(c.Argv[0]), max: cmp.Or(c.MaxMessage, MaxMessage), stderr: &Tail{}, exited: make(chan struct{})}
	w.cmd = exec.Command(c.Argv[0], c.Argv[1:]...)
	w.cmd.Env = c.Env
	w.cmd.Stderr = w.stderr
	w.cmd.WaitDelay = stderrGrace
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a key that interrupts us must not end it
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not StdoutPipe, which Wait closes while what the relay wrote last is unread.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w.in, w.input, w.out, w.cmd.Stdout = in, nowait.NewWriter(in), out, theirs
	w.lines = NewLines(out, maxBannerBytes)
	err = w.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	go func() {
		_ = w.cmd.Wait() // ProcessState has the status
		close(w.exited)
	}()
	return w, nil
}

// awaitHello reads up to the hello.
func (w *commandWire) awaitHello(ctx context.Context, cmd Command) (*api.Hello, error) {
	timeout := cmd.HelloTimeout
	if timeout == 0 {
		timeout = defaultHelloTimeout
	}
	stop := context.AfterFunc(ctx, func() { _ = w.out.SetReadDeadline(time.Now()) })
	defer stop()
	_ = w.out.SetReadDeadline(time.Now().Add(timeout)) // a pipe supports it
	var banner []byte
	for {
		line, err := w.lines.Next()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, w.explain(fmt.Errorf("%s did not reach a TRL within %s%s", w.name, timeout, quoted(banner)))
		}
		if errors.Is(err, errLongLine) {
			return nil, fmt.Errorf("%s printed more than %d bytes that are not a TRL's hello", w.name, maxBannerBytes)
		}
		if err != nil {
			return nil, w.explain(fmt.Errorf("%s ended before it reached a TRL%s", w.name, quoted(banner)))
		}
		if hello := parseHello(line); hello != nil {
			w.AllowMessage(0)
			return hello, nil
		}
		if cmd.Banner != nil {
			cmd.Banner(bytes.TrimRight(line, "\r\n"))
		}
		if banner = append(banner, line...); len(banner) > maxBannerBytes {
			return nil, fmt.Errorf("%s printed more than %d bytes that are not a TRL's hello%s", w.name, maxBannerBytes, quoted(banner))
		}
	}
}

func parseHello(line []byte) *api.Hello {
	var message struct {
		Method string    `json:"method"`
		Params api.Hello `json:"params"`
	}
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &message) != nil ||
		message.Method != api.NotifySystemHello || message.Params.Protocol == 0 {
		return nil
	}
	return &message.Params
}

// quoted returns the last line of a banner for an error.
func quoted(banner []byte) string {
	if words := LastWords(banner); words != "" {
		return fmt.Sprintf("; it printed %q", words)
	}
	return ""
}

func (w *commandWire) Send(message []byte) error {
	w.sending.Lock()
	return w.Finish(append(message, '\n'))
}

func (w *commandWire) Begin(message []byte) (rest []byte, err error) {
	w.sending.Lock()
	message = append(message, '\n')
	n, err := w.input.TryWrite(message)
	if rest = message[n:]; len(rest) == 0 || err != nil {
		w.sending.Unlock()
	}
	return rest, err
}

func (w *commandWire) Finish(rest []byte) error {
	defer w.sending.Unlock()
	_, err := w.input.Write(rest)
	return err
}

// sendHeartbeats sends an empty line now and then, unless a message is being sent,
// which says as much, until the relay has exited.
func (w *commandWire) sendHeartbeats() {
	ticker := time.NewTicker(HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.exited:
			return
		}
		if w.sending.TryLock() {
			_, _ = w.input.TryWrite([]byte("\n")) // Receive finds the end of a relay that does not read
			w.sending.Unlock()
		}
	}
}

func (w *commandWire) Receive() ([]byte, error) {
	if now := time.Now(); now.Sub(w.armed) > HeartbeatInterval { // setting it costs a system call
		w.armed = now
		_ = w.out.SetReadDeadline(now.Add(SilenceLimit + HeartbeatInterval))
	}
	line, err := w.lines.Next()
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, w.explain(fmt.Errorf("%s was silent for %s", w.name, SilenceLimit))
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
		return nil, w.explain(fmt.Errorf("%s has ended", w.name))
	default:
		return nil, err
	}
}

// AllowMessage allows longer messages.
func (w *commandWire) AllowMessage(n int) { w.lines.SetLimit(max(n, w.max)) }

func (w *commandWire) SetReceiveTimeout(d time.Duration) bool {
	return w.out.SetReadDeadline(time.Now().Add(d)) == nil
}

// lastWordsTimeout is how long to wait for what a relay that has closed its
// output says on standard error.
const lastWordsTimeout = 500 * time.Millisecond

// explain adds the exit status and the last words of a relay that has ended.
func (w *commandWire) explain(err error) error {
	e := &CommandError{Message: err.Error(), Status: -1}
	select {
	case <-w.exited:
		if state := w.cmd.ProcessState; state != nil {
			e.Status = state.ExitCode()
			if !state.Success() {
				e.Message = fmt.Sprintf("%s (%s)", e.Message, state)
			}
		}
	case <-time.After(lastWordsTimeout):
	}
	e.Stderr = w.stderr.String()
	return e
}

// Close kills the relay and waits until it is gone. Its caller waits for no answer
// any more, and the daemon behind it notices the end of its connection.
func (w *commandWire) Close() error {
	w.closing.Do(func() {
		_ = w.in.Close()
		select {
		case <-w.exited: // its number may be another's by now
		default:
			_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = w.out.SetReadDeadline(time.Now()) // ends a Receive
		select {
		case <-w.exited:
		case <-time.After(exitTimeout):
		}
		_ = w.out.Close()
	})
	return nil
}

// Tail keeps the last bytes written to it, such as the standard error of a command.
// It is safe for concurrent use.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// tailBytes is how much of a relay's standard error is kept.
const tailBytes = 4 << 10

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[max(0, len(b)-tailBytes):]...)
	if len(t.text) > tailBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-tailBytes:]...)
	}
	return len(b), nil
}

// Text returns what was written last, as it is.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// String returns the last words: what was written last, in one line.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return LastWords(t.text)
}

// LastWords returns the text in one line, without what a terminal would act on.
func LastWords(text []byte) string {
	var words []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(printable.Text(strings.TrimRight(line, "\r\n"))); line != "" {
			words = append(words, line)
		}
	}
	return strings.Join(words, "; ")
}
