package must

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// manyPipes is more than a user's pipe allowance (fs.pipe-user-pages-soft):
// beyond it the kernel limits pipes to two pages.
const manyPipes = 1200

// TestMustStartWithoutPipes starts every shell for a user whose pipe allowance is
// exhausted. ash was seen to die at startup.
func TestMustStartWithoutPipes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	spend := exec.CommandContext(t.Context(), "perl", "-e", `$|=1; for (1..`+strconv.Itoa(manyPipes)+`) { pipe($r[$_], $w[$_]) or die $! } print "spent\n"; sleep 600`)
	spend.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := spend.StdoutPipe()
	if err := errors.Join(err, spend.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = spend.Process.Kill()
		_ = spend.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "spent\n" {
		t.Fatalf("%q, %v", line, err)
	}

	home, program := dirOfNobody(t)
	defer os.RemoveAll(home)
	for _, shell := range []string{"dash", "ash", "bash", "zsh", "mksh"} {
		daemon := exec.CommandContext(t.Context(), program, "serve", "--stdio", "--log-level", "error")
		daemon.Env, daemon.Dir = trltest.Environ(home), home
		daemon.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"session.create","params":{"shell":"` + shell + `"}}` + "\n")
		answer, err := daemon.Output()
		var got struct {
			Result *api.Session
			Error  json.RawMessage
		}
		if err := errors.Join(err, json.Unmarshal(answer, &got)); err != nil || got.Result == nil {
			t.Errorf("%s: %s, %v", shell, answer, err)
		}
	}
}
