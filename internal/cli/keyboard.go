package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

const (
	// holdTTL is how long a session waits for a person whose machine or line
	// has died: as long as a lost connection is looked for, a few times over.
	leaseTTL = 15 * time.Second
	// renewal leaves two attempts more before the hold ends.
	renewInterval = leaseTTL / 3
	// maxTyped is how much waits for a program that does not read: a large
	// paste. What comes after it is not taken.
	maxQueuedInput = 4 << 20
)

// keyboard is the keyboard of a session: whether this program holds it, and
// what is typed on it. It is safe for concurrent use.
type keyboard struct {
	client         *client.Client
	session        string
	holder         string // who this is, for others
	answersQueries bool   // the person's terminal answers queries itself
	// trouble is told what kept something from being typed, or that the hold is
	// lost (errNotHeld). It is called by a goroutine of the keyboard's own.
	onError func(error)

	mu         sync.Mutex
	lease      string      // "": not held
	size       api.TTYSize // that the session was given with this hold; zero: none
	exec       string      // whom to type to; "": nobody
	queue      []byte      // typed and not yet sent
	eof        bool        // after that, the end of input
	sendReady  chan struct{}
	renewReady chan struct{}
}

// errNotHeld says that the hold is another's now, or nobody's.
type errLeaseLost struct{ by string } // by "": it ran out

func (e errLeaseLost) Error() string {
	if e.by == "" {
		return "the hold of the keyboard has ended"
	}
	return e.by + " has taken the keyboard"
}

// heldBy turns the daemon's refusal into who is the reason for it.
func leaseHolder(err error) (by string, held bool) {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.CodeSessionHeld {
		return "", false
	}
	by, _ = refused.Details["holder"].(string)
	return visible(by), true
}

func newKeyboard(c *client.Client, session string) *keyboard {
	return &keyboard{
		client: c, session: session, holder: holderName(), onError: func(error) {},
		sendReady: make(chan struct{}, 1), renewReady: make(chan struct{}, 1),
	}
}

// holderName says who sits here, and at which terminal, as `who` shows it.
func holderName() string {
	name := "somebody"
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
	return fmt.Sprintf("%.*s@%.*s %s", room, visible(name), room, visible(host), where)
}

// run sends what is typed, and keeps the hold, until ctx is done.
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

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take takes the hold, from whoever has it if force.
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

// held returns the lease; "" if there is none.
func (k *keyboard) currentLease() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
}

// lose notes that the hold of that lease is no more, and whether it still was.
func (k *keyboard) dropLease(lease string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if lease == "" || k.lease != lease {
		return false
	}
	k.lease, k.queue = "", nil
	return true
}

// recheck asks whether the hold is still this program's.
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

// refused looks whether an error means that the hold is lost. One that ran out,
// as while this machine slept, is taken again if nobody else has.
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
			_ = k.resize(ctx, size) // else the next change of the window does it
		}
		return true
	}
	k.onError(errLeaseLost{by})
	return true
}

// resize gives the session's terminal the size of the person's.
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

// to says whom to type to; "" is nobody. What was typed for another is dropped.
func (k *keyboard) setExec(exec string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exec != exec {
		k.exec, k.queue, k.eof = exec, nil, false
	}
}

// press types. It does not wait, and says whether there is room for it.
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

// end types the end of input, after what was typed before.
func (k *keyboard) enqueueEOF() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.eof = true
	notify(k.sendReady)
}

// send sends what was typed since the last time, in one call.
func (k *keyboard) send(ctx context.Context) {
	k.mu.Lock()
	params := api.ExecInputParams{ExecID: k.exec, Lease: k.lease, EOF: k.eof}
	n := min(len(k.queue), inputChunkBytes)
	params.Data, params.Encoding = api.EncodeBytes(k.queue[:n])
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
	if err != nil && ctx.Err() == nil && !k.handleRefusal(ctx, params.Lease, err) {
		k.onError(err)
	}
}

// partingTime bounds what is done for others after a person has left.
const releaseTimeout = time.Second

// release gives the keyboard back. If it can't, it ends by itself.
func (k *keyboard) release() {
	lease := k.currentLease()
	if !k.dropLease(lease) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_, _ = k.client.Release(ctx, api.SessionReleaseParams{SessionID: k.session, Lease: lease})
}
