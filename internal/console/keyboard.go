package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

const (
	// leaseTTL is how long the keyboard stays taken after the user's machine or
	// connection has died: a few times as long as a lost connection is looked
	// for.
	leaseTTL = 15 * time.Second
	// renewInterval leaves two more attempts before the lease expires.
	renewInterval = leaseTTL / 3
	// maxQueuedInput is how much input is queued for a program that does not
	// read: a large paste. Input beyond it is rejected.
	maxQueuedInput = 4 << 20
	// inputChunkBytes is how much input goes into one call: few calls for a
	// paste, and little memory on both sides.
	inputChunkBytes = 256 << 10
	// maxUnread is how much input a command can leave unread: what a pipe and the
	// daemon buffer, and what this program sends ahead.
	maxUnread = maxQueuedInput
)

// keyboardClient is the part of a client that a keyboard needs.
type keyboardClient interface {
	Hold(context.Context, api.SessionHoldParams) (*api.SessionHoldResult, error)
	Release(context.Context, api.SessionReleaseParams) (*api.SessionReleaseResult, error)
	ResizeSession(context.Context, api.SessionResizeParams) (*api.SessionResizeResult, error)
	Input(context.Context, api.ExecInputParams) (*api.ExecInputResult, error)
}

// keyboard is this program's access to a session's keyboard: the lease, if it
// has one, and the input to send. It is safe for concurrent use.
type keyboard struct {
	client         keyboardClient
	session        string
	holder         string // the name that other clients see
	answersQueries bool   // the local terminal answers queries itself
	// onError receives errors of sending input, and errLeaseLost when the lease
	// is lost. It is called from the keyboard's own goroutines.
	onError func(error)

	mu         sync.Mutex
	lease      string      // "" without a lease
	size       api.TTYSize // the size set under this lease; zero if none
	exec       string      // receives the input; "" if there is none
	queue      []byte      // input not yet sent
	sent       []byte      // the last input that was sent to exec, up to maxUnread
	eof        bool        // send the end of input after queue
	sendReady  chan struct{}
	renewReady chan struct{}

	sending sync.Mutex // held during a call that sends input; taken before mu
}

// errLeaseLost reports that the lease has expired or was taken by another
// client.
type errLeaseLost struct{ by string } // by is "" if it expired

func (e errLeaseLost) Error() string {
	if e.by == "" {
		return "the keyboard lease has expired"
	}
	return e.by + " has taken the keyboard"
}

// leaseHolder returns who holds the keyboard, if err is the daemon's refusal
// for that reason.
func leaseHolder(err error) (by string, held bool) {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.CodeSessionHeld {
		return "", false
	}
	by, _ = refused.Details["holder"].(string)
	return printable.Text(by), true
}

func newKeyboard(c keyboardClient, session string) *keyboard {
	return &keyboard{
		client: c, session: session, holder: holderName(), onError: func(error) {},
		sendReady: make(chan struct{}, 1), renewReady: make(chan struct{}, 1),
	}
}

// holderName returns the user, host and terminal of this program, in the style
// of `who`.
func holderName() string {
	name := "someone"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host, _, _ = strings.Cut(host, ".")
	const room = 40 // of the 100 bytes that a holder's name may have
	where := fmt.Sprintf("pid %d", os.Getpid())
	if tty, err := os.Readlink("/proc/self/fd/0"); err == nil && strings.HasPrefix(tty, "/dev/pts/") {
		where = "pts/" + filepath.Base(tty)
	}
	return fmt.Sprintf("%.*s@%.*s %s", room, printable.Text(name), room, printable.Text(host), where)
}

// run sends queued input and renews the lease until ctx is done.
func (k *keyboard) run(ctx context.Context, start func(func())) {
	start(func() {
		tick := time.NewTicker(renewInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-k.renewReady:
			case <-ctx.Done():
				return
			}
			k.renew(ctx)
		}
	})
	start(func() {
		for {
			select {
			case <-k.sendReady:
				k.send(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// take acquires the lease; with force it takes it from another client.
func (k *keyboard) take(ctx context.Context, force bool) error {
	r, err := k.client.Hold(ctx, api.SessionHoldParams{
		SessionID: k.session, Holder: k.holder, Force: force, TTLMS: leaseTTL.Milliseconds(), Answers: k.answersQueries,
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.lease, k.size = r.Lease, api.TTYSize{}
	k.mu.Unlock()
	return nil
}

// currentLease returns the lease, or "" if there is none.
func (k *keyboard) currentLease() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
}

// dropLease forgets the lease and reports whether it was still the current one.
func (k *keyboard) dropLease(lease string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if lease == "" || k.lease != lease {
		return false
	}
	k.lease, k.queue = "", nil
	return true
}

// recheck verifies in the background that the lease is still this program's.
func (k *keyboard) recheck() { notify(k.renewReady) }

func (k *keyboard) renew(ctx context.Context) {
	lease := k.currentLease()
	if lease == "" {
		return
	}
	_, err := k.client.Hold(ctx, api.SessionHoldParams{
		SessionID: k.session, Holder: k.holder, Lease: lease, TTLMS: leaseTTL.Milliseconds(), Answers: k.answersQueries,
	})
	k.handleRefusal(ctx, lease, err)
}

// handleRefusal reports whether err means that the lease is lost. A lease that
// expired, for example while this machine slept, is acquired again if no other
// client has it.
func (k *keyboard) handleRefusal(ctx context.Context, lease string, err error) bool {
	by, is := leaseHolder(err)
	if !is {
		return false
	}
	k.mu.Lock()
	size := k.size
	k.mu.Unlock()
	if !k.dropLease(lease) {
		return true
	}
	if by == "" && k.take(ctx, false) == nil {
		if size != (api.TTYSize{}) {
			_ = k.resize(ctx, size) // if it fails, the next window change retries
		}
		return true
	}
	k.onError(errLeaseLost{by})
	return true
}

// resize sets the session's terminal to the given size.
func (k *keyboard) resize(ctx context.Context, size api.TTYSize) error {
	lease := k.currentLease()
	if lease == "" {
		return nil
	}
	k.mu.Lock()
	same := k.size == size
	k.mu.Unlock()
	if same {
		return nil
	}
	_, err := k.client.ResizeSession(ctx, api.SessionResizeParams{SessionID: k.session, Rows: size.Rows, Cols: size.Cols, Lease: lease})
	if err != nil {
		k.handleRefusal(ctx, lease, err)
		return err
	}
	k.mu.Lock()
	k.size = size
	k.mu.Unlock()
	return nil
}

// setExec selects the exec that receives input; "" means none. Input queued for
// another one is dropped.
func (k *keyboard) setExec(exec string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exec != exec {
		k.exec, k.queue, k.sent, k.eof = exec, nil, nil, false
	}
}

// takeBack returns the input that no command has read, after the exec has ended:
// the last n bytes that it was sent, and what was still queued. tty says that the
// input went through the line editing of a terminal.
func (k *keyboard) takeBack(n int, tty bool) []byte {
	k.sending.Lock()
	defer k.sending.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	unread := k.sent
	if tty {
		unread = editedInput(unread)
	}
	unread = slices.Concat(unread[max(0, len(unread)-n):], k.queue)
	k.queue, k.sent = nil, nil
	return unread
}

// editedInput returns what is left of typed lines after a terminal has edited
// them: erased characters are gone, and so is all before a key that interrupts.
func editedInput(typed []byte) []byte {
	var left []byte
	for _, c := range typed {
		line := bytes.LastIndexAny(left, "\r\n") + 1
		switch c {
		case interruptKey, byte(DefaultDetachKey), 0x1a:
			left = left[:0]
		case 0x7f: // backspace
			if len(left) > line {
				_, size := utf8.DecodeLastRune(left)
				left = left[:len(left)-size]
			}
		case 0x15: // ctrl-u
			left = left[:line]
		case 0x17: // ctrl-w
			word := bytes.TrimRight(left[line:], " \t")
			left = left[:line+bytes.LastIndexAny(word, " \t")+1]
		case 4, 0x12: // ctrl-d, ctrl-r
		default:
			left = append(left, c)
		}
	}
	return left
}

// enqueue queues input without waiting, and reports whether there was room.
func (k *keyboard) enqueue(b []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue)+len(b) > maxQueuedInput {
		return false
	}
	k.queue = append(k.queue, b...)
	notify(k.sendReady)
	return true
}

// enqueueEOF queues the end of input.
func (k *keyboard) enqueueEOF() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.eof = true
	notify(k.sendReady)
}

// send sends the queued input in one call, as far as it fits.
func (k *keyboard) send(ctx context.Context) {
	k.sending.Lock()
	defer k.sending.Unlock()
	k.mu.Lock()
	params := api.ExecInputParams{ExecID: k.exec, Lease: k.lease, EOF: k.eof}
	n := min(len(k.queue), inputChunkBytes)
	chunk := k.queue[:n:n]
	params.Data, params.Encoding = api.EncodeBytes(chunk)
	k.queue = k.queue[n:]
	if len(k.queue) > 0 {
		params.EOF = false
		notify(k.sendReady)
	} else {
		k.queue, k.eof = nil, false
	}
	k.mu.Unlock()
	if params.ExecID == "" || n == 0 && !params.EOF {
		return
	}
	_, err := k.client.Input(ctx, params)
	k.noteSent(chunk, err)
	if err != nil && ctx.Err() == nil && !k.handleRefusal(ctx, params.Lease, err) {
		k.onError(err)
	}
}

// noteSent remembers what the command was sent. What it was not sent because it
// has ended is queued again, for takeBack.
func (k *keyboard) noteSent(chunk []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if refused, ok := errors.AsType[*api.Error](err); ok {
		sent, _ := refused.Details["bytes"].(float64)
		n := min(int(sent), len(chunk))
		if refused.Code == api.CodeInvalidParams {
			k.queue = slices.Concat(chunk[n:], k.queue)
		}
		chunk = chunk[:n]
	}
	k.sent = append(k.sent, chunk...)
	k.sent = k.sent[max(0, len(k.sent)-maxUnread):]
}

// releaseTimeout bounds calls that are made for others after the user has left.
const releaseTimeout = time.Second

// release returns the lease. If the call fails, the lease expires by itself.
func (k *keyboard) release() {
	lease := k.currentLease()
	if !k.dropLease(lease) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_, _ = k.client.Release(ctx, api.SessionReleaseParams{SessionID: k.session, Lease: lease})
}
