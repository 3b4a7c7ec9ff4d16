package shellsyntax

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/internal/trltest"
)

func TestWordBefore(t *testing.T) {
	bash := DialectOf("bash")
	for line, want := range map[string]Word{
		"":                    {Command: true},
		"l":                   {Text: "l", Len: 1, Command: true},
		"ls a":                {Text: "a", Len: 1},
		"ls ":                 {},
		"ls 'a b":             {Text: "a b", Len: 4, Quote: '\''},
		`ls "a \$b`:           {Text: "a $b", Len: 6, Quote: '"'},
		`ls a\ b`:             {Text: "a b", Len: 4},
		`ls 'a'"b"c`:          {Text: "abc", Len: 7},
		`ls $'a\nb\'\001'c`:   {Text: "a\nb'\x01c", Len: 14},
		"ls ~/x":              {Text: "~/x", Len: 3, Home: true},
		`ls \~/x`:             {Text: "~/x", Len: 4},
		"ls größe":            {Text: "größe", Len: 5},
		"a | g":               {Text: "g", Len: 1, Command: true},
		"a && (g":             {Text: "g", Len: 1, Command: true},
		"echo $(l":            {Text: "l", Len: 1, Command: true},
		`echo "$(ls 'x`:       {Text: "x", Len: 2, Quote: '\''},
		"if tr":               {Text: "tr", Len: 2, Command: true},
		"sudo sys":            {Text: "sys", Len: 3, Command: true},
		"echo if tr":          {Text: "tr", Len: 2},
		"X=1 l":               {Text: "l", Len: 1, Command: true},
		"X=/us":               {Text: "/us", Len: 3},
		"cc --out=/us":        {Text: "/us", Len: 3},
		"echo a=b":            {Text: "a=b", Len: 3},
		"cat <fi":             {Text: "fi", Len: 2},
		">out l":              {Text: "l", Len: 1, Command: true},
		"for i in 1; do\nec":  {Text: "ec", Len: 2, Command: true},
		"echo a # comment\nl": {Text: "l", Len: 1, Command: true},
	} {
		got, ok := WordBefore(line, bash)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%q: %t %s", line, ok, diff)
		}
	}
	for _, line := range []string{"ls $HOME/x", "ls *.g", "ls `pwd`/x", "ls ~root/x", "ls $'a\\n", "ls # x", `ls "$x`, `ls $'\q'x`} {
		if w, ok := WordBefore(line, bash); ok {
			t.Errorf("%q has the word %+v", line, w)
		}
	}
}

// Every shell reads a quoted name as the name, and so does WordBefore.
func TestQuote(t *testing.T) {
	names := []string{
		"plain", "two words", `back\slash`, "quo'te", `dou"ble`, "$HOME", "`id`", "a&b;c|d", "*?[x]{y,z}", "#hash", "~tilde", "-dash",
		"new\nline", "\x1b[31mred", "größe 日本", "!bang^", "a=b", "(x)", "\ttab", "bidi \u202etxt",
	}
	for _, shell := range []string{"dash", "bash", "zsh", "mksh"} {
		path, err := exec.LookPath(shell)
		trltest.Need(t, err)
		d := DialectOf(path)
		for _, name := range append(names, "not utf-8 \xff") {
			for _, quote := range []rune{0, '\'', '"'} {
				word, ok := Quote(name, quote, true, d)
				if !ok {
					if shell != "dash" || name != "not utf-8 \xff" {
						t.Errorf("%s can't write %q", shell, name)
					}
					continue
				}
				out, err := exec.Command(path, "-c", "printf %s "+word).Output()
				if err != nil || string(out) != name {
					t.Errorf("%s reads %s as %q, not %q: %v", shell, word, out, name, err)
				}
				if w, ok := WordBefore("ls "+word, d); !ok || w.Text != name || w.Quote != 0 {
					t.Errorf("%s: %s is read as %+v", shell, word, w)
				}
			}
		}
	}
	for quote, want := range map[rune]string{0: `a\ b`, '\'': `'a b`, '"': `"a b`} {
		if word, _ := Quote("a b", quote, false, Dialect{}); word != want {
			t.Errorf("the beginning of a word is %s, want %s", word, want)
		}
	}
}
