package shellsyntax

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// texts are commands with the shells that accept them, all if there are none. A
// line break is where a person presses Enter.
var texts = map[string][]string{
	"":                                        nil,
	"echo a b":                                nil,
	"  # a comment with ' and (":              nil,
	"echo a # it's a comment":                 nil,
	"echo 'a\nb'":                             nil,
	"echo \"a\n$(echo 'x\ny')\"":              nil,
	"echo a \\\nb":                            nil,
	"echo `echo\na`":                          nil,
	"echo ${x:-a\nb}":                         nil,
	"echo $((1 +\n2))":                        nil,
	"echo $(\necho a\n)":                      nil,
	"true &&\ntrue ||\ntrue |\ncat":           nil,
	"for i in 1 2; do\necho $i\ndone":         nil,
	"for i\nin 1 2\ndo\necho $i; done":        nil,
	"for i do\necho $i; done":                 nil,
	"while false; do\necho; done | cat":       nil,
	"until true\ndo\n:\ndone >/dev/null 2>&1": nil,
	"if true; then\necho a\nelif false\nthen\n:\nelse\n:\nfi": nil,
	"if (true) then\n:\nfi":                                   nil,
	"case x in\n(a|b) echo;;\n*)\necho a\nesac":               nil,
	"case x in a) ;; esac":                                    nil,
	"echo $(case x in\nx) echo y;;\nesac)":                    nil,
	"{\necho a\n}":                                            nil,
	"(\necho a\n)":                                            nil,
	"f()\n{\necho a\n}":                                       nil,
	"f () {\n:; }; f":                                         nil,
	"cat <<E\na $x 'b\nE":                                     nil,
	"cat <<'E' <<-F\na\nE\nb\n\tF":                            nil,
	"x=$(cat <<E\na)\nE\n)":                                   nil,
	"if true; then cat <<E\ndone\nE\nfi":                      nil,
	"echo done; echo fi } esac":                               {"dash", "bash", "mksh"},
	"echo a > /dev/null":                                      nil,
	"! true; ! \\\nfalse":                                     nil,
	"x='a'\\''b'":                                             nil,
	"echo $'it\\'s'":                                          {"bash", "zsh", "mksh"},
	"[[ a == a &&\nb == b ]]":                                 {"bash", "zsh", "mksh"},
	"(( 1 +\n1 ))":                                            {"bash", "zsh", "mksh"},
	"for ((i=0; i<2; i++)); do\n:\ndone":                      {"bash", "zsh"},
	"for i in 1; {\n:\n}":                                     {"bash", "zsh", "mksh"},
	"function f {\n:\n}":                                      {"bash", "zsh", "mksh"},
	"a=(1\n2)":                                                {"bash", "zsh", "mksh"},
	"cat <(echo a\n)":                                         {"bash", "zsh"},
	"cat <<<'a\nb'":                                           {"bash", "zsh", "mksh"},
	"{ echo a }":                                              {"zsh"},
	"() {\n:\n}":                                              {"zsh"},
	"echo *(.)":                                               {"zsh"},
}

// A command is incomplete after each of its lines but the last one, in every
// shell, and the shells agree that the whole is a command.
func TestIncomplete(t *testing.T) {
	for _, shell := range []string{"dash", "bash", "zsh", "mksh"} {
		path, err := exec.LookPath(shell)
		trltest.Need(t, err)
		d := DialectOf(path)
		for text, only := range texts {
			if only != nil && !strings.Contains(" "+strings.Join(only, " ")+" ", " "+shell+" ") {
				continue
			}
			if out, err := exec.Command(path, "-n", "-c", text).CombinedOutput(); err != nil {
				t.Errorf("%s does not accept %q: %s", shell, text, out)
			}
			for i, r := range text {
				if r == '\n' && !Incomplete(text[:i], d) {
					t.Errorf("%s: %q counts as complete", shell, text[:i])
				}
			}
			if Incomplete(text, d) {
				t.Errorf("%s: %q counts as incomplete", shell, text)
			}
		}
	}
}

// A text that no further line makes right does not trap a person.
func TestWrongIsComplete(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "mksh"} {
		for _, text := range []string{"done", "fi", "}", ")", "if then fi", "echo (", "f(", "for i in 1; then", "case x {", "(}", "$(done)", "while true; fi", ";;", "echo <<"} {
			if Incomplete(text, DialectOf(shell)) {
				t.Errorf("%s: %q counts as incomplete", shell, text)
			}
		}
	}
}

// Reading never fails, and never takes longer than the text is long.
func FuzzIncomplete(f *testing.F) {
	for text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, shell := range []string{"sh", "bash", "zsh"} {
			d := DialectOf(shell)
			Incomplete(text, d)
			w, ok := WordBefore(text, d)
			if ok && w.Len > len(text) {
				t.Errorf("%q has a word of %d characters", text, w.Len)
			}
		}
	})
}
