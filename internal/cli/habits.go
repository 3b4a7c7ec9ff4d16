package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/internal/spelling"
)

// habit is what people type because another program has it.
type habit struct {
	words string // the commands, separated by spaces
	hint  string // what to type here
}

// habits are the wrong but guessable commands, by the command that does not have
// them.
var habits = map[string][]habit{
	"trl": {
		{"start up daemon server run-daemon", "`trl serve --detach` starts the daemon"},
		{"down shutdown quit kill-server", "`trl stop` stops the daemon and ends its sessions"},
		{"restart reload update", "`trl upgrade` restarts the daemon and keeps its sessions"},
		{"ls list sessions list-sessions", "`trl ps` lists the sessions"},
		{"new create new-session open", "`trl session create` creates a session"},
		{"kill cancel interrupt", "`trl exec cancel EXEC` cancels a command, `trl session destroy SESSION` ends a session"},
		{"rm remove delete destroy close end kill-session", "`trl session destroy SESSION` ends a session and all its processes"},
		{"execute sh bash ssh enter", "`trl run -- COMMAND` runs a command, `trl shell` opens a prompt"},
		{"output cat tail follow", "`trl logs -f -s SESSION` follows the output of a session"},
		{"send-keys send press type", "`trl keys SESSION KEY` presses keys, `trl input SESSION TEXT` types text"},
		{"history jobs", "`trl exec list SESSION` lists the commands of a session"},
		{"capture-pane capture screenshot", "`trl screen SESSION` prints the screen of a session"},
		{"attach-session", "`trl attach SESSION` shows the terminal of a session"},
		{"watch monitor", "`trl events` shows what happens to the sessions"},
		{"inspect show", "`trl session info SESSION` shows a session, `trl info` the daemon"},
		{"config settings", "`trl info` shows the daemon, `trl serve --help` every setting"},
		{"check health", "`trl doctor` checks this machine, `trl status` shows the daemon"},
		{"login auth tokens", "`trl token create --scope SCOPE` creates a token for HTTP"},
		{"places runtimes container containers host hosts remote", "`trl place list` lists the places where sessions can run besides this machine"},
		{"tour demo tutorial", "`trl quickstart` takes a one-minute tour"},
		{"man manual", "`trl help COMMAND` shows the help, `trl docs man DIR` writes the manual"},
	},
	"trl session": {
		{"new start open add", "`trl session create` creates a session"},
		{"kill stop end close delete remove", "`trl session destroy SESSION` ends a session and all its processes"},
		{"show inspect status get", "`trl session info SESSION` shows a session"},
		{"attach watch", "`trl attach SESSION` shows the terminal of a session"},
		{"run exec", runHint},
	},
	"trl exec": {
		{"kill stop destroy rm", "`trl exec cancel EXEC` cancels a command"},
		{"logs log cat show tail follow read", "`trl exec output EXEC` prints the output of a command"},
		{"run start", runHint},
	},
	"trl place": {
		{"new create connect", "`trl place add RUNTIME` adds a place and connects to it"},
		{"delete destroy forget disconnect", "`trl place remove RUNTIME` removes a place and what TRL put there"},
		{"show info inspect status test ping doctor", "`trl place check RUNTIME` connects to a place and shows it"},
		{"update", "`trl place upgrade RUNTIME` replaces the TRL of a place"},
		{"run exec shell", "`trl run --place RUNTIME -- COMMAND` runs a command in a place, `trl shell --place RUNTIME` opens a prompt there"},
	},
	"trl token": {
		{"new add generate", "`trl token create --scope SCOPE` creates a token"},
		{"delete remove destroy", "`trl token revoke ID` revokes a token"},
	},
}

// runHint is also for those who know `docker exec CONTAINER COMMAND`.
const runHint = "`trl run -s SESSION -- COMMAND` runs a command in a session"

// unknownCommand reports that cmd has no subcommand args[0], or takes no such
// argument if it is a command itself.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if !cmd.HasSubCommands() {
		return usage("unexpected argument %q", args[0])
	}
	wrong := &usageError{
		message: fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0]),
		hint:    fmt.Sprintf("run `%s --help`", cmd.CommandPath()),
	}
	for _, h := range habits[cmd.CommandPath()] {
		if slices.Contains(strings.Fields(h.words), args[0]) {
			wrong.hint = h.hint
			return wrong
		}
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near, ok := spelling.Closest(args[0], names); ok {
		wrong.message += "; did you mean " + near + "?"
	} else if cmd.CommandPath() == "trl exec" {
		wrong.hint = runHint
	}
	return wrong
}
