// Package tour implements `trl quickstart`, a tour of TRL that runs real commands.
//
// It starts its own daemon in a temporary directory, so that it touches no other
// sessions, runs its commands in a session of that daemon, and shows their output.
// However the tour ends, it stops the daemon with all its processes and removes the
// directory.
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

// Options are the parameters of a tour.
type Options struct {
	// Program is the path of the trl binary.
	Program string
	// Out gets the text of the tour.
	Out io.Writer
	// Styled prints titles and commands in bold.
	Styled bool
	// Next is called before each step except the first; false ends the tour.
	Next func(ctx context.Context) (bool, error)
}

// step is a step of the tour.
type step struct {
	title     string
	text      string
	commands  []string
	suggested []string // for the user to type later
}

var steps = []step{
	{
		title: "A session keeps what a shell keeps",
		text:  "A session is a shell that stays alive. Every `trl run` sees the directory and the\nvariables that the previous one left.",
		commands: []string{
			`id=$(trl session create)`,
			`trl run -s $id -- 'cd /usr; greeting=bonjour'`,
			`trl run -s $id -- 'echo "$greeting from $PWD"'`,
		},
	},
	{
		title: "`exit` is an exit code, not the end",
		text:  "The session continues with the state that the shell had when it exited.",
		commands: []string{
			`trl run -s $id -- 'exit 3'; echo "status $?"`,
			`trl run -s $id -- 'echo "$greeting again"'`,
		},
	},
	{
		title: "A background server does not block the command",
		text:  "`trl run` returns when the command ends. TRL keeps the output that the server writes\nafterwards with the command's own output.",
		commands: []string{
			`trl run -s $id -- 'while sleep 0.1; do echo "GET / 200"; done & server=$!; echo started'`,
			`sleep 1; trl exec output --last -s $id | head -n 3`,
		},
	},
	{
		title: "A timeout leaves nothing running",
		text:  "It kills every process that the command has started, and no others. The server still\nruns.",
		commands: []string{
			`trl run -s $id --timeout 1s -- 'sleep 4321 & sleep 4321'; echo "status $?"`,
			`trl session info $id | grep 'sleep 4321' || echo 'nothing is left of it'`,
			`trl run -s $id -- 'kill -0 $server && echo "the server is up"'`,
		},
	},
	{
		title: "Output can be read again, from any byte",
		text:  "A reader that lost its connection continues where it was. Here are the last 13 bytes\nof half a megabyte.",
		commands: []string{
			`trl run -s $id -- 'seq 100000' >/dev/null`,
			`trl exec output --from 588882 --last -s $id`,
		},
	},
	{
		title: "Destroying a session leaves nothing running",
		text:  "TRL kills all processes of the session, including the server. The command returns\nwhen they are gone.",
		commands: []string{
			`trl session destroy $id`,
			`trl run -s $id -- true`,
		},
	},
	{
		title: "Now for your agent",
		text:  "Type these yourself. The first starts a daemon for your own sessions, the second lets\nClaude Code use it.",
		suggested: []string{
			`trl serve --detach`,
			`claude mcp add trl -- trl mcp`,
		},
	},
}

// Run runs the tour. Ending it early is not an error.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The commands call trl, whatever the binary's name and directory.
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

// guide shows the steps of the tour.
type guide struct {
	Options
	client  *client.Client
	session string // where the commands run
}

func (g *guide) showSteps(ctx context.Context) error {
	g.printf("This is a tour of TRL in about a minute. It uses its own daemon, which is gone at the\nend.\n")
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

// commandTimeout is how long a command of the tour may take on a slow machine.
// Normally none takes more than two seconds.
const commandTimeout = time.Minute

// runCommand runs a command in the session and shows its output as it arrives, with
// stderr in order among stdout.
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
		data, err := chunk.Content()
		if err != nil {
			return err
		}
		if _, err := g.Out.Write(data); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// environment returns the environment of this process without TRL_ variables: the
// user's settings are for the user's own daemon.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TRL_") {
			env = append(env, entry)
		}
	}
	return env
}
