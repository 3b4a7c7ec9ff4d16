package docs_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

var update = flag.Bool("update", false, "draw the pictures anew")

// TestImages draws the pictures of the documents with the program itself, and
// compares them. After a change to how they are drawn: -update.
func TestImages(t *testing.T) {
	d, err := trltest.Start(trltest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Kill()
		os.RemoveAll(d.Dir)
	})
	for name, script := range map[string]string{
		// What a program like an editor may show: colors, a bar, wide letters.
		"screen.svg": `printf '\033[2J\033[H\033]0;trl screen --svg\007'
printf '\033[90m 1\033[0m \033[35mpackage\033[0m main\n'
printf '\033[90m 2\033[0m\n'
printf '\033[90m 3\033[0m \033[35mimport\033[0m \033[32m"fmt"\033[0m\n'
printf '\033[90m 4\033[0m\n'
printf '\033[90m 5\033[0m \033[35mfunc\033[0m \033[34mmain\033[0m() {\n'
printf '\033[90m 6\033[0m     greetings := []\033[33mstring\033[0m{\033[32m"hello"\033[0m, \033[32m"bonjour"\033[0m, \033[32m"你好"\033[0m}\n'
printf '\033[90m 7\033[0m     \033[35mfor\033[0m _, g := \033[35mrange\033[0m greetings {\n'
printf '\033[90m 8\033[0m         fmt.\033[34mPrintln\033[0m(g) \033[90m// one a line\033[0m\n'
printf '\033[90m 9\033[0m     }\n'
printf '\033[90m10\033[0m }\n'
printf '\033[12;1H\033[7m main.go [+]                                            8,21  All \033[0m\n-- INSERT --'`,
	} {
		drawn := draw(t, d, script)
		file := filepath.Join("images", name)
		if *update {
			if err := os.WriteFile(file, drawn, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(kept), string(drawn)); diff != "" {
			t.Errorf("%s is drawn in another way now (-kept +drawn), see -update:\n%s", file, diff)
		}
	}
}

// draw runs a script on a terminal, and returns a picture of it.
func draw(t *testing.T, d *trltest.Daemon, script string) []byte {
	trl := func(args ...string) []byte {
		cmd := exec.Command(binary(t), args...)
		cmd.Env = append(trltest.Environ(d.Dir), "TRL_SOCKET="+d.Socket)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("trl %s: %v", args[0], err)
		}
		return out
	}
	id := string(trl("session", "create", "--tty", "14x66"))
	id = id[:len(id)-1]
	trl("run", "-n", "-s", id, "--", script)
	return trl("screen", "--svg", id)
}
