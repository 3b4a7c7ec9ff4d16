package escape

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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/confine"
)

// How a run of an attempt ended.
const (
	outcomeThrough = "through"
	outcomeRefused = "refused"
	outcomeBroken  = "broken"  // an error of the table
	outcomeKilled  = "killed"  // by a signal
	outcomeDenied  = "no cell" // the confinement itself could not be made
)

// order is what the test asks of a stage.
type order struct {
	Attempt string
	// Then are further attempts on the same stage. The stage ends before those that
	// follow one which was not refused, or changed something.
	Then   []string
	UID    int      // user of the attempt and of the victim
	Fields []string // of the isolation; none: run unconfined
	// Keeper is the user of the daemon that confines; its Abilities are known.
	Keeper    int
	Abilities confine.Abilities
}

// verdict is the answer of a stage.
type verdict struct {
	Outcome string
	Refusal refusal
	Signal  int
	Text    string   // of a broken attempt
	Changes []string // outside, seen by the stage
}

func (v verdict) String() string {
	text := v.Outcome
	switch v.Outcome {
	case outcomeRefused:
		text += fmt.Sprintf(" at %s (%s)", v.Refusal.Step, errnoName(v.Refusal.Errno))
	case outcomeKilled:
		text += " by " + unix.SignalName(syscall.Signal(v.Signal))
	case outcomeBroken, outcomeDenied, outcomeThrough:
		text += ": " + v.Text
	}
	if len(v.Changes) > 0 {
		text += fmt.Sprintf(", changed outside: %q", v.Changes)
	}
	return text
}

// stage is the outside of one run. The process is PID 1 of its namespaces, so all it
// started ends with it.
type stage struct {
	order   order
	scene   scene
	cmd     *exec.Cmd // the victim
	ask     io.Writer
	answer  *os.File
	answers *bufio.Scanner // of answer
	servers *servers

	// An attempt's prepare function may set these.
	terminal   *os.File   // the controlling terminal of the daemon
	extraFiles []*os.File // descriptors that the launcher finds open
}

// attemptTimeout is far more than any attempt needs on a busy machine.
const attemptTimeout = 3 * time.Minute

// answerTimeout is how long a victim may be silent before it counts as stopped.
const answerTimeout = 10 * time.Second

// runStage is PID 1 of a stage: it builds the outside, runs the attempts and prints the
// verdicts.
func runStage(arg string) int {
	s := &stage{}
	if err := json.Unmarshal([]byte(arg), &s.order); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		return 1
	}
	answers := json.NewEncoder(os.Stdout)
	for _, name := range append([]string{s.order.Attempt}, s.order.Then...) {
		s.order.Attempt = name
		v, err := s.run()
		if err != nil {
			fmt.Fprintln(os.Stderr, "stage:", err)
			return 1
		}
		if err := answers.Encode(v); err != nil {
			return 1
		}
		if v.Outcome != outcomeRefused || len(v.Changes) > 0 {
			break
		}
	}
	return 0
}

// build makes the outside, or what attempts may change of it without an escape.
func (s *stage) build() error {
	if s.cmd == nil {
		s.scene.UID = s.order.UID
		for _, step := range []func() error{s.mountAll, s.files, s.network, s.startVictim} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(os.RemoveAll(work), os.RemoveAll(bare), s.files())
}

func (s *stage) run() (*verdict, error) {
	if s.order.Attempt == "" {
		return s.probe()
	}
	a := find(s.order.Attempt)
	if a == nil {
		return nil, fmt.Errorf("no attempt %q", s.order.Attempt)
	}
	if err := s.build(); err != nil {
		return nil, err
	}
	if a.prepare != nil {
		if err := a.prepare(s); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	before, err := s.look()
	if err != nil {
		return nil, err
	}
	v, err := s.attempt()
	if err != nil {
		return nil, err
	}
	const looks = 200
	for range looks {
		after, err := s.look()
		if err != nil {
			return nil, err
		}
		v.Changes = changes(before, after)
		if len(v.Changes) > 0 || !a.changes || v.Outcome != outcomeThrough {
			break
		}
		time.Sleep(10 * time.Millisecond) // poll: servers and signal handlers count a little later
	}
	return v, nil
}

// probe returns the abilities of a daemon in place of a verdict's text.
func (s *stage) probe() (*verdict, error) {
	if err := s.mountAll(); err != nil {
		return nil, err
	}
	cmd, err := s.confined(nil)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(s.order.Keeper)}
	out, err := cmd.Output()
	return &verdict{Text: string(out)}, err
}

// credential makes a child run as a user.
func credential(uid int) *syscall.Credential {
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
}

// environment of the victim and of attempts.
func (s *stage) environment() []string {
	return []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/srv/home", "LANG=C", "SSH_AUTH_SOCK=" + agentSocket,
		"XDG_RUNTIME_DIR=" + runtimeDir(s.order.UID),
	}
}

func runtimeDir(uid int) string { return "/run/user/" + strconv.Itoa(uid) }

func userBus(uid int) string { return filepath.Join(runtimeDir(uid), "bus") }

// startVictim starts the victim far from the PIDs that a confinement uses inside, so
// that its number names nothing there.
func (s *stage) startVictim() error {
	const far = 4000
	s.scene.LastPID = far
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(far)), 0); err != nil {
		return err
	}
	s.cmd = exec.Command(binary, roleVictim, hidden)
	s.cmd.Env = append(s.environment(), "HIDDEN="+hidden)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(s.order.UID), Setpgid: true}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	s.cmd.Stdout = theirs
	s.ask, s.answer, s.answers = in, ours, bufio.NewScanner(ours)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	s.scene.Victim = s.cmd.Process.Pid
	state, err := s.victimAnswer()
	if err != nil {
		return err
	}
	s.scene.Address, s.scene.MemoryFD, s.scene.SecretFD, s.scene.Key = state.Address, state.MemoryFD, state.SecretFD, state.Key
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, secretFile, 0)
	if err != nil {
		return err
	}
	s.scene.HandleType, s.scene.Handle = handle.Type(), handle.Bytes()
	return nil
}

// victimAnswer returns the next report of the victim.
func (s *stage) victimAnswer() (state victimState, err error) {
	if err := s.answer.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return state, err
	}
	if !s.answers.Scan() {
		return state, errors.New("the victim does not answer")
	}
	err = json.Unmarshal(s.answers.Bytes(), &state)
	return state, err
}

// attempt runs the attempt and returns how it ended.
func (s *stage) attempt() (*verdict, error) {
	encoded, err := json.Marshal(s.scene)
	if err != nil {
		return nil, err
	}
	argv := []string{binary, roleAttempt, s.order.Attempt, string(encoded)}
	cmd := exec.Command(argv[0], argv[1:]...)
	if len(s.order.Fields) > 0 {
		if cmd, err = s.confined(argv); err != nil {
			return nil, err
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(s.order.UID)}
	if len(s.order.Fields) > 0 {
		cmd.SysProcAttr.Credential = credential(s.order.Keeper)
	}
	if leave, err := s.enterCgroup(cmd.SysProcAttr); err != nil {
		return &verdict{Outcome: outcomeDenied, Text: err.Error()}, nil
	} else if leave != nil {
		defer leave()
	}
	cmd.Dir, cmd.Env = work, s.environment()
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	cmd.WaitDelay = time.Second // a descendant may keep the pipes open
	cmd.ExtraFiles = s.extraFiles
	if s.terminal != nil {
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3+len(cmd.ExtraFiles)
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.terminal)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(attemptTimeout, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	if !late.Stop() {
		return &verdict{Outcome: outcomeBroken, Text: "it took longer than " + attemptTimeout.String()}, nil
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	v := &verdict{Text: text.String()}
	switch status := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case status.Signaled():
		v.Outcome, v.Signal = outcomeKilled, int(status.Signal())
	case status.ExitStatus() == 0:
		v.Outcome = outcomeThrough
	case status.ExitStatus() == statusRefused:
		v.Outcome = outcomeRefused
		if err := json.Unmarshal(out.Bytes(), &v.Refusal); err != nil {
			return nil, fmt.Errorf("a refusal without its reason: %w", err)
		}
	case status.ExitStatus() > statusSignal:
		v.Outcome, v.Signal = outcomeKilled, status.ExitStatus()-statusSignal
	case status.ExitStatus() == statusDenied:
		v.Outcome = outcomeDenied
	default:
		v.Outcome, v.Text = outcomeBroken, fmt.Sprintf("status %d: %s", status.ExitStatus(), v.Text)
	}
	return v, nil
}

// enterCgroup makes a child start in a new cgroup if the order has limits that need one.
// The caller must call leave after the child has ended.
func (s *stage) enterCgroup(attr *syscall.SysProcAttr) (leave func(), err error) {
	limits := map[string]string{}
	for field, limit := range map[string][2]string{
		byPids: {"pids.max", strconv.Itoa(pidsLimit)}, byMemory: {"memory.max", strconv.Itoa(memoryLimit)},
	} {
		if slices.Contains(s.order.Fields, field) {
			limits[limit[0]] = limit[1]
		}
	}
	if len(limits) == 0 {
		return nil, nil
	}
	top, _, err := cgroupPaths()
	if err != nil || top == "" {
		return nil, errors.Join(errNoController, err)
	}
	for name := range limits {
		controller, _, _ := strings.Cut(name, ".")
		if err := os.WriteFile(top+"/cgroup.subtree_control", []byte("+"+controller), 0); err != nil {
			return nil, errors.Join(errNoController, err)
		}
	}
	dir, err := os.MkdirTemp(top, "escape-")
	if err != nil {
		return nil, errors.Join(errNoController, err)
	}
	for name, value := range limits {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
	}
	group, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(group.Fd())
	return func() {
		group.Close()
		os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // poll: until the kernel has removed the killed processes
		}
	}, nil
}

// errNoController means that a limit cannot be tried here.
var errNoController = errors.New("no cgroup with the controller")
