// Package tour is `trl quickstart`: what TRL does, shown by doing it.
//
// It starts a daemon of its own in a temporary directory, so that nobody's
// sessions are touched, and types its commands into a session of that daemon.
// What is shown is what they print. At the end, whichever way it comes, the
// daemon is ended with all its processes and the directory removed.
package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// Options say how the tour is given.
type Options struct {
	// Program is the binary whose tour it is.
	Program string
	// Out gets all of it.
	Out io.Writer
	// Styled lets titles and commands stand out.
	Styled bool
	// Next is asked before each step but the first, and for the last word; false
	// ends the tour.
	Next func(ctx context.Context) (bool, error)
}

// stop is a place of the tour.
type step struct {
	title     string
	text      string
	commands  []string
	suggested []string // to be typed by who takes the tour, later
}

// lastCommand puts the id of the session's last command into a variable.
const lastCommand = `exec=$(trl exec list $id | tail -n 1 | cut -d ' ' -f 1)`

var steps = []step{
	{
		title: "A session keeps what a shell keeps",
		text:  "It is a shell that stays. Each `trl run` is a client of its own, and finds the\ndirectory and the variables of the one before.",
		commands: []string{
			`id=$(trl session create)`,
			`trl run -s $id -- 'cd /usr; greeting=bonjour'`,
			`trl run -s $id -- 'echo "$greeting from $PWD"'`,
		},
	},
	{
		title: "`exit` is an exit code, and not the end",
		text:  "The session goes on where the shell was when it exited.",
		commands: []string{
			`trl run -s $id -- 'exit 3'; echo "status $?"`,
			`trl run -s $id -- 'echo "$greeting again"'`,
		},
	},
	{
		title: "A server in the background keeps nobody waiting",
		text:  "The command is answered when it ends. What it left running writes on, and that is\nkept with the command's own output.",
		commands: []string{
			`trl run -s $id -- 'while sleep 0.1; do echo "GET / 200"; done & server=$!; echo started'`,
			lastCommand,
			`sleep 1; trl exec output $exec | head -n 3`,
		},
	},
	{
		title: "A timeout leaves nothing running",
		text:  "It ends every process that the command has started, and only those. The server is\nstill there.",
		commands: []string{
			`trl run -s $id --timeout 1s -- 'sleep 4321 & sleep 4321'; echo "status $?"`,
			`trl session info $id | grep 'sleep 4321' || echo 'nothing is left of it'`,
			`trl run -s $id -- 'kill -0 $server && echo "the server is up"'`,
		},
	},
	{
		title: "Output can be read again, from any byte on",
		text:  "A reader that was cut off goes on where it was. Here are the last 13 bytes of half\na megabyte.",
		commands: []string{
			`trl run -s $id -- 'seq 100000' >/dev/null`,
			lastCommand,
			`trl exec output --from 588882 $exec`,
		},
	},
	{
		title: "The end is the end",
		text:  "With a session go all its processes, the server too. It is answered when they are\ngone.",
		commands: []string{
			`trl session destroy $id`,
			`trl run -s $id -- true`,
		},
	},
	{
		title: "Now for your agent",
		text:  "These are yours to type. The first starts a daemon for your own sessions, the\nsecond lets Claude Code use it.",
		suggested: []string{
			`trl serve --detach`,
			`claude mcp add trl -- trl mcp`,
		},
	},
}

// Run gives the tour. A tour that was ended early is no error.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The commands say trl, whatever the file is called and wherever it is.
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	if err := os.Symlink(o.Program, filepath.Join(bin, "trl")); err != nil {
		return err
	}
	d, err := start(ctx, o.Program, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	c, err := client.Dial(ctx, d.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	session, err := c.CreateSession(ctx, api.SessionCreateParams{
		Name: "quickstart",
		Env:  map[string]string{"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH"), "TRL_SOCKET": d.socket},
	})
	if err != nil {
		return err
	}
	g := &guide{Options: o, client: c, session: session.SessionID}
	return g.showSteps(ctx)
}

// guide leads through the tour.
type guide struct {
	Options
	client  *client.Client
	session string // in which the commands are typed
}

func (g *guide) showSteps(ctx context.Context) error {
	g.printf("This is TRL by its own commands, in about a minute. It uses a daemon of its own,\nwhich is gone at the end.\n")
	for i, s := range steps {
		if i > 0 {
			if on, err := g.Next(ctx); err != nil || !on {
				return err
			}
		}
		g.printf("\n%s\n%s\n\n", g.bold(fmt.Sprintf("%d/%d  %s", i+1, len(steps), s.title)), s.text)
		for _, command := range s.suggested {
			g.printf("%s\n", g.bold("$ "+command))
		}
		for _, command := range s.commands {
			g.printf("%s\n", g.bold("$ "+command))
			if err := g.runCommand(ctx, command); err != nil {
				return err
			}
		}
	}
	g.printf("\n`trl --help` has the rest.\n")
	return nil
}

func (g *guide) printf(format string, args ...any) { fmt.Fprintf(g.Out, format, args...) }

func (g *guide) bold(text string) string {
	if !g.Styled {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// commandTime is how long a command of the tour may take on a slow machine.
// None takes more than two seconds on another.
const commandTimeout = time.Minute

// run types a command, and shows what it prints as it comes: what it says of an
// error in its place among the rest.
func (g *guide) runCommand(ctx context.Context, command string) error {
	limit := commandTimeout.Milliseconds()
	st, err := g.client.Stream(ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{SessionID: g.session, Command: "{ " + command + "\n} 2>&1", TimeoutMS: &limit}})
	if err != nil {
		return err
	}
	defer st.Close()
	for chunk, err := range st.Chunks() {
		if err != nil {
			return err
		}
		data, err := api.DecodeBytes(chunk.Data, chunk.Encoding)
		if err != nil {
			return err
		}
		if _, err := g.Out.Write(data); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// environment is that of a daemon which nobody has told anything: settings of
// who takes the tour are for their own.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TRL_") {
			env = append(env, entry)
		}
	}
	return env
}
