package main_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// Two users of one daemon, its own and root, each own what they create,
// whatever name their client gives.
func TestOwnersOfTwoUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		trltest.Need(t, errors.New("only root can run a daemon as another user"))
	}
	const uid = 65534
	name := "uid:" + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	dir, err := os.MkdirTemp("", "owners")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	built, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "trl") // the test binary is in a directory of root
	if err := errors.Join(trltest.Install(built, binary), os.Chown(dir, uid, uid)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "run", "s")
	as := func(id uint32, args ...string) *exec.Cmd {
		cmd := exec.Command(binary, append(args, "--socket", socket)...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		return cmd
	}
	var log strings.Builder
	serve := as(uid, "serve")
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("%v\n%s", err, &log)
		}
	}()
	c, err := client.DialWith(t.Context(), socket, client.Options{Patience: 20 * time.Second})
	for deadline := time.Now().Add(20 * time.Second); errors.Is(err, client.ErrNoDaemon) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // poll: the daemon is starting
		c, err = client.Dial(t.Context(), socket)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateSession(t.Context(), api.SessionCreateParams{Name: "of root", Client: "agent"}); err != nil {
		t.Fatal(err)
	}
	if out, err := as(uid, "session", "create", "--name", "of the daemon's user").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := as(uid, "session", "list", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list api.SessionListResult
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, s := range list.Sessions {
		owners[s.Name] = s.Owner
	}
	if diff := cmp.Diff(map[string]string{"of root": "root/agent", "of the daemon's user": name}, owners); diff != "" {
		t.Error(diff)
	}
}
