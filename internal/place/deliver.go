package place

import (
	"context"
	_ "embed" // scripts
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// The scripts that run in a place. A POSIX shell such as that of busybox suffices.
var (
	//go:embed scripts/common.sh
	commonScript string
	//go:embed scripts/connect.sh
	connectScript string
	//go:embed scripts/deliver.sh
	deliverScript string
	//go:embed scripts/serve.sh
	serveScript string
	//go:embed scripts/log.sh
	logScript string
	//go:embed scripts/upgrade.sh
	upgradeScript string
	//go:embed scripts/remove.sh
	removeScript string
)

// delivery brings this program to places and starts their daemons. It is safe for
// concurrent use.
type delivery struct {
	programs *programs

	mu    sync.Mutex
	archs map[string]string // of places, by directory; others are taken for ours
}

// newDelivery returns a delivery of this program. A registry needs only one.
func newDelivery() *delivery {
	return &delivery{programs: newPrograms(), archs: map[string]string{}}
}

// directory returns the name of the directory of a place in the place. It does not
// begin with trl, since `rm /tmp/trl*` should not end a place.
func (t target) directory() string { return ".trl-place-" + t.name + "-" + t.id }

// serveFlags returns the flags of a place's daemon, without its socket.
func (t target) serveFlags() []string {
	flags := []string{"--node", t.node}
	if t.ttlMS > 0 {
		flags = append(flags, "--daemon-ttl-ms", strconv.FormatInt(t.ttlMS, 10))
	}
	return flags
}

// open connects to a place: one command looks for the program, starts the daemon and
// becomes the relay. If the place lacks the program, open delivers it and tries again.
func (d *delivery) open(ctx context.Context, t target, box toolbox) (peer.Wire, *api.Hello, error) {
	wire, hello, _, err := d.reach(ctx, t, box)
	return wire, hello, err
}

// reach is open that also says why the place keeps an earlier program.
func (d *delivery) reach(ctx context.Context, t target, box toolbox) (wire peer.Wire, hello *api.Hello, why *refusal, err error) {
	own := sync.OnceValue(func() *program {
		p, _ := d.programs.of(d.arch(t)) // nil if there is none, as on a machine that is not Linux
		return p
	})
	wire, hello, said, err := d.connect(ctx, t, box, own)
	if said.need == nil {
		return wire, hello, nil, err
	}
	next, why := d.needed(t, said.need)
	if next != nil && next != own() { // of another architecture: that may be there
		wire, hello, said, err = d.connect(ctx, t, box, func() *program { return next })
		if said.need == nil {
			return wire, hello, nil, err
		}
	}
	if next != nil {
		there, ok := box.(neighbour)
		near := ok && there.near()
		why = d.deliver(ctx, t, box, next, said.need[2] == "gzip" && !near)
	}
	if why != nil {
		next = nil // an earlier program will do
	}
	wire, hello, said, err = d.connect(ctx, t, box, func() *program { return next })
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case said.need != nil && why != nil:
		err = why
	case said.need != nil:
		err = &refusal{reason: unknown, message: "the program that was delivered is gone", hint: "check what removes files in the place"}
	}
	return wire, hello, why, err
}

// arch returns the architecture of a place, as far as it is known.
func (d *delivery) arch(t target) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if arch := d.archs[t.directory()]; arch != "" {
		return arch
	}
	return runtime.GOARCH
}

// needed returns the program that a place asks for.
func (d *delivery) needed(t target, need []string) (*program, *refusal) {
	arch, system := archOf(need[0]), need[1]
	if system != "Linux" {
		return nil, &refusal{
			reason:  noArch,
			message: fmt.Sprintf("the place runs %q, and sessions need Linux", system),
			hint:    "choose a place that runs Linux",
		}
	}
	p, why := d.programs.of(arch)
	if why == nil {
		d.mu.Lock()
		d.archs[t.directory()] = arch
		d.mu.Unlock()
	}
	return p, why
}

// words is what the scripts said, in lines that begin with trl-place.
type words struct {
	need    []string // machine, system and gzip or plain: the program must be delivered
	start   string   // the directory in which the daemon must be started
	done    string   // delivered, upgraded or removed
	refusal *refusal
}

// parse takes a line of a script. Other lines are those of startup files.
func (w *words) parse(line string) {
	rest, ok := strings.CutPrefix(line, "trl-place ")
	if !ok {
		return
	}
	verb, rest, _ := strings.Cut(rest, " ")
	switch verb {
	case "need":
		if fields := strings.Fields(rest); len(fields) == 3 {
			w.need = fields
		} else {
			w.refusal = &refusal{
				reason: noArch, message: "the place does not say its architecture: it has no uname",
				hint: "install coreutils or busybox in it",
			}
		}
	case "start":
		w.start = rest
	case "delivered", "upgraded", "removed":
		w.done = verb
	case "refuse":
		word, message, _ := strings.Cut(rest, " ")
		w.refusal = &refusal{reason: reason(word), message: message, hint: hints[reason(word)]}
		if w.refusal.hint == "" {
			w.refusal.reason, w.refusal.hint = unknown, hints[unknown]
		}
	}
}

// hints says what a person can do about what the scripts refuse.
var hints = map[reason]string{
	noExec:  "give the place a writable directory in which programs may run, such as `--tmpfs /run:exec` for a container",
	noSpace: "make room in the place",
	noProc:  "mount /proc in the place",
	noArch:  "use the released trl: its programs are static and run on any Linux of their architecture",
	refused: "end the sessions of the place, or remove the place with `trl place remove`",
	unknown: "see the message; `trl doctor` in the place tells more",
}

// connect runs the script that ends as a relay. wanted returns the program that must
// be there; nil means any. said.need is set if it is missing.
func (d *delivery) connect(ctx context.Context, t target, box toolbox, wanted func() *program) (peer.Wire, *api.Hello, words, error) {
	digest := func() string {
		if p := wanted(); p != nil {
			return p.digest
		}
		return ""
	}
	starting, canStart := box.(starter)
	var args []string
	var first func() []byte
	if canStart {
		// The digest follows: it takes a while to compute, as does the start of a command
		// in a container. Over SSH a startup file of the user could read it.
		args = []string{t.directory(), "-", ""}
		first = func() []byte { return []byte(digest() + "\n") }
	} else {
		args = []string{t.directory(), digest(), serveScript}
	}
	relaying, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	var said words
	var started chan error // nil: no start is under way
	argv := box.command(commonScript+connectScript, append(args, t.serveFlags()...)...)
	wire, hello, err := peer.StartCommand(relaying, peer.Command{Argv: argv, Env: t.env, MaxMessage: maxMessage, First: first, Banner: func(line []byte) {
		said.parse(string(line))
		if !canStart || said.start == "" || started != nil {
			return
		}
		// Not earlier, while the relay starts: with docker the two at once took
		// longer than one after the other, on a busy machine with two cores.
		argv := starting.start(serveScript, append([]string{said.start, ""}, t.serveFlags()...)...)
		started = make(chan error, 1)
		go func() {
			_, err := run(ctx, t.env, argv, nil)
			if err != nil {
				stopWaiting() // the relay waits for a daemon
			}
			started <- err
		}()
	}})
	if started != nil {
		if startErr := <-started; startErr != nil && wire == nil {
			err = startErr
		}
	}
	switch {
	case err == nil:
		return wire, hello, said, nil
	case ctx.Err() != nil:
		return nil, nil, words{}, ctx.Err()
	case said.need != nil:
		return nil, nil, said, nil
	case said.refusal != nil:
		return nil, nil, said, said.refusal
	case said.start != "":
		return nil, nil, said, d.explainStart(ctx, t, box, err)
	}
	return nil, nil, said, explain(box, err)
}

// explain returns the refusal for a failed command.
func explain(e explainer, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return &refusal{reason: noEngine, message: err.Error(), hint: "install the program that reaches the place, or add its directory to the daemon's PATH"}
	}
	return e.explain(err, lastWords(err))
}

// explainStart returns the refusal for a daemon that did not start: its log says why.
func (d *delivery) explainStart(ctx context.Context, t target, box toolbox, err error) error {
	log, logErr := run(ctx, t.env, box.command(commonScript+logScript, t.directory()), nil)
	if log = peer.LastWords([]byte(log)); logErr != nil || log == "" {
		return explain(box, err)
	}
	return &refusal{reason: unknown, message: "the daemon in the place did not start: " + log, hint: hints[unknown]}
}

// deliver sends a program to the place and has it replace that of a running daemon.
func (d *delivery) deliver(ctx context.Context, t target, box toolbox, p *program, compressed bool) *refusal {
	packed := "plain"
	if compressed {
		packed = "gzip"
	}
	argv := box.command(commonScript+deliverScript, t.directory(), p.digest, strconv.FormatInt(p.size, 10), packed)
	stdin := produced(func(w io.Writer) error { return p.send(w, compressed) })
	defer stdin.Close()
	said, err := d.tell(ctx, t, box, argv, stdin)
	switch {
	case said.done == "delivered":
		return nil
	case err == nil:
		err = errors.New("the command that delivers the program ended without a word")
	}
	if why, ok := errors.AsType[*refusal](err); ok {
		return why
	}
	return &refusal{reason: unknown, message: err.Error(), hint: hints[unknown]}
}

// tell runs a script to its end and returns what it said. The error is a *refusal or
// that of ctx.
func (d *delivery) tell(ctx context.Context, t target, box toolbox, argv []string, stdin io.Reader) (words, error) {
	out, err := run(ctx, t.env, argv, stdin)
	var said words
	for line := range strings.Lines(out) {
		said.parse(strings.TrimRight(line, "\r\n"))
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case said.refusal != nil:
		err = said.refusal
	case err != nil:
		err = explain(box, err)
	}
	return said, err
}

// remove ends the daemon of a place with all its sessions, and removes what was
// delivered.
func (d *delivery) remove(ctx context.Context, t target, box toolbox) error {
	said, err := d.tell(ctx, t, box, box.command(commonScript+removeScript, t.directory()), nil)
	if err == nil && said.done == "" {
		err = &refusal{reason: unknown, message: "the command that removes the place ended without a word", hint: hints[unknown]}
	}
	return err
}

// upgrade delivers this program to a place that has another, and has the daemon there
// replace itself by it. Unlike open it fails if the daemon does not.
func (d *delivery) upgrade(ctx context.Context, t target, box toolbox) error {
	wire, hello, why, err := d.reach(ctx, t, box)
	if err != nil {
		return err
	}
	_ = wire.Close() // it is not needed
	if why == nil {
		var p *program
		if p, why = d.programs.of(d.arch(t)); why == nil && hello.Digest == p.digest {
			return nil
		}
	}
	if why != nil {
		return why
	}
	_, err = d.tell(ctx, t, box, box.command(commonScript+upgradeScript, t.directory()), nil)
	return err
}
