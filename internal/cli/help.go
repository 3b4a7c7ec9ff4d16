package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Help texts are laid out here, and not where they are written: prose is wrapped
// to the width of the terminal, and flags and commands are shown under headings.

const (
	// maxHelpWidth is the width of a terminal that no one has resized. Longer
	// lines of prose are harder to read on any terminal.
	maxHelpWidth = 80
	// minHelpWidth leaves room for some words beside the name of a flag.
	minHelpWidth = 40
)

// setHelp makes root and its commands print their help in this layout.
func (a *app) setHelp(root *cobra.Command) {
	root.PersistentFlags().BoolP("help", "h", false, "show help")
	root.SetHelpCommand(a.helpCommand())
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(a.stdout, helpText(cmd, a.helpWidth())) })
}

// helpWidth returns the number of columns for help on this terminal.
func (a *app) helpWidth() int {
	out, ok := a.stdout.(*os.File)
	if !ok {
		return maxHelpWidth
	}
	width, _, err := term.GetSize(int(out.Fd()))
	if err != nil {
		return maxHelpWidth
	}
	return max(minHelpWidth, min(width, maxHelpWidth))
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command",
		Long:  "Show the help of a command, as `trl COMMAND --help` does.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			at, _, _ := cmd.Root().Find(args)
			var names []string
			for _, sub := range at.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), prefix) {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(at, rest)
			}
			return at.Help()
		},
	}
}

// addGroup adds commands to root under a heading of its help.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}

// Headings of flags that no other heading is given for.
const (
	ungroupedFlags = "Flags"
	otherFlags     = "Other flags" // of a command that has groups
	globalFlags    = "Global flags"
)

// flagGroupKey annotates a flag with the heading that it is shown under.
const flagGroupKey = "trl_group"

// groupFlags shows flags of cmd under a heading of its help, in the order in
// which they were defined. It is for commands with so many flags that readers
// look for one.
func groupFlags(cmd *cobra.Command, title string, names ...string) {
	cmd.Flags().SortFlags = false
	for _, name := range names {
		must(cmd.Flags().SetAnnotation(name, flagGroupKey, []string{title}))
	}
}

// flagGroup is a heading and the flags under it.
type flagGroup struct {
	title string
	flags []*pflag.Flag
}

// flagGroups returns the visible flags of a command: its groups, the flags
// without a group, and last those of every command.
func flagGroups(cmd *cobra.Command) []flagGroup {
	var groups []flagGroup
	rest, global := flagGroup{title: ungroupedFlags}, flagGroup{title: globalFlags}
	add := func(flag *pflag.Flag) {
		title := flag.Annotations[flagGroupKey]
		switch {
		case flag.Hidden:
		case cmd.Root().PersistentFlags().Lookup(flag.Name) == flag:
			global.flags = append(global.flags, flag)
		case title == nil:
			rest.flags = append(rest.flags, flag)
		default:
			at := slices.IndexFunc(groups, func(g flagGroup) bool { return g.title == title[0] })
			if at < 0 {
				at = len(groups)
				groups = append(groups, flagGroup{title: title[0]})
			}
			groups[at].flags = append(groups[at].flags, flag)
		}
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if len(groups) > 0 {
		rest.title = otherFlags
	}
	groups = append(groups, rest, global)
	return slices.DeleteFunc(groups, func(g flagGroup) bool { return len(g.flags) == 0 })
}

// describeFlag returns the value that a flag takes, "" if none, and what it
// means, with its default.
func describeFlag(flag *pflag.Flag) (value, meaning string) {
	value, meaning = pflag.UnquoteUsage(flag)
	if !strings.Contains(flag.Usage, "`") {
		value = strings.ToUpper(value) // the name of its type
	}
	if !slices.Contains([]string{"", "0", "false", "[]"}, flag.DefValue) {
		meaning += " (default " + flag.DefValue + ")"
	}
	return value, strings.Join(strings.Fields(meaning), " ")
}

// synopsis returns what follows the name of a command.
func synopsis(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return "COMMAND"
	}
	_, args, _ := strings.Cut(cmd.Use, " ")
	words := slices.DeleteFunc(strings.Fields(args), func(word string) bool { return word == "[flags]" })
	return strings.Join(append([]string{"[flags]"}, words...), " ")
}

// description returns the text at the beginning of a command's help.
func description(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// helpText returns the help of a command in lines of at most width columns,
// except for text that must be kept as it is.
func helpText(cmd *cobra.Command, width int) string {
	h := helpWriter{width: width}
	for verbatim, lines := range paragraphs(description(cmd)) {
		h.blankLine()
		if verbatim {
			h.lines("", lines)
		} else {
			h.lines("", wrap(strings.Join(lines, " "), width))
		}
	}
	h.section("Usage", cmd.CommandPath()+" "+synopsis(cmd))
	if len(cmd.Aliases) > 0 {
		h.section("Aliases", strings.Join(append([]string{cmd.Name()}, cmd.Aliases...), ", "))
	}
	if cmd.HasExample() {
		h.heading("Examples")
		h.lines("", strings.Split(cmd.Example, "\n"))
	}
	h.commands(cmd)
	h.flags(cmd)
	if cmd.HasAvailableSubCommands() {
		h.blankLine()
		h.lines("", wrap(fmt.Sprintf("Run `%s COMMAND --help` for the help of a command.", cmd.CommandPath()), width))
	}
	return h.String()
}

// helpWriter writes a help text.
type helpWriter struct {
	strings.Builder
	width int
}

func (h *helpWriter) blankLine() {
	if h.Len() > 0 {
		h.WriteByte('\n')
	}
}

func (h *helpWriter) lines(indent string, lines []string) {
	for _, line := range lines {
		h.WriteString(strings.TrimRight(indent+strings.ReplaceAll(line, "\t", "    "), " ") + "\n")
	}
}

func (h *helpWriter) heading(title string) {
	h.blankLine()
	h.WriteString(title + ":\n")
}

func (h *helpWriter) section(title, text string) {
	h.heading(title)
	h.lines("  ", []string{text})
}

// commands writes the subcommands of cmd under their headings.
func (h *helpWriter) commands(cmd *cobra.Command) {
	titles := []string{""} // for those without a group
	for _, group := range cmd.Groups() {
		titles = append(titles, group.ID)
	}
	column := 0
	rows := map[string][]helpRow{}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			row := helpRow{"  " + sub.Name(), sub.Short}
			rows[sub.GroupID] = append(rows[sub.GroupID], row)
			column = max(column, row.width())
		}
	}
	for _, title := range titles {
		if len(rows[title]) == 0 {
			continue
		}
		heading := title
		if heading == "" {
			heading = "Commands"
		}
		h.heading(heading)
		h.rows(column, rows[title])
	}
}

// flags writes the flags of cmd under their headings. Those of every command are
// explained once, in the help of the program.
func (h *helpWriter) flags(cmd *cobra.Command) {
	column := 0
	groups := flagGroups(cmd)
	var global []string
	if last := len(groups) - 1; cmd.HasParent() {
		for _, flag := range groups[last].flags {
			global = append(global, "--"+flag.Name)
		}
		groups = groups[:last]
	}
	rows := make([][]helpRow, len(groups))
	for i, group := range groups {
		for _, flag := range group.flags {
			name := "      --" + flag.Name
			if flag.Shorthand != "" {
				name = "  -" + flag.Shorthand + ", --" + flag.Name
			}
			value, meaning := describeFlag(flag)
			row := helpRow{strings.TrimRight(name+" "+value, " "), meaning}
			rows[i] = append(rows[i], row)
			column = max(column, row.width())
		}
	}
	for i, group := range groups {
		h.heading(group.title)
		h.rows(column, rows[i])
	}
	if global != nil {
		h.heading(globalFlags)
		h.lines("  ", wrap(strings.Join(global, ", ")+" (see `"+cmd.Root().Name()+" --help`)", h.width-2))
	}
}

// helpRow is a name and its meaning.
type helpRow struct{ name, meaning string }

func (r helpRow) width() int { return utf8.RuneCountInString(r.name) }

// rows writes names, and their meanings in a column of their own, which begins
// after the widest name unless that leaves too little room. A name that does not
// fit has its meaning below it.
func (h *helpWriter) rows(widest int, rows []helpRow) {
	column := min(widest, h.width*2/5) + 2
	for _, row := range rows {
		lines := wrap(row.meaning, h.width-column)
		name := row.name
		if row.width()+2 <= column && len(lines) > 0 {
			name += strings.Repeat(" ", column-row.width()) + lines[0]
			lines = lines[1:]
		}
		h.lines("", []string{name})
		h.lines(strings.Repeat(" ", column), lines)
	}
}

// paragraphs yields the paragraphs of a text as lines. Indented ones are
// verbatim: examples and lists.
func paragraphs(text string) func(yield func(verbatim bool, lines []string) bool) {
	return func(yield func(bool, []string) bool) {
		for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
			lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
			verbatim := strings.HasPrefix(lines[0], "\t") || strings.HasPrefix(lines[0], "  ")
			if !yield(verbatim, lines) {
				return
			}
		}
	}
}

// wrap splits text into lines of at most width columns. It breaks lines at
// spaces only, so a longer word has a longer line.
func wrap(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
