package process

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// A process gets the same whichever process forks it; only its session differs.
func TestEveryWayStartsTheSame(t *testing.T) {
	hosts(t, func(t *testing.T, h *Host) {
		tree := newTree(t, h)
		_, _, term := newTerminal(t, tree)
		dir := t.TempDir()
		for name, way := range map[string]struct {
			start    func(Spec) (*Proc, error)
			terminal string
		}{
			"direct":   {tree.Start, "no"},
			"gated":    {tree.startGated, "no"},
			"terminal": {term.Start, "yes"},
		} {
			out := filepath.Join(t.TempDir(), "out")
			fd, err := unix.Open(out, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			p, err := way.start(Spec{
				Path: "/bin/sh",
				Argv: []string{"own name", "-c", `echo "$0 $1 $A"; /bin/pwd; /bin/ls /proc/self/fd | /usr/bin/wc -l
					/bin/grep -E '^Sig(Blk|Ign)' /proc/self/status; (: </dev/tty) 2>/dev/null && echo yes || echo no
					/usr/bin/env | /bin/grep -vE '^(PWD|OLDPWD|SHLVL|_)='; echo end; exec /bin/sleep 1000`, "zero", "one"},
				Env: []string{"A=b c"}, Dir: dir, Files: [3]int{fd, fd, fd},
			})
			_ = unix.Close(fd)
			if err != nil {
				t.Fatal(name, err)
			}
			eventually(t, func() bool { return strings.HasSuffix(read(t, out), "end\n") })
			want := "zero one b c\n" + dir + "\n4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" + way.terminal + "\nA=b c\nend\n"
			if diff := cmp.Diff(want, read(t, out)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if st, err := readStat(p.PID()); err != nil || st.ppid != os.Getpid() {
				t.Errorf("%s: parent %d, %v", name, st.ppid, err)
			}
			if group, err := unix.Getpgid(p.PID()); err != nil || group != p.PID() {
				t.Errorf("%s: process group %d, %v", name, group, err)
			}
			if !tree.HasTag(p) || !slices.Contains(tree.PIDs(), p.PID()) {
				t.Errorf("%s: tag %v, processes %v", name, tree.HasTag(p), tree.PIDs())
			}
		}
	})
}

// A leader lives on when a daemon of another version takes over, so these texts
// may gain fields and must not change otherwise.
func TestLeaderMessages(t *testing.T) {
	for want, q := range map[string]leaderRequest{
		`{"Number":7,"Path":"/bin/sh","Argv":["sh","-i"],"Env":["A=b"],"Dir":"/tmp","Foreground":0}`: {
			Number: 7, Spec: Spec{Path: "/bin/sh", Argv: []string{"sh", "-i"}, Env: []string{"A=b"}, Dir: "/tmp"},
		},
		`{"Number":8,"Path":"","Argv":null,"Env":null,"Dir":"","Foreground":42}`: {Number: 8, Foreground: 42},
	} {
		// Files are sent as descriptors: their numbers mean nothing to the leader.
		sent := q
		sent.Files, sent.SessionLeader = [3]int{4, 5, 6}, true
		text, err := json.Marshal(sent)
		if err != nil || string(text) != want {
			t.Errorf("got  %s, %v\nwant %s", text, err, want)
		}
		var got leaderRequest
		if err := json.Unmarshal([]byte(want[:len(want)-1]+`,"Later":1}`), &got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(q, got); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
	want := `{"Number":7,"PID":42,"Error":"no"}`
	if text, err := json.Marshal(leaderAnswer{Number: 7, PID: 42, Error: "no"}); err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
}
