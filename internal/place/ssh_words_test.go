package place

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/peer"
)

// TestRemoteCommand runs command lines as sshd does: by the login shell of a user.
func TestRemoteCommand(t *testing.T) {
	args := []string{"", "two words", `'"\!$HOME` + "`id`%s%%", "-n", "a\nb\n", "é\x01\xff", `\012`, "^x^y", "!!", "~", "*", "#", "{a,b}"}
	const script = `count=$# # 'comment'
for arg in "$@"; do printf '<%s>' "$arg"; done
case $count in
13) echo " $((count + 1)) !" ;;
esac
cat; exit 7`
	want := "<" + strings.Join(args, "><") + "> 14 !\ninput"
	for _, login := range []string{"sh", "dash", "bash", "zsh", "mksh", "fish", "tcsh"} {
		t.Run(login, func(t *testing.T) {
			program, err := exec.LookPath(login)
			if err != nil {
				t.Skip(err)
			}
			line := remoteCommand(script, args)
			if strings.ContainsAny(line, "\n!") {
				t.Errorf("the command line is not safe: %s", line)
			}
			cmd := exec.Command(program, "-c", line)
			cmd.Stdin = strings.NewReader("input")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit status %d: %s", code, stderr.String())
			}
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckHost(t *testing.T) {
	for address, want := range map[string]bool{
		"build": true, "me@build": true, "me@build.example.org": true, "a@b@host": true, "fe80::1%eth0": true, "::1": true, "h_1-x": true,
		"": false, "@host": false, "me@": false, "-oProxyCommand=id": false, "me@-oX": false, "-l@host": false,
		"a b": false, "a\nb": false, "a;id": false, "$(id)": false, "a`id`": false, "me'@host": false, "host/x": false, "a|b@host": false,
	} {
		if wrong := checkHost(address); (wrong == "") != want {
			t.Errorf("%q: %q", address, wrong)
		}
	}
}

// TestExplainLogin has the words of OpenSSH 8 to 9 on Linux and macOS.
func TestExplainLogin(t *testing.T) {
	for stderr, want := range map[string]reason{
		"Host key verification failed.\n": badHostKey,
		"No ED25519 host key is known for [127.0.0.1]:22 and you have requested strict checking.\nHost key verification failed.\n":                         badHostKey,
		"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key for h has changed and you have requested strict checking.\nHost key verif…": badHostKey,
		"Welcome to build\nme@build: Permission denied (publickey).\n":                                                                                     noAccess,
		"Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n":                                                                  noAccess,
		"ssh: connect to host 127.0.0.1 port 1: Connection refused\n":                                                                                      unreachable,
		"ssh: connect to host 10.0.0.1 port 22: Operation timed out\n":                                                                                     unreachable,
		"ssh: Could not resolve hostname nosuch.invalid: Name or service not known\n":                                                                      unreachable,
		"kex_exchange_identification: read: Connection reset by peer\n":                                                                                    unreachable,
		"ssh: connect to host x port 22: Network is unreachable\n":                                                                                         unreachable,
		"Timeout, server 10.0.0.1 not responding.\n":                                                                                                       unreachable,
		"/root/.ssh/config: line 3: Bad configuration option: foo\n/root/.ssh/config: terminating, 1 bad …\n":                                              unknown,
		"": unknown,
	} {
		r := explainLogin("me@build", stderr)
		if r.reason != want {
			t.Errorf("%q: %s, want %s", stderr, r.reason, want)
		}
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(r.message, "me@build") || !strings.HasSuffix(r.message, last) || !strings.Contains(r.hint, "ssh ") && !strings.Contains(r.hint, "`ssh") {
			t.Errorf("%q: message %q, hint %q", stderr, r.message, r.hint)
		}
	}
}

// TestExplainChannel has the words of ssh and of shells for channels that fail.
func TestExplainChannel(t *testing.T) {
	const closed = "kex_exchange_identification: Connection closed by remote host; Connection closed by UNKNOWN port 65535"
	for _, test := range []struct {
		status int
		stderr string
		want   reason
		lost   bool
	}{
		{255, "mux_client_request_session: session request failed: Session open refused by peer; " + closed, refused, false},
		{255, "Control socket connect(/p/k7.ssh): Connection refused; " + closed, unreachable, true},
		{255, closed, unreachable, true},
		{255, "mux_client_request_session: read from master failed: Broken pipe", unreachable, true},
		{127, "sh: not found", noShell, false},
		{-1, "", silent, false},
		{1, "something else", unknown, false},
	} {
		box := &sshBox{client: &sshClient{host: "build"}, master: &sshMaster{exited: make(chan struct{})}}
		err := &peer.CommandError{Message: "ssh ended", Status: test.status, Stderr: test.stderr}
		r := box.explain(err, test.stderr)
		if r.reason != test.want || box.lost != test.lost || r.hint == "" || !strings.Contains(r.message, "build") {
			t.Errorf("%q: %+v, lost %t; want %s, %t", test.stderr, r, box.lost, test.want, test.lost)
		}
		if suspect := test.lost || test.want == silent; box.suspects(r) != suspect {
			t.Errorf("%q: suspects the master: %t", test.stderr, !suspect)
		}
	}
}
