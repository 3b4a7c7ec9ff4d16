package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/process"
)

// These tests kill the process that owns a driver and a shell, with SIGKILL and at
// any moment, and let another adopt them. There are three processes: the test; a
// holder; and under it one daemon after the other, each of which ends itself, after
// a while or at some step.

// roleEnv says which part a process of the test binary plays, and how:
// {holder,daemon} shell seed kills directory.
const roleEnv = "TRL_SHELL_ROLE"

// part is what a process of the test binary plays.
type part struct {
	role, shell string
	seed        uint64
	kills       int
	dir         string
}

func (p part) encode() string {
	return fmt.Sprintf("%s=%s %s %d %d %s", roleEnv, p.role, p.shell, p.seed, p.kills, p.dir)
}

// playPart is for TestMain: it does not return in a process that plays a part.
// The variable is in the environment once, and is taken out of it first, so that
// no process started from here plays a part too.
func playPart() {
	text, ok := os.LookupEnv(roleEnv)
	if !ok {
		return
	}
	var p part
	err := os.Unsetenv(roleEnv)
	if err == nil {
		_, err = fmt.Sscan(text, &p.role, &p.shell, &p.seed, &p.kills, &p.dir)
	}
	code := 1
	switch {
	case err != nil:
	case p.role == "holder":
		p.role = "daemon"
		code, err = holder.Run(holder.Config{Argv: []string{"daemon"}, Env: append(os.Environ(), p.encode())})
	case p.role == "daemon":
		beDaemon(p) // it reports its end to the holder
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, p.role+":", err)
	}
	os.Exit(code)
}

func TestKills(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 10
	}
	if os.Getenv("TRL_LONG") == "1" {
		kills = 400
	}
	each(t, func(t *testing.T, name string) {
		t.Parallel()
		p := part{role: "holder", shell: name, seed: rand.Uint64(), kills: kills, dir: t.TempDir()}
		// The holder restarts a daemon that fails forever.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+time.Duration(kills)*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe")
		cmd.Env = append(os.Environ(), p.encode())
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Run(); err != nil {
			t.Errorf("seed %d: %v\n%s", p.seed, err, said.String())
			return
		}
		t.Log(said.String())
	})
}

// killableKeeper is a keeper and a ledger that kill the process at some step.
type killableKeeper struct {
	*holder.Client
	*ledger.Ledger
	left atomic.Int64 // steps until the process is killed; negative means never
}

func (m *killableKeeper) step() {
	if m.left.Load() > 0 && m.left.Add(-1) == 0 {
		die()
	}
}

func die() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func (m *killableKeeper) Keep(fd int) (holder.Slot, error) {
	m.step()
	defer m.step()
	return m.Client.Keep(fd)
}

func (m *killableKeeper) Drop(slot holder.Slot) {
	m.step()
	defer m.step()
	m.Client.Drop(slot)
}

func (m *killableKeeper) Take(slot holder.Slot) (int, error) {
	m.step()
	return m.Client.Take(slot)
}

func (m *killableKeeper) Put(key string, value []byte) {
	m.step()
	if err := m.Ledger.Put(key, value); err != nil {
		panic(err)
	}
	m.step()
}

func (m *killableKeeper) number(key string) int {
	value, _ := m.Get(key)
	n, _ := strconv.Atoi(string(value))
	return n
}

// Keys of the ledger. A command is begun, and then has a result.
const (
	livesKey  = "life" // how many daemons there were
	treeKey   = "tree"
	driverKey = "driver"
	shellKey  = "shell"
	begunKey  = "begun/"
	resultKey = "result/"
)

// beDaemon runs one daemon. The last one checks what all of them did.
func beDaemon(p part) {
	held, err := holder.Connect(holder.FD)
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		os.Exit(1)
	}
	go func() {
		<-held.Done() // the test has killed the holder
		os.Exit(1)
	}()
	code := 0
	if err := runDaemon(p, held); err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		code = 1
	}
	_ = held.AnnounceExit(code, holder.Stop)
	os.Exit(code)
}

func runDaemon(p part, held *holder.Client) error {
	m := &killableKeeper{Client: held}
	m.left.Store(-1)
	var err error
	if slices.Contains(held.Hello().Slots, holder.Root) {
		m.Ledger, err = ledger.Open(held)
	} else {
		m.Ledger, err = ledger.New(held)
	}
	if err != nil {
		return err
	}
	lives := m.number(livesKey)
	m.Put(livesKey, []byte(strconv.Itoa(lives+1)))
	first, last := lives == 0, lives >= p.kills
	rng := rand.New(rand.NewPCG(p.seed, uint64(lives)))
	switch {
	case first || last: // the first opens the shell, and is killed while it runs commands
	case rng.IntN(2) == 0:
		m.left.Store(1 + rng.Int64N(60))
	default:
		time.AfterFunc(time.Duration(rng.IntN(30_000))*time.Microsecond, die)
	}
	d, err := openDriven(p, m)
	if err != nil {
		return fmt.Errorf("life %d: %w", lives, err)
	}
	if first && !last {
		m.left.Store(10)
	}
	next := 0
	for m.has(resultKey, next) {
		next++
	}
	for end := next + 16; !last || next < end; next++ {
		if err := d.runOne(p, m, next); err != nil {
			return fmt.Errorf("life %d, command %d: %w", lives, next, err)
		}
	}
	if err := d.end(m); err != nil {
		return err
	}
	if err := check(p, m, next); err != nil {
		return err
	}
	fmt.Printf("%d commands, %d kills\n", next, lives)
	return nil
}

func (m *killableKeeper) has(key string, n int) bool {
	_, ok := m.Get(key + strconv.Itoa(n))
	return ok
}

// daemonParts is what a daemon owns.
type daemonParts struct {
	host   *process.Host
	tree   *process.Tree
	driver *Driver
	shell  *Shell
}

// openDriven opens a shell, or adopts that of the daemon before.
func openDriven(p part, m *killableKeeper) (d daemonParts, err error) {
	if d.host, err = process.NewHost(process.Config{NoCgroup: true, Holder: m.Client}); err != nil {
		return d, err
	}
	program, ok := Find(p.shell)
	if !ok {
		return d, errors.New("no such shell")
	}
	cfg := Config{
		Program: program, Dir: "/", Env: []string{"PATH=" + os.Getenv("PATH")},
		Save: func(state []byte) { m.Put(shellKey, state) },
	}
	state, again := m.Get(shellKey)
	if !again {
		if d.tree, err = d.host.NewTree("kills"); err != nil {
			return d, err
		}
		cfg.Tree = d.tree
		m.Put(treeKey, []byte(strconv.Itoa(int(d.tree.Number()))))
		if d.driver, err = OpenDriver(DriverConfig{Keeper: m}); err != nil {
			return d, err
		}
		m.Put(driverKey, d.driver.State())
		d.shell, err = d.driver.Open(context.Background(), cfg)
		return d, err
	}
	d.tree = d.host.AdoptTree("kills", uint32(m.number(treeKey)))
	cfg.Tree = d.tree
	saved, _ := m.Get(driverKey)
	if d.driver, err = AdoptDriver(DriverConfig{Keeper: m}, saved); err != nil {
		return d, fmt.Errorf("adopt the driver: %w", err)
	}
	if d.shell, err = d.driver.Adopt(cfg, state); err != nil {
		return d, fmt.Errorf("adopt the shell: %w", err)
	}
	needed := append(d.driver.Slots(), holder.Root)
	for _, slot := range m.Hello().Slots {
		if !slices.Contains(needed, slot) {
			m.Drop(slot)
		}
	}
	d.driver.Start()
	return d, nil
}

// runOne runs or resumes the i-th command.
func (d daemonParts) runOne(p part, m *killableKeeper, i int) error {
	run := d.shell.Run
	if m.has(begunKey, i) {
		run = d.shell.Resume
	} else {
		m.Put(begunKey+strconv.Itoa(i), nil)
	}
	res, err := run(commandFor(p.shell, p.dir, i))
	if err != nil {
		return err
	}
	value, err := json.Marshal(res)
	if err != nil {
		return err
	}
	m.Put(resultKey+strconv.Itoa(i), value)
	return nil
}

// end releases everything. The holder must hold nothing then.
func (d daemonParts) end(m *killableKeeper) error {
	d.shell.Abandon()
	if left := d.tree.Kill(time.Now().Add(5 * time.Second)); len(left) > 0 {
		return fmt.Errorf("left: %+v", left)
	}
	if err := errors.Join(d.shell.Close(), d.driver.Close(), d.host.Close(), m.Sync()); err != nil {
		return err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.Hello().PID))
	for _, e := range entries {
		if n, _ := strconv.Atoi(e.Name()); n > int(holder.Root) {
			err = errors.Join(err, fmt.Errorf("slot %d is left", n))
		}
	}
	return err
}

// check compares what the commands did with their results.
func check(p part, m *killableKeeper, commands int) error {
	b, err := os.ReadFile(filepath.Join(p.dir, "counter"))
	if err != nil {
		return err
	}
	ran := map[int]string{}
	for line := range strings.Lines(string(b)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		i, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		if was, twice := ran[i]; twice {
			return fmt.Errorf("command %d ran twice: %q, %q", i, was, rest)
		}
		ran[i] = rest
	}
	n := 0
	after := map[string]int{"": 0}
	for i := range commands {
		c := commandFor(p.shell, p.dir, i)
		var res Result
		value, _ := m.Get(resultKey + strconv.Itoa(i))
		if err := json.Unmarshal(value, &res); err != nil {
			return err
		}
		n++
		if want := fmt.Sprintf("%d %d F /usr", n, i); ran[i] != want {
			return fmt.Errorf("command %d (%s): the shell's state was %q, not %q; %+v", i, c.Text, ran[i], want, res)
		}
		after[strconv.Itoa(i)] = n
		want := wantFor(i)
		if p.shell == "ash" && i%8 == 3 {
			want.RolledBack = res.RolledBack // an exit copy leaves no exit copy
		}
		if res.RolledBack {
			was, known := after[res.RolledBackTo]
			if !known {
				return fmt.Errorf("command %d was rolled back to %q", i, res.RolledBackTo)
			}
			n = was
			want.RolledBackTo = res.RolledBackTo
			after[strconv.Itoa(i)] = n
		}
		if res != want {
			return fmt.Errorf("command %d (%s): %+v, want %+v", i, c.Text, res, want)
		}
	}
	return nil
}

// commandFor returns the i-th command. Each counts itself in a variable of the shell,
// and writes the state that it finds; f and the directory come from the first.
func commandFor(name, dir string, i int) Command {
	id := strconv.Itoa(i)
	counter := filepath.Join(dir, "counter")
	text := `N=$((N+1)); echo "` + id + ` $N $X $(f) $PWD" >>` + counter
	c := Command{ID: id, Mark: uint32(i + 1), Env: []string{"X=" + id}, Stdout: "/dev/null", Stderr: "/dev/null"}
	if i == 0 {
		text = "f() { echo F; }; cd /usr; " + text
	}
	switch i % 8 {
	case 1:
		text += "; (exit 7)"
	case 2:
		text += "; sleep 0.02"
	case 3:
		text += "; exit 3"
	case 4:
		text += "; sleep 0.01; (exit 9)"
	case 6:
		text += "; sh -c 'kill -9 $PPID'; sleep 1"
	}
	c.Text = text
	return c
}

func wantFor(i int) Result {
	switch i % 8 {
	case 1:
		return Result{Code: 7}
	case 3:
		return Result{Code: 3, Ending: ShellExited}
	case 4:
		return Result{Code: 9}
	case 6:
		return Result{Code: 137, Signal: unix.SIGKILL, Ending: ShellDied, RolledBack: true}
	}
	return Result{}
}
