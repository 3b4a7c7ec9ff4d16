package limits

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/vm"
)

func TestMain(m *testing.M) {
	runEater()
	trltest.Main(m)
}

// rig is a daemon in a guest, with its own client. Its cgroup is its own, as that of a
// service is.
type rig struct {
	*trltest.Daemon
	t      *testing.T
	client *client.Client
	group  string
}

// cgroups is where cgroups are mounted in a guest.
const cgroups = "/sys/fs/cgroup"

// start starts a daemon. It skips the test outside of a guest.
func start(t *testing.T) *rig {
	t.Helper()
	if vm.Inside() == "" {
		t.Skip("TestLimits runs it in a guest")
	}
	parent := cgroups
	if os.Geteuid() != 0 {
		parent = vm.GuestCgroup
	}
	r := &rig{t: t, group: filepath.Join(parent, "daemon-"+trltest.Token())}
	if err := os.Mkdir(r.group, 0o755); err != nil {
		t.Fatal(err)
	}
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	// The daemon must be alone in its cgroup from its beginning.
	script := filepath.Join(t.TempDir(), "trl")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >'%s/cgroup.procs' && exec '%s' \"$@\"\n", r.group, binary)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if r.Daemon, err = trltest.Start(trltest.Config{Binary: script}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	if r.client, err = client.Dial(t.Context(), r.Socket); err != nil {
		t.Fatal(err)
	}
	return r
}

// stop stops the daemon, and checks what it leaves.
func (r *rig) stop() {
	if r.t.Failed() {
		log := r.Log()
		r.t.Logf("the daemon's log ends with\n%s", log[max(0, len(log)-4000):])
	}
	if r.client != nil {
		r.client.Close()
	}
	if err := r.Stop(); err != nil {
		r.t.Error(err)
		r.Kill()
	}
	if left, _ := filepath.Glob(r.group + "/*/"); len(left) > 0 { // the pattern is valid
		r.t.Errorf("cgroups left by the daemon: %q", left)
	}
	if err := os.Remove(r.group); err != nil {
		r.t.Error(err)
	}
	os.RemoveAll(r.Dir)
}

// session is a session and its cgroup.
type session struct {
	*rig
	*api.Session
	group string
}

// create creates a session with limits, nil for none.
func (r *rig) create(limits *api.Limits) *session {
	r.t.Helper()
	s, err := r.tryCreate(limits)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// tryCreate is create for any goroutine.
func (r *rig) tryCreate(limits *api.Limits) (*session, error) {
	s, err := r.client.CreateSession(r.t.Context(), api.SessionCreateParams{Shell: "dash", Limits: limits})
	if err != nil {
		return nil, fmt.Errorf("%w %v", err, api.AsError(err).Details)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.PID))
	return &session{r, s, filepath.Join(cgroups, strings.TrimPrefix(strings.TrimSpace(string(text)), "0::"))}, err
}

// run runs a command, which must be accepted.
func (s *session) run(command string) *api.ExecResult {
	s.t.Helper()
	res, err := s.tryRun(command)
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	return res
}

// tryRun is run for any goroutine.
func (s *session) tryRun(command string) (*api.ExecResult, error) {
	return s.client.Run(s.t.Context(), api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command}})
}

// destroy destroys the session; nothing of it may be left. It is for any goroutine.
func (s *session) destroy() error {
	res, err := s.client.DestroySession(s.t.Context(), api.SessionDestroyParams{SessionID: s.SessionID, Force: true})
	if err == nil && len(res.Survivors) > 0 {
		err = fmt.Errorf("survivors of %s: %v", s.SessionID, res.Survivors)
	}
	return err
}

// end is destroy for the goroutine of the test.
func (s *session) end() {
	s.t.Helper()
	if err := s.destroy(); err != nil {
		s.t.Fatal(err)
	}
}

// number reads the number in a file of the session's cgroup.
func (s *session) number(file string) int64 {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.group, file))
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// counter reads the number after a name in a file of the session's cgroup.
func (s *session) counter(file, name string) int64 {
	s.t.Helper()
	n, err := s.tryCounter(file, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// tryCounter is counter for any goroutine.
func (s *session) tryCounter(file, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(s.group, file))
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, name+" %d", &n); err == nil {
			return n, nil
		}
	}
	return 0, errors.Join(err, fmt.Errorf("no %s in %s of %s", name, file, s.group))
}

// alive checks that the session still has its shell and its variables, and can run
// commands. Each session sets the variable first.
func (s *session) alive() {
	s.t.Helper()
	if res := s.run("echo $mark $$"); res.Stdout != fmt.Sprintf("set %d\n", s.PID) {
		s.t.Errorf("the session has lost its shell: %q, want mark and pid %d", res.Stdout, s.PID)
	}
}
