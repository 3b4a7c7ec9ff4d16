package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// dirVariable names the directory where npm has installed the agents.
const dirVariable = "TRL_AGENTS_DIR"

// isolatedVariable is set in the process that runs in its own network namespace, to
// the user id that started it: it may be root only in its own namespace.
const isolatedVariable = "TRL_AGENTS_APART"

// TestMain runs the tests in their own network namespace, which has only a loopback
// device: agents cannot send data out.
func TestMain(m *testing.M) {
	if os.Getenv(enginesVariable) != "" {
		engines.Main(m)
	}
	if os.Getenv(isolatedVariable) != "" {
		if err := trltest.RaiseLoopback(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback:", err)
			os.Exit(1)
		}
		trltest.Main(m)
	}
	if os.Getenv(dirVariable) == "" && os.Getenv(bashToolVariable) == "" && os.Getenv("CI") == "" {
		os.Exit(m.Run()) // the tests report what is missing
	}
	// Build it here: in the namespace, the build could not download modules.
	binary, err := trltest.Binary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := runIsolated(binary)
	if os.Getenv(trltest.BinaryVariable) == "" {
		_ = os.RemoveAll(filepath.Dir(binary)) // a temporary directory
	}
	os.Exit(code)
}

// runIsolated runs this test binary again in its own network namespace.
func runIsolated(binary string) (code int) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolatedVariable+"="+strconv.Itoa(os.Geteuid()), trltest.BinaryVariable+"="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		// An unprivileged user can create a network namespace in a user namespace.
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "network namespace:", err)
		return 1
	}
	return 0
}

// installed returns the directory of the agents' commands.
func installed() (string, error) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		return "", fmt.Errorf("%s is not set: it names the directory of the agents (`.ci/run agents` installs them)", dirVariable)
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
	// configure writes its settings: those of docs/agents.md, and the address of
	// the model.
	configure func(r *rig)
	env       func(r *rig) []string
	// begin starts a conversation, resume continues it.
	begin  func(prompt string) []string
	resume func(id, prompt string) []string
	// conversation finds the id of the conversation in the agent's output.
	conversation func(output string) string
}

// rig is an agent with its own home, its own project directory, its own model,
// and the daemon that `trl mcp` starts for it. It is owned by its test.
type rig struct {
	agent
	t         *testing.T
	model     *backend
	dir       string // contains everything
	project   string
	bin       string // directory of the agents' commands
	trl       string
	ownSystem bool // the daemon runs in its own root file system, and ends with it
}

// patience is how long one run of an agent may take on a busy machine; on an idle
// one it takes seconds.
const patience = 2 * time.Minute

// start makes a rig for an agent's command line.
func start(t *testing.T, a agent) *rig {
	bin, err := installed()
	trltest.Need(t, err)
	return newRig(t, a, bin)
}

// newRig makes a rig. At the end of the test no process of it may be left.
func newRig(t *testing.T, a agent, bin string) *rig {
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

// end stops the daemon, and checks that no process is left.
func (r *rig) end() {
	for _, variable := range r.env(r) {
		if strings.HasSuffix(variable, "="+r.key()) {
			r.checkNoProcessHas(variable)
		}
	}
	// The daemon that `trl mcp` has started outlives the agent.
	if !r.ownSystem {
		if out, err := r.command(r.trl, "stop").CombinedOutput(); err != nil {
			r.t.Errorf("trl stop: %v\n%s", err, out)
		}
	}
	r.checkNoProcessHas("HOME=" + r.home())
	if !r.t.Failed() {
		_ = os.RemoveAll(r.dir) // agents may still be writing files
	} else {
		r.t.Logf("kept for inspection: %s", r.dir)
	}
}

// checkNoProcessHas checks that no process with that variable in its environment
// outlives the agent. It waits for processes that are about to end.
func (r *rig) checkNoProcessHas(variable string) {
	var left []trltest.Process
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // poll: until they have ended
		if left = trltest.WithEnv(variable); len(left) == 0 {
			return
		}
	}
	name, _, _ := strings.Cut(variable, "=")
	for _, p := range left {
		r.t.Errorf("%v is still running, with %s of the agent", p, name)
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // the next test must not find it
	}
}

func (r *rig) home() string { return filepath.Join(r.dir, "home") }

// key returns a fake API key that is unique, so that it can be found.
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

// command returns a program to run in the project directory. Of the environment of
// the tests it gets only PATH.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // it is also used after the end of the test
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.project
	cmd.Env = append(trltest.Environ(r.dir),
		"PATH="+strings.Join([]string{filepath.Dir(r.trl), r.bin, os.Getenv("PATH")}, ":"),
		"LANG=C.UTF-8", "TERM=dumb")
	cmd.Env = append(cmd.Env, r.env(r)...)
	// In its own process group, as a shell would start it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs the agent to its end, and returns its standard output.
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
