package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/terminal-runtime/trl/internal/daemon"
)

// docsCommand is for packagers, and for those who installed the binary alone.
func (a *app) docsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write the manual that ships with this program"}
	manual := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual, one page per command",
		Long: "Write the manual to a directory, one page per command. The pages are dated by\n" +
			"SOURCE_DATE_EPOCH if it is set, and depend on nothing else on this machine.",
		Example: "  trl docs man share/man/man1",
	}
	manual.RunE = action(exactArgs("DIR"), func(_ context.Context, args []string) error {
		return writeManual(args[0])
	})
	cmd.AddCommand(manual)
	return a.group(cmd)
}

// writeManual writes a page for every visible command.
func writeManual(dir string) error {
	date, err := manualDate()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Use a neutral environment: the defaults on a page are those of any user,
	// wherever it is written.
	root := (&app{environment: daemon.Environment{Home: "~", Variables: []string{"TMPDIR=/var/tmp"}}}).program()
	var write func(*cobra.Command) error
	write = func(cmd *cobra.Command) error {
		p := manualPage{date: date}
		p.write(cmd)
		if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), p.Bytes(), 0o644); err != nil {
			return err
		}
		for _, under := range cmd.Commands() {
			if !under.IsAvailableCommand() {
				continue
			}
			if err := write(under); err != nil {
				return err
			}
		}
		return nil
	}
	return write(root)
}

// manualDate returns the date of the pages: that of the sources if
// SOURCE_DATE_EPOCH is set, or two builds of one source would differ.
func manualDate() (string, error) {
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds")
		}
		date = time.Unix(seconds, 0)
	}
	return date.UTC().Format(time.DateOnly), nil
}

// pageName returns the name of a command's page, such as trl-session-create.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manualPage is a page in man(7) markup.
type manualPage struct {
	bytes.Buffer
	date string
}

func (p *manualPage) write(cmd *cobra.Command) {
	fmt.Fprintf(p, ".TH %s 1 %s \"TRL %s\" \"TRL manual\"\n", roff(strings.ToUpper(pageName(cmd))), p.date, roff(buildVersion()))
	// Do not hyphenate or stretch text that is to be typed.
	p.WriteString(".nh\n.ad l\n.SH NAME\n")
	fmt.Fprintf(p, "%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	p.synopsis(cmd)
	p.WriteString(".SH DESCRIPTION\n")
	p.text(description(cmd))
	p.commands(cmd)
	p.flags(cmd)
	if cmd.HasParent() {
		p.text("The options of every command are in trl(1).")
	} else {
		p.commonSections()
	}
	if cmd.Example != "" {
		p.WriteString(".SH EXAMPLES\n")
		p.verbatim(strings.Split(cmd.Example, "\n"))
	}
	p.seeAlso(cmd)
}

func (p *manualPage) synopsis(cmd *cobra.Command) {
	fmt.Fprintf(p, ".SH SYNOPSIS\n\\fB%s\\fR %s\n", roff(cmd.CommandPath()), roff(synopsis(cmd)))
}

func (p *manualPage) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.WriteString(".SH COMMANDS\n")
	for _, under := range cmd.Commands() {
		if under.IsAvailableCommand() {
			fmt.Fprintf(p, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(pageName(under)), roff(under.Short))
		}
	}
}

// flags writes the flags of a command; those of every command are on the
// program's own page.
func (p *manualPage) flags(cmd *cobra.Command) {
	p.WriteString(".SH OPTIONS\n")
	for _, group := range flagGroups(cmd) {
		switch {
		case group.title == globalFlags && cmd.HasParent():
			continue
		case group.title != ungroupedFlags:
			fmt.Fprintf(p, ".SS %s\n", roff(group.title))
		}
		for _, flag := range group.flags {
			p.flag(flag)
		}
	}
}

func (p *manualPage) flag(flag *pflag.Flag) {
	value, meaning := describeFlag(flag)
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand + ", " + name
	}
	fmt.Fprintf(p, ".TP\n\\fB%s\\fR", roff(name))
	if value != "" {
		fmt.Fprintf(p, " \\fI%s\\fR", roff(value))
	}
	p.WriteString("\n" + roff(meaning) + "\n")
}

// commonSections writes the sections that only the program's own page has.
func (p *manualPage) commonSections() {
	p.WriteString(".SH ENVIRONMENT\n")
	p.entries([][2]string{
		{"TRL_SOCKET", "the daemon's socket, as --socket"},
		{daemon.AddressVariable, "the daemon's address, as --address"},
		{daemon.TokenVariable, "the token for a daemon over HTTP"},
		{"TRL_…", "every setting of the daemon; see trl-serve(1)"},
	})
	p.WriteString(".SH FILES\n")
	p.entries([][2]string{
		{"~/.config/trl/config.toml", "settings of the daemon, and its address for clients"},
		{"/etc/trl/config.toml", "the same, for root"},
		{"~/.local/state/trl", "logs of daemons in the background; see trl-logs(1)"},
	})
	p.WriteString(".SH EXIT STATUS\n")
	p.entries([][2]string{
		{"0", "success"},
		{strconv.Itoa(statusFailed), "failure; the message says why, and the hint what to do"},
		{strconv.Itoa(statusUsage), "invalid command line"},
	})
	p.text("`trl run` exits with the status of its command; see trl-run(1).")
}

func (p *manualPage) entries(rows [][2]string) {
	for _, row := range rows {
		fmt.Fprintf(p, ".TP\n\\fB%s\\fR\n%s\n", roff(row[0]), roff(row[1]))
	}
}

func (p *manualPage) seeAlso(cmd *cobra.Command) {
	var names []string
	if cmd.HasParent() {
		names = append(names, pageName(cmd.Parent()))
		for _, sibling := range cmd.Parent().Commands() {
			// The program's own page lists its commands.
			if sibling != cmd && sibling.IsAvailableCommand() && cmd.Parent().HasParent() {
				names = append(names, pageName(sibling))
			}
		}
	} else {
		names = append(names, "trl-serve", "trl-run", "trl-session")
	}
	p.WriteString(".SH SEE ALSO\n")
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		fmt.Fprintf(p, "\\fB%s\\fR(1)%s\n", roff(name), end)
	}
}

// text writes paragraphs; indented ones are kept verbatim.
func (p *manualPage) text(text string) {
	for verbatim, lines := range paragraphs(text) {
		if !p.afterHeading() {
			p.WriteString(".PP\n")
		}
		if verbatim {
			p.verbatim(lines)
			continue
		}
		for _, line := range lines {
			p.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
}

// afterHeading reports whether the last line is a heading, which starts a
// paragraph by itself.
func (p *manualPage) afterHeading() bool {
	lines := bytes.Split(bytes.TrimSuffix(p.Bytes(), []byte("\n")), []byte("\n"))
	return bytes.HasPrefix(lines[len(lines)-1], []byte(".SH "))
}

func (p *manualPage) verbatim(lines []string) {
	p.WriteString(".nf\n")
	for _, line := range lines {
		p.WriteString(roff(strings.ReplaceAll(line, "\t", "    ")) + "\n")
	}
	p.WriteString(".fi\n")
}

// roff escapes text for roff. Text between backticks becomes bold.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`, "…", `\&...`, "→", `\(->`).Replace(text)
	parts := strings.Split(text, "`")
	if len(parts)%2 == 1 { // the backticks are balanced
		for i := 1; i < len(parts); i += 2 {
			parts[i] = `\fB` + parts[i] + `\fR`
		}
		text = strings.Join(parts, "")
	} else {
		text = strings.Join(parts, "\\`")
	}
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
