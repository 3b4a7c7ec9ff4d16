package must

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	upgradedSessions = 500
	upgradedRunning  = 50
	upgrades         = 4
	// upgradePause is how long a client may have to wait, short enough not to
	// look like an outage. On a machine so slow that an ordinary call takes more
	// than a hundredth of it, the limit is upgradeCalls such calls, of the same
	// client in the same run.
	upgradePause = time.Second
	upgradeCalls = 100
)

// TestMustUpgrade replaces the daemon's binary repeatedly, while commands stream
// and one client runs short ones.
func TestMustUpgrade(t *testing.T) {
	r, binary := startInstalled(t, "--max-sessions", fmt.Sprint(upgradedSessions+1), "--grace-ms", "1000")
	ids := make([]string, upgradedSessions)
	if err := inParallel(len(ids), 16, func(i int) error {
		s, err := r.client.CreateSession(r.ctx, api.SessionCreateParams{Shell: []string{"dash", "bash"}[i%2]})
		if err != nil {
			return err
		}
		ids[i] = s.SessionID
		_, err = r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: fmt.Sprintf("cd /usr; n=%d", i)}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	var sent [upgradedRunning]int64
	for i := range upgradedRunning {
		f := r.newFeed(i, 500)
		wg.Go(func() {
			n, err := f.streamThrough(r, ids[i], over)
			sent[i] = n
			if err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	pauses := make(chan []time.Duration)
	go func() { pauses <- r.longestCalls(over) }()

	var told []string
	for i := range upgrades {
		r.install(i%2 == 0, binary)
		out, err := r.command(binary, "upgrade").CombinedOutput()
		told = append(told, strings.TrimSpace(string(out)))
		want := fmt.Sprintf("%d sessions continue", upgradedSessions+1)
		if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "has taken over from "+trltest.OtherVersion) == (i%2 == 0) {
			t.Errorf("upgrade %d: %s, %v", i, out, err)
		}
	}
	close(over)
	wg.Wait()
	longest := <-pauses
	if err := inParallel(len(ids), 16, func(i int) error {
		c, err := client.Dial(r.ctx, r.Socket)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: ids[i], Command: `echo "$PWD $n"`}})
		if err != nil || strings.TrimSpace(res.Stdout) != fmt.Sprint("/usr ", i) {
			return fmt.Errorf("session %d wrote %q, %w", i, res.Stdout, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	var bytes int64
	for _, n := range sent {
		bytes += n
	}
	usual := longest[len(longest)-1]
	if most := max(upgradePause, upgradeCalls*usual); longest[0] > most {
		t.Errorf("a client waited %s, want at most %s; its median call took %s", longest[0], most, usual)
	}
	gauge.Figures(t, "%d upgrades under %d sessions, %d of them streaming (%d KiB in all): every byte once, no session lost; the longest `exec.run true` took %s, the median %s",
		upgrades, upgradedSessions, upgradedRunning, bytes>>10, longest[0].Round(time.Millisecond), usual.Round(10*time.Microsecond))
	t.Log(strings.Join(told, "\n"))
	r.client = r.dial()
	r.stop()
}

// startInstalled starts a daemon from a binary that can be replaced.
func startInstalled(t *testing.T, args ...string) (*rig, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it measures, and needs the machine for itself")
	}
	path := filepath.Join(t.TempDir(), "trl")
	binary, err := trltest.Binary()
	if err == nil {
		err = trltest.Install(binary, path)
	}
	if err == nil {
		_, err = trltest.OtherBinary() // before anything is measured
	}
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, trltest.Config{Binary: path, Args: args}), path
}

// install installs one of the two binaries.
func (r *rig) install(other bool, path string) {
	r.t.Helper()
	find := trltest.Binary
	if other {
		find = trltest.OtherBinary
	}
	binary, err := find()
	if err == nil {
		err = trltest.Install(binary, path)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// command returns a trl command that talks to the daemon.
func (r *rig) command(binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.ctx, binary, args...)
	cmd.Env = append(trltest.Environ(r.Dir), "TRL_SOCKET="+r.Socket)
	return cmd
}

// feed is the input that a command copies, determined by the test byte by byte.
type feed struct {
	path string
	code int
	line int // maximum length of a line
}

func (r *rig) newFeed(i, line int) *feed {
	r.t.Helper()
	f := &feed{path: filepath.Join(r.t.TempDir(), "feed"), code: 10 + i, line: line}
	if err := unix.Mkfifo(f.path, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// streamThrough streams a command that copies the feed until it is over, and
// compares every byte.
func (f *feed) streamThrough(r *rig, session string, over <-chan struct{}) (int64, error) {
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: time.Minute})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	st, err := c.Stream(r.ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: session, Command: fmt.Sprintf("cat %s; (exit %d)", f.path, f.code)}})
	if err != nil {
		return 0, err
	}
	defer st.Close()
	written := make(chan []byte, 1)
	go func() { written <- f.write(over) }()
	hash, next := sha256.New(), int64(0)
	for chunk, err := range st.Chunks() {
		if err != nil {
			return next, fmt.Errorf("after %d bytes: %w", next, err)
		}
		data, err := chunk.Content()
		if err != nil || chunk.Offset != next || chunk.Type == api.ChunkGap {
			return next, fmt.Errorf("chunk %s at %d, want it at %d (%w)", chunk.Type, chunk.Offset, next, err)
		}
		next = chunk.Next
		hash.Write(data)
	}
	if res := st.Result(); res == nil || res.ExitCode == nil || *res.ExitCode != f.code {
		return next, fmt.Errorf("it ended with %+v", res)
	}
	if !bytes.Equal(hash.Sum(nil), <-written) {
		return next, errors.New("the received bytes differ from those written")
	}
	return next, nil
}

// write writes numbered lines until over is closed, and returns their hash.
func (f *feed) write(over <-chan struct{}) []byte {
	hash := sha256.New()
	to, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	defer to.Close()
	both := io.MultiWriter(to, hash)
	for i := 0; ; i++ {
		select {
		case <-over:
			return hash.Sum(nil)
		case <-time.After(3 * time.Millisecond):
		}
		if _, err := fmt.Fprintf(both, "%d %s\n", i, strings.Repeat("x", i*37%f.line)); err != nil {
			return nil
		}
	}
}

// longestCalls runs short commands until over is closed, and returns how long
// they took, the longest first; the last is the median.
func (r *rig) longestCalls(over <-chan struct{}) []time.Duration {
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: time.Minute})
	if err != nil {
		r.t.Error(err)
		return []time.Duration{0}
	}
	defer c.Close()
	s, err := c.CreateSession(r.ctx, api.SessionCreateParams{Shell: "dash"})
	if err != nil {
		r.t.Error(err)
		return []time.Duration{0}
	}
	var took []time.Duration
	longest := time.Duration(0)
	for {
		begin := time.Now()
		if _, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true"}}); err != nil {
			r.t.Errorf("a short command: %v", err)
		}
		took = append(took, time.Since(begin))
		longest = max(longest, took[len(took)-1])
		select {
		case <-over:
			return []time.Duration{longest, gauge.Median(took)}
		default:
		}
	}
}

// TestMustKeepWhatItHas requests restarts that must be refused.
func TestMustKeepWhatItHas(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	r, binary := startInstalled(t, "--config", config)
	s := r.create(api.SessionCreateParams{})
	r.run(s, "n=5")
	pid := daemonOf(r.PID)
	refused := 0
	refuse := func(why string) {
		t.Helper()
		refused++
		if err := unix.Kill(r.PID, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := eventually(trltest.Patience, func() error {
			if n := strings.Count(r.Log(), "upgrade refused, nothing has changed"); n != refused || !strings.Contains(r.Log(), why) {
				return fmt.Errorf("refused %d times, want %d because of %q", n, refused, why)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if res := r.run(s, "echo $n"); res.Stdout != "5\n" || daemonOf(r.PID) != pid {
			t.Errorf("the session wrote %q, the daemon's pid is %d and was %d", res.Stdout, daemonOf(r.PID), pid)
		}
	}
	write("max_sesions = 5")
	refuse("max_sesions")
	write(`http = "127.0.0.1:0"`)
	refuse("no valid token")
	write("")
	for why, text := range map[string]string{
		"exec format error":                   "no program",
		"out of order":                        "#!/bin/sh\necho out of order >&2; exit 1",
		"does not say which formats it reads": "#!/bin/sh\necho hello",
		"formats 7 to 9":                      "#!/bin/sh\necho trl-can-read 7 9 v77",
	} {
		if err := os.WriteFile(binary+".new", []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(binary+".new", binary); err != nil {
			t.Fatal(err)
		}
		refuse(why)
	}
	if err := os.Remove(binary); err != nil {
		t.Fatal(err)
	}
	refuse("no such file")
	r.install(true, binary)
	if err := unix.Kill(pid, unix.SIGHUP); err != nil { // the daemon accepts it too
		t.Fatal(err)
	}
	if err := eventually(trltest.Patience, func() error {
		if now := daemonOf(r.PID); now == pid || now == 0 {
			return errors.New("no new daemon")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.client = r.dial()
	if res := r.run(s, "echo $n"); res.Stdout != "5\n" {
		t.Errorf("after the restart the session wrote %q", res.Stdout)
	}
	r.stop()
}

// TestMustGoOnUnderOtherLimits changes the quota of a journal while a command
// writes more than that.
func TestMustGoOnUnderOtherLimits(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.toml")
	limits := func(memory, quota int) {
		t.Helper()
		text := fmt.Sprintf("exec_memory_bytes = %d\nexec_quota_bytes = %d\n", memory, quota)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limits(64<<10, 256<<20)
	r := start(t, "--config", config)
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		f, s := r.newFeed(i, 4000), r.create(api.SessionCreateParams{})
		wg.Go(func() {
			n, err := f.streamThrough(r, s.SessionID, over)
			if err != nil || n == 0 {
				t.Errorf("session %d: %d bytes, %v", i, n, err)
			}
		})
	}
	// A command whose input has ended must not get another's input.
	ended := r.create(api.SessionCreateParams{})
	res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: ended.SessionID, Command: "cat; sleep 1000", StdinOpen: true}, YieldMS: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Input(r.ctx, api.ExecInputParams{ExecID: res.ExecID, EOF: true}); err != nil {
		t.Fatal(err)
	}
	for _, next := range [][2]int{{1 << 10, 1 << 20}, {1 << 20, 64 << 20}, {128 << 10, 300 << 20}} {
		limits(next[0], next[1])
		pid := daemonOf(r.PID)
		if err := syscall.Kill(r.PID, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if err := eventually(trltest.Patience, func() error {
			ctx, cancel := context.WithTimeout(r.ctx, time.Second)
			defer cancel()
			if now := daemonOf(r.PID); now == pid || now == 0 {
				return errors.New("no new daemon")
			}
			return trltest.Ping(ctx, r.Socket)
		}); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	wg.Wait()
	for _, loss := range []string{"lost", "cannot restore"} {
		if strings.Contains(r.Log(), loss) {
			t.Error("the log reports a loss")
		}
	}
	r.client = r.dial()
	r.stop()
}
