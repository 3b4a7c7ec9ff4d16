package places

import (
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

// TestIsolationInContainers creates confined sessions in containers: the TRL there
// confines them, or says why it can't.
func TestIsolationInContainers(t *testing.T) {
	r := start(t, "")
	e := engines.Docker(t)
	all := api.Isolation{
		Filesystem: &api.Filesystem{Write: []string{"/home"}, PrivateTmp: true}, Network: &api.Network{Mode: api.NetworkNone},
		Processes: api.IsolationProcessesOwn, NoNewPrivs: true, Seccomp: api.IsolationSeccompDefault,
	}
	t.Run("allowed", func(t *testing.T) {
		runtime := "docker:" + e.Container(t, engines.Busybox, "--tmpfs", "/home", "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined")
		defer r.remove(runtime)
		s := r.create(api.SessionCreateParams{Runtime: runtime, Isolation: &all})
		if s.Runtime != runtime || s.Isolation == nil || !slices.Contains(s.Isolation.Mechanisms, "mount") {
			t.Errorf("%+v, %+v", s, s.Isolation)
		}
		got := r.run(s.SessionID, "touch /home/x && echo wrote; touch /etc/x 2>/dev/null || echo no; ls /proc | grep -c '^[0-9]'; grep -c : /proc/net/dev")
		if lines := strings.Fields(got); len(lines) != 4 || lines[0] != "wrote" || lines[1] != "no" || len(lines[2]) > 1 || lines[3] != "1" {
			t.Errorf("%q", got)
		}
		if got := e.Run(t, "exec", strings.TrimPrefix(runtime, "docker:"), "ls", "/home"); strings.TrimSpace(got) != "x" {
			t.Errorf("/home has %q", got)
		}
		r.call(api.MethodSessionDestroy, api.SessionDestroyParams{SessionID: s.SessionID}, nil)
	})
	t.Run("refused", func(t *testing.T) {
		runtime := "docker:" + e.Container(t, engines.Busybox, "--tmpfs", "/home")
		defer r.remove(runtime)
		_, err := r.client.CreateSession(t.Context(), api.SessionCreateParams{Runtime: runtime, Isolation: &all})
		refused := api.AsError(err)
		missing, _ := refused.Details["missing"].([]any)
		reasons, _ := refused.Details["reasons"].(map[string]any)
		if refused.Code != api.CodeLimitsUnavailable || !slices.Contains(missing, any("mount")) || reasons["mount"] == nil || refused.Hint == "" {
			t.Errorf("%v, %v", err, refused.Details)
		}
		for _, s := range r.sessions() {
			if s.Runtime == runtime {
				t.Errorf("it was refused, but there is %+v", s)
			}
		}
		// What this container allows is in force there.
		s := r.create(api.SessionCreateParams{Runtime: runtime, Isolation: &api.Isolation{NoNewPrivs: true}})
		if got := r.run(s.SessionID, "grep NoNewPrivs /proc/self/status"); got != "NoNewPrivs:\t1\n" {
			t.Errorf("%q", got)
		}
	})
	r.stop()
}
