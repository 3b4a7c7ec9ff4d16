package cli

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls fn for every command that a user can run.
func eachCommand(fn func(*cobra.Command)) {
	root := (&app{stdout: io.Discard, stderr: io.Discard}).program()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		fn(cmd)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// Help fits the terminal that no one has resized, and no word of it is cut.
func TestHelpFits(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		help := helpText(cmd, maxHelpWidth)
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > maxHelpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
			if strings.TrimRight(line, " \n")+"\n" != line {
				t.Errorf("%s: spaces at the end of %q", cmd.CommandPath(), line)
			}
		}
		if words := strings.Join(strings.Fields(description(cmd)), " "); !strings.HasPrefix(strings.Join(strings.Fields(help), " "), words+" Usage: ") {
			t.Errorf("%s: the description is not complete:\n%s", cmd.CommandPath(), help)
		}
	})
}

// On a narrow terminal all but verbatim text is wrapped.
func TestHelpFitsNarrow(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		verbatim := cmd.Example + cmd.Long + synopsis(cmd)
		for line := range strings.Lines(helpText(cmd, minHelpWidth)) {
			line = strings.TrimSuffix(line, "\n")
			fixed := strings.Contains(verbatim, strings.TrimSpace(line)) || strings.HasPrefix(line, "  "+cmd.CommandPath())
			if utf8.RuneCountInString(line) > minHelpWidth && !fixed && len(strings.Fields(line)) > 2 {
				t.Errorf("%s: %s", cmd.CommandPath(), line)
			}
		}
	})
}

// Every flag is in the help of its command, with a meaning, under one heading;
// those of every command come last.
func TestEveryFlagIsDocumented(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		help := helpText(cmd, maxHelpWidth)
		var shown []*pflag.Flag
		groups := flagGroups(cmd)
		for _, group := range groups {
			shown = append(shown, group.flags...)
		}
		check := func(flag *pflag.Flag) {
			if flag.Hidden {
				return
			}
			value, meaning := describeFlag(flag)
			if meaning == "" || value != strings.ToUpper(value) && value != "ROWSxCOLS" {
				t.Errorf("%s --%s %s: %q", cmd.CommandPath(), flag.Name, value, meaning)
			}
			if !regexp.MustCompile(`--` + flag.Name + `\b`).MatchString(help) {
				t.Errorf("%s --%s is not in the help", cmd.CommandPath(), flag.Name)
			}
			if n := len(slices.DeleteFunc(slices.Clone(shown), func(f *pflag.Flag) bool { return f != flag })); n != 1 {
				t.Errorf("%s --%s is shown %d times", cmd.CommandPath(), flag.Name, n)
			}
		}
		cmd.LocalFlags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
		if last := groups[len(groups)-1].title; last != globalFlags {
			t.Errorf("%s: the last heading is %q", cmd.CommandPath(), last)
		}
	})
}

// Every command is under a heading, and has a line of its own there.
func TestEveryCommandIsListed(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		parent := cmd.Parent()
		if parent == nil || cmd.Hidden {
			return
		}
		if !parent.HasParent() && cmd.GroupID == "" {
			t.Errorf("%s has no group: add it with addGroup", cmd.CommandPath())
		}
		if line := regexp.MustCompile(`(?m)^  ` + cmd.Name() + ` +` + regexp.QuoteMeta(cmd.Short) + `$`); !line.MatchString(helpText(parent, maxHelpWidth)) {
			t.Errorf("%s is not listed by %s, or its line is too long: %s", cmd.CommandPath(), parent.CommandPath(), cmd.Short)
		}
	})
}

// A hint names commands that exist, and is for words that do not.
func TestHabitsNameRealCommands(t *testing.T) {
	root := (&app{}).program()
	var seen []string
	for path, list := range habits {
		at, rest, err := root.Find(strings.Fields(path)[1:])
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s is no command", path)
		}
		for _, h := range list {
			for word := range strings.FieldsSeq(h.words) {
				if found, _, _ := at.Find([]string{word}); found != at {
					t.Errorf("%s %s exists", path, word)
				}
				if slices.Contains(seen, path+" "+word) {
					t.Errorf("%s %s has two hints", path, word)
				}
				seen = append(seen, path+" "+word)
			}
			checkCommands(t, root, h.hint)
		}
	}
}

// checkCommands checks that each command line between backticks in text can be
// parsed.
func checkCommands(t *testing.T, root *cobra.Command, text string) {
	t.Helper()
	lines := regexp.MustCompile("`trl ([^`]+)`").FindAllStringSubmatch(text, -1)
	if lines == nil {
		t.Errorf("%q names no command", text)
	}
	for _, line := range lines {
		cmd, rest, err := root.Find(strings.Fields(line[1]))
		if err != nil || cmd == root || cmd.HasSubCommands() {
			t.Errorf("%q: no command `trl %s`", text, line[1])
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, nil},
		{"one two  three\nfour", 9, []string{"one two", "three", "four"}},
		{"exactly ten", 7, []string{"exactly", "ten"}},
		{"a word-that-is-too-long b", 5, []string{"a", "word-that-is-too-long", "b"}},
		{"…… ……", 5, []string{"…… ……"}},
	} {
		if got := wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
