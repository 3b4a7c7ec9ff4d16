package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestMain(m *testing.M) { trltest.Main(m) }

// TestStories runs the scripts in testdata/script against the real binary, each
// with its own directory and socket.
//
// In addition to testscript's commands the scripts have:
//
//	daemon start [arg...]   start `trl serve --socket $TRL_SOCKET arg...`, and wait until it answers;
//	                        -binary FILE as the first argument selects the binary
//	install FILE [other]    copy the binary, or one of another version, to FILE
//	daemon stop             stop it with SIGTERM: it must exit 0 and leave no socket, no lock, no process
//	daemon kill             end it with SIGKILL, like a crash
//	daemon ended            wait until it has ended after something else stopped it
//	status N cmd [arg...]   run a command that must exit with N
//	until RE cmd [arg...]   repeat a command until its stdout matches, whatever its status
//	[!] json PATH VALUE     the last stdout is JSON with (without) that value at a.dotted.0.path
//	[!] json -has PATH      the same, for any value
//	json -set NAME PATH     store the value in an environment variable
//	http …                  make an HTTP request; see cmdHTTP
//
// $TOKEN is a number that no other story has: stories find processes by it,
// never by a name that another test, or another user of the machine, may use
// too.
func TestStories(t *testing.T) {
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	// A script that hangs fails with its own log, before the whole test binary
	// times out.
	deadline := time.Now().Add(5 * trltest.Patience)
	if end, ok := t.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			dir, err := trltest.NewDir()
			if err != nil {
				return err
			}
			s := &story{binary: binary, dir: dir}
			env.Values[storyKey{}] = s
			env.Defer(func() { s.close(env.T()) })
			for _, entry := range trltest.Environ(dir) {
				name, value, _ := strings.Cut(entry, "=")
				env.Setenv(name, value)
			}
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("TRL_SOCKET", trltest.SocketIn(dir))
			env.Setenv("TOKEN", trltest.Token())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon":  cmdDaemon,
			"install": cmdInstall,
			"status":  cmdStatus,
			"until":   cmdUntil,
			"json":    cmdJSON,
			"http":    cmdHTTP,
		},
		RequireUniqueNames: true,
		Deadline:           deadline,
	})
}

// A script that starts a daemon must stop it, because that is where leftovers
// show.
func TestEveryStoryEndsItsDaemon(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	last := regexp.MustCompile(`(?m)^daemon (\w+)`)
	detached := regexp.MustCompile(`(?m)^exec trl .*serve .*--detach`)
	stopped := regexp.MustCompile(`(?m)^(exec trl .*\bstop\b|daemon stop|exec kill)`)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		found := last.FindAllSubmatch(text, -1)
		if len(found) > 0 && string(found[len(found)-1][1]) != "stop" {
			t.Errorf("%s: its last daemon command is not stop", script)
		}
		if started := detached.FindAllIndex(text, -1); len(started) > 0 && !stopped.Match(text[started[len(started)-1][1]:]) {
			t.Errorf("%s: it does not stop the daemon that it starts in the background", script)
		}
	}
}

// story is the state of a script in addition to its files; owned by its
// goroutine.
type story struct {
	binary string
	dir    string
	daemon *trltest.Daemon
}

type storyKey struct{}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *story) close(t testscript.T) {
	if s.daemon != nil {
		s.daemon.Kill()
		t.Log("the daemon's log:\n" + s.daemon.Log())
	}
	// A script that failed may have left a daemon in the background.
	if socket := trltest.SocketIn(s.dir); exists(socket) {
		stop := exec.Command(s.binary, "stop", "--socket", socket)
		stop.Env = trltest.Environ(s.dir)
		_ = stop.Run() // the daemon may have ended
	}
	os.RemoveAll(s.dir)
}

func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(storyKey{}).(*story)
	if neg || len(args) == 0 {
		ts.Fatalf("usage: daemon start|stop|kill")
	}
	if args[0] == "ended" {
		ts.Check(s.daemon.AwaitExit())
		return
	}
	running := s.daemon != nil && s.daemon.Running()
	if (args[0] == "start") == running {
		ts.Fatalf("daemon %s: running is %t", args[0], running)
	}
	switch args[0] {
	case "start":
		cfg := trltest.Config{Dir: s.dir, Args: args[1:]}
		if len(args) > 2 && args[1] == "-binary" {
			cfg.Binary, cfg.Args = ts.MkAbs(args[2]), args[3:]
		}
		daemon, err := trltest.Start(cfg)
		ts.Check(err)
		s.daemon = daemon
	case "stop":
		ts.Check(s.daemon.Stop())
	case "kill":
		s.daemon.Kill()
	default:
		ts.Fatalf("usage: daemon start|stop|kill")
	}
}

func cmdInstall(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: install FILE [other]")
	}
	find := trltest.Binary
	if len(args) == 2 {
		find = trltest.OtherBinary
	}
	binary, err := find()
	ts.Check(err)
	ts.Check(trltest.Install(binary, ts.MkAbs(args[0])))
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N cmd [arg...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until RE cmd [arg...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(trltest.Patience); ; {
		err := ts.Exec(args[1], args[2:]...)
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("stdout did not match %q within %s (last: %v)", args[0], trltest.Patience, err)
		}
		time.Sleep(20 * time.Millisecond) // poll: until it matches
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	const usage = "usage: [!] json PATH VALUE, [!] json -has PATH, json -set NAME PATH"
	var path string
	switch {
	case len(args) == 3 && args[0] == "-set" && !neg:
		path = args[2]
	case len(args) == 2 && args[0] == "-has":
		path = args[1]
	case len(args) == 2 && args[0] != "-set":
		path = args[0]
	default:
		ts.Fatalf(usage)
	}
	got, has, err := lookup(ts.ReadFile("stdout"), path)
	if err != nil {
		ts.Fatalf("stdout: %v", err)
	}
	switch args[0] {
	case "-set":
		if !has {
			ts.Fatalf("no value at %s", path)
		}
		ts.Setenv(args[1], got)
	case "-has":
		if has == neg {
			ts.Fatalf("%s: present: %t", path, has)
		}
	default:
		if (has && got == args[1]) == neg {
			ts.Fatalf("%s is %q (present: %t)", path, got, has)
		}
	}
}

// lookup returns the value at a dotted path: a string without its last newline,
// anything else as compact JSON.
func lookup(text, path string) (value string, has bool, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var at any
	if err := decoder.Decode(&at); err != nil {
		return "", false, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", false, errors.New("more than one JSON value")
	}
	for key := range strings.SplitSeq(path, ".") {
		switch node := at.(type) {
		case map[string]any:
			next, ok := node[key]
			if !ok {
				return "", false, nil
			}
			at = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(node) {
				return "", false, nil
			}
			at = node[i]
		default:
			return "", false, nil
		}
	}
	if text, ok := at.(string); ok {
		return strings.TrimSuffix(text, "\n"), true, nil
	}
	compact, err := json.Marshal(at)
	return string(compact), true, err
}

func TestLookup(t *testing.T) {
	const text = `{"a": {"b": [{"c": "text\n"}, 12345678901234567890]}, "n": null, "e": []}`
	for path, want := range map[string]string{
		"a.b.0.c": "text",
		"a.b.1":   "12345678901234567890",
		"a.b.0":   `{"c":"text\n"}`,
		"n":       "null",
		"e":       "[]",
	} {
		if got, has, err := lookup(text, path); got != want || !has || err != nil {
			t.Errorf("%s: %q %t %v, want %q", path, got, has, err, want)
		}
	}
	for _, path := range []string{"x", "a.x", "a.b.2", "a.b.-1", "a.b.c", "n.x", "a.b.0.c.d", ""} {
		if _, has, err := lookup(text, path); has || err != nil {
			t.Errorf("%q: has %t, %v", path, has, err)
		}
	}
	for _, text := range []string{"", "{", "text", "{}{}"} {
		if _, _, err := lookup(text, "a"); err == nil {
			t.Errorf("%q is accepted as JSON", text)
		}
	}
}

// TestRunIsLive runs a command that waits for something that happens only after
// its first line was seen: output that arrived with the result would be too
// late.
func TestRunIsLive(t *testing.T) {
	daemon, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Kill()
		os.RemoveAll(daemon.Dir)
	})
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	wait, open := trltest.Gate(t)
	cmd := exec.Command(binary, "run", "--timeout", "60s", "--", "echo first; "+wait+"; echo last >&2")
	cmd.Env = append(trltest.Environ(daemon.Dir), "TRL_SOCKET="+daemon.Socket)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	open()
	if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
		t.Errorf("rest of stdout %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil || stderr.String() != "last\n" {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
	if err := daemon.Stop(); err != nil {
		t.Error(err)
	}
}
