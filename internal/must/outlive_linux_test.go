package must

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// outlived returns how many sessions write how many bytes, and how often their
// daemon is killed meanwhile.
func outlived() (sessions, kills int, size int64) {
	if os.Getenv("TRL_LONG") == "1" {
		return 64, 1000, 64 << 20
	}
	return 16, 60, 24 << 20
}

// outlivePatience is how long clients retry: with daemons that serve for moments,
// and many clients, one of them may wait for long.
const outlivePatience = 20 * time.Minute

// TestMustOutliveTheDaemon kills the daemon repeatedly while sessions, half of
// them on terminals, write random bytes as fast as they can and clients stream
// them, and others do other typical work. It was seen to fail when the ends of a
// command's input were released before that was persisted.
func TestMustOutliveTheDaemon(t *testing.T) {
	sessions, kills, size := outlived()
	rnd := seeded(t)
	r := startWith(t, trltest.Config{Args: plenty})
	file, want := randomFile(t, rnd, size)
	enough := make(chan struct{})
	go r.killDaemons(rnd, kills, enough)
	began := time.Now()
	var wg sync.WaitGroup
	var commands atomic.Int64
	for i := range sessions {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				err = r.streamThrough(i/2, file, want, size)
			} else {
				var n int
				n, err = r.workThrough(i/2, enough)
				commands.Add(int64(n))
			}
			if err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	<-enough
	took := time.Since(began)
	gauge.Figures(t, "%d sessions, half of them on terminals, each wrote %d MiB, and %d others ran %d commands, while the daemon was killed %d times with -9: every byte once, every exit status right, no session lost; %s",
		sessions/2, size>>20, sessions/2, commands.Load(), kills, took.Round(time.Millisecond))
	r.reconnect()
	r.stop()
}

// streamThrough creates a session and streams a command that writes the file.
func (r *rig) streamThrough(i int, file, want string, size int64) error {
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: outlivePatience})
	if err != nil {
		return err
	}
	defer c.Close()
	params := api.SessionCreateParams{Shell: outliveShells[i/2%len(outliveShells)]}
	command := "cat " + file
	if i%2 == 1 {
		params.TTY = &api.TTYSize{Rows: 24, Cols: 80}
		command = "stty raw -echo; " + command
	}
	s, err := r.createThrough(c, params)
	if err != nil {
		return err
	}
	st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: fmt.Sprintf("n=%d; %s; exit %d", i, command, 10+i%100)}})
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	defer st.Close()
	hash, next := sha256.New(), int64(0)
	for chunk, err := range st.Chunks() {
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", next, err)
		}
		data, err := chunk.Content()
		if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
			return fmt.Errorf("chunk %s at %d of %d bytes, want it at %d (%w)", chunk.Type, chunk.Offset, len(data), next, err)
		}
		next = chunk.Next
		hash.Write(data)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want || next != size {
		return fmt.Errorf("received %d bytes with hash %s, want %d with %s", next, got, size, want)
	}
	if res := st.Result(); res == nil || res.ExitCode == nil || *res.ExitCode != 10+i%100 || res.RolledBack {
		return fmt.Errorf("it ended with %+v", res)
	}
	res, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: `echo "n is $n"`}})
	if err != nil || strings.TrimSpace(res.Stdout) != fmt.Sprint("n is ", i) {
		return fmt.Errorf("afterwards the session writes %q, %w", res.Stdout, err)
	}
	return nil
}

// outliveShells are the shells of these sessions.
var outliveShells = []string{"dash", "bash", "zsh", "dash"}

// createThrough creates a session: the client does not repeat an interrupted
// create by itself.
func (r *rig) createThrough(c *client.Client, params api.SessionCreateParams) (*api.Session, error) {
	for {
		s, err := c.CreateSession(r.ctx, params)
		if !outcomeUnknown(err) {
			return s, err
		}
	}
}

// outcomeUnknown reports whether a failed call may or may not have had its
// effect.
func outcomeUnknown(err error) bool {
	return errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrNoDaemon)
}

// killDaemons kills the daemon that many times at random moments, and then closes
// enough.
func (r *rig) killDaemons(rnd *rand.Rand, kills int, enough chan<- struct{}) {
	defer close(enough)
	for n := 0; n < kills && r.ctx.Err() == nil; {
		// Some must be killed while they adopt, and some while they work.
		most := 30
		if rnd.IntN(2) == 0 && trltest.Ping(r.ctx, r.Socket) == nil {
			most = 150
		}
		time.Sleep(time.Duration(rnd.IntN(most)) * time.Millisecond) // pace: a random moment
		if pid := daemonOf(r.PID); pid != 0 && killed(pid) {
			n++
		}
	}
}

// killed sends SIGKILL to a process, and reports whether it existed.
func killed(pid int) bool { return unix.Kill(pid, unix.SIGKILL) == nil }

// daemonOf returns the pid of the holder's daemon, 0 if there is none now.
func daemonOf(holder int) int { return childOf(holder, "be-daemon") }

// cleanerOf returns the pid of the holder's cleaner.
func cleanerOf(holder int) int { return childOf(holder, "be-cleaner") }

// childOf returns the child that was started with that argument.
func childOf(holder int, word string) int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", holder))
	if err != nil {
		return 0
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			pid, _ := strconv.Atoi(child)
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.Contains(string(line), "\x00"+word+"\x00") {
				return pid
			}
		}
	}
	return 0
}

// TestMustShowTheScreenAgain kills the daemon while terminals show something: the
// screens of the next daemon must be the same, including the scrollback, in the
// middle of a program that paints and after the end of the session.
func TestMustShowTheScreenAgain(t *testing.T) {
	r := startWith(t, trltest.Config{Args: plenty})
	lines := func(from, to int) string { return fmt.Sprintf("seq -f 'line %%g' %d %d", from, to) }
	size := &api.TTYSize{Rows: 24, Cols: 80}
	sessions := map[string]*api.Session{}
	for name, commands := range map[string][]string{
		"nothing": nil,
		"short":   {"echo hello", "printf '\\033[31mred\\033[0m'"},
		"long":    {lines(1, 400_000), "echo after"},
		"painted": {lines(1, 50), "printf '\\033[?1049h\\033[2J\\033[5;5Hpainted\\033[7m'"},
		"ended":   {lines(1, 30), "printf '\\033]0;a title\\a'"},
	} {
		s := r.create(api.SessionCreateParams{Shell: "bash", TTY: size})
		for _, command := range commands {
			r.run(s, command)
		}
		sessions[name] = s
	}
	resized := r.create(api.SessionCreateParams{Shell: "dash", TTY: size})
	r.run(resized, lines(1, 20))
	if _, err := r.client.ResizeSession(r.ctx, api.SessionResizeParams{SessionID: resized.SessionID, Rows: 10, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	r.run(resized, "stty size; "+lines(1, 20))
	sessions["resized"] = resized
	if _, err := r.client.DestroySession(r.ctx, api.SessionDestroyParams{SessionID: sessions["ended"].SessionID}); err != nil {
		t.Fatal(err)
	}
	look := func(name string) *api.SessionScreenResult {
		t.Helper()
		screen, err := r.client.Screen(r.ctx, api.SessionScreenParams{SessionID: sessions[name].SessionID, Format: api.ScreenANSI, Scrollback: 1000})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return screen
	}
	before := map[string]*api.SessionScreenResult{}
	for name := range sessions {
		before[name] = look(name)
	}
	for range 2 {
		r.killDaemon()
		for name, want := range before {
			if got := look(name); !reflect.DeepEqual(got, want) {
				t.Errorf("the screen of %q is\n%q\nand was\n%q", name, got.Text, want.Text)
			}
		}
	}
	r.stop()
}

// killDaemon kills the daemon, and returns when another one answers.
func (r *rig) killDaemon() {
	r.t.Helper()
	pid := daemonOf(r.PID)
	if pid == 0 || unix.Kill(pid, unix.SIGKILL) != nil {
		r.t.Fatal("there is no daemon to kill")
	}
	r.client.Close()
	if err := eventually(trltest.Patience, func() error {
		if now := daemonOf(r.PID); now == 0 || now == pid {
			return errors.New("the daemon was not restarted")
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	r.client = r.dial()
}
