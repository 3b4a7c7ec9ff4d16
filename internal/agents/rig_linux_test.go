package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// dirVariable says where npm has installed the agents.
const dirVariable = "TRL_AGENTS_DIR"

// apartVariable is set in the process that has a network of its own.
const apartVariable = "TRL_AGENTS_APART"

// TestMain runs the tests in a network of their own, in which there is loopback
// and nothing else: an agent that wants to tell somebody something can't.
func TestMain(m *testing.M) {
	if os.Getenv(apartVariable) != "" {
		if err := raiseLoopback(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback:", err)
			os.Exit(1)
		}
		trltest.Main(m)
	}
	if _, err := installed(); err != nil && os.Getenv("CI") == "" {
		os.Exit(m.Run()) // they will say what is missing
	}
	// There, nothing could be fetched for building it.
	binary, err := trltest.Binary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := apart(binary)
	if os.Getenv(trltest.BinaryVariable) == "" {
		_ = os.RemoveAll(filepath.Dir(binary)) // a directory in the system's own for such
	}
	os.Exit(code)
}

// apart runs this test binary again, in a network of its own.
func apart(binary string) (code int) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), apartVariable+"=1", trltest.BinaryVariable+"="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		// Who may not make a network may do so in a user namespace.
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a network of its own:", err)
		return 1
	}
	return 0
}

// raiseLoopback switches on the loopback device of this network.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// installed is the directory of the agents' commands.
func installed() (string, error) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		return "", fmt.Errorf("%s does not say where the agents are (`.ci/run agents` installs them)", dirVariable)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	for _, name := range []string{"claude", "codex", "gemini", "mcp-inspector"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// agent is an agent's command line.
type agent struct {
	name string
	wire wire
	// configure writes its settings: the ones that docs/agents.md shows, and
	// where the model is.
	configure func(r *rig)
	env       func(r *rig) []string
	// begin starts a conversation, resume goes on with it.
	begin  func(prompt string) []string
	resume func(id, prompt string) []string
	// conversation finds the id of the conversation in what the agent prints.
	conversation func(output string) string
}

// rig is an agent with its own home, its own project directory, its own model,
// and the daemon that `trl mcp` starts for it. It is owned by its test.
type rig struct {
	agent
	t       *testing.T
	model   *backend
	dir     string // everything is in here
	project string
	bin     string // of the agents
	trl     string
	apart   bool // the daemon is in a system of its own, and ends with that
}

// patience is how long one run of an agent may take on a busy machine; alone it
// takes seconds.
const patience = 2 * time.Minute

// start makes a rig. At the end nothing of it may be left.
func start(t *testing.T, a agent) *rig {
	bin, err := installed()
	trltest.Need(t, err)
	trl, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := trltest.NewDir()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{agent: a, t: t, model: serve(t, a.wire), dir: dir, project: filepath.Join(dir, "project"), bin: bin, trl: trl}
	r.write(filepath.Join(r.project, "README"), "A project.\n")
	a.configure(r)
	t.Cleanup(r.end)
	return r
}

// end stops the daemon, and looks at what is left.
func (r *rig) end() {
	for _, variable := range r.env(r) {
		if strings.HasSuffix(variable, "="+r.key()) {
			r.without(variable)
		}
	}
	// The daemon that `trl mcp` has started is there also when the agent is gone.
	if !r.apart {
		if out, err := r.command(r.trl, "stop").CombinedOutput(); err != nil {
			r.t.Errorf("trl stop: %v\n%s", err, out)
		}
	}
	r.without("HOME=" + r.home())
	if !r.t.Failed() {
		_ = os.RemoveAll(r.dir) // agents may still be writing their notes
	} else {
		r.t.Logf("kept for a look: %s", r.dir)
	}
}

// without sees that no process with that variable in its environment outlives the
// agent, but for what ends by itself in a moment.
func (r *rig) without(variable string) {
	var left []trltest.Process
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // poll: until they have ended
		if left = trltest.WithEnv(variable); len(left) == 0 {
			return
		}
	}
	name, _, _ := strings.Cut(variable, "=")
	for _, p := range left {
		r.t.Errorf("%v is left, with %s of the agent", p, name)
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // the next test must not find it
	}
}

func (r *rig) home() string { return filepath.Join(r.dir, "home") }

// key opens nothing; it is like no other, so that it can be found.
func (r *rig) key() string { return "key-of-" + filepath.Base(r.dir) }

func (r *rig) write(path, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// command is a program in the project directory, with nothing of the
// environment of who runs the tests but where programs are.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after the end of the test
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.project
	cmd.Env = append(trltest.Environ(r.dir),
		"PATH="+strings.Join([]string{filepath.Dir(r.trl), r.bin, os.Getenv("PATH")}, ":"),
		"LANG=C.UTF-8", "TERM=dumb")
	cmd.Env = append(cmd.Env, r.env(r)...)
	// In a group of its own, as a shell would start it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs the agent to its end, and returns what it printed.
func (r *rig) run(args []string) string {
	r.t.Helper()
	cmd := r.command(args[0], args[1:]...)
	cmd.Path = filepath.Join(r.bin, args[0])
	cmd.Err = nil
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
