package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/printable"
)

func (a *app) eventsCommand() *cobra.Command {
	var session, tag string
	var params api.SessionWatchParams
	cmd := &cobra.Command{
		Use:   "events [-s SESSION]",
		Short: "Show what happens to the sessions, as it happens",
		Long: "Show what happens to the sessions from now on, one event a line, until ctrl-c:\n" +
			"the time, the session and its name, and the event. A session is created, is\n" +
			"running a command (with its id and label), is idle again, and is destroyed; its\n" +
			"keyboard is held or released, its terminal resized. With -s it ends when the\n" +
			"session does.\n\n" +
			"--snapshot shows the sessions that there are first. --execs also shows how each\n" +
			"command ends, and when one on a terminal waits for input.\n\n" +
			"With --json each line is an event of session.watch, as the daemon sends it.",
		Example: "  trl events\n  trl events -s build --json\n  trl events --snapshot --execs",
	}
	cmd.Flags().StringVarP(&session, "session", "s", "", "only events of `SESSION`")
	cmd.Flags().StringVar(&tag, "tag", "", "only events of sessions with `TAG`")
	cmd.Flags().BoolVar(&params.Snapshot, "snapshot", false, "show the current sessions first")
	cmd.Flags().BoolVar(&params.Execs, "execs", false, "also show commands: start, end, waiting for input")
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	arguments := func(cmd *cobra.Command, args []string) error {
		if err := checkKind("SESSION", session); err != nil {
			return err
		}
		return exactArgs()(cmd, args)
	}
	cmd.RunE = action(arguments, func(ctx context.Context, _ []string) error {
		if session != "" {
			return a.withSession(ctx, session, func(c *client.Client, id string) error {
				params.SessionID = id
				return a.followEvents(ctx, c, params, tag)
			})
		}
		c, err := a.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return a.followEvents(ctx, c, params, tag)
	})
	return cmd
}

// followEvents prints the events of one session until it ends, or of all until it
// is interrupted. It continues with the next daemon when this one is replaced.
func (a *app) followEvents(ctx context.Context, c *client.Client, params api.SessionWatchParams, tag string) error {
	for {
		events, err := c.Watch(ctx, params)
		if err != nil {
			return err
		}
		err = a.printEvents(events, params.SessionID, tag)
		_ = events.Close() // err says more
		if !errors.Is(err, client.ErrClosed) {
			return err
		}
		fmt.Fprintln(a.stderr, "trl: the connection to the daemon was lost; events may be missing here")
	}
}

// printEvents prints events until the connection is lost or, if id is not "", the
// session has ended.
func (a *app) printEvents(events *client.Events, id, tag string) error {
	for event, err := range events.All() {
		if err != nil {
			return err
		}
		if tag == "" || event.SessionID == "" || slices.Contains(event.Tags, tag) {
			if err := a.printEvent(event); err != nil {
				return err
			}
		}
		if id != "" && event.Type == api.EventDestroyed {
			return nil
		}
	}
	return nil
}

func (a *app) printEvent(event *api.SessionEvent) error {
	line := ""
	if a.json {
		raw, err := json.Marshal(event)
		if err != nil {
			return err
		}
		if a.format.template != nil {
			return a.format.print(a.stdout, raw)
		}
		line = string(printable.JSON(raw))
	} else {
		line = eventLine(event)
	}
	if _, err := fmt.Fprintln(a.stdout, line); err != nil {
		return &writeError{err}
	}
	return nil
}

// eventLine returns an event as a line for people.
func eventLine(event *api.SessionEvent) string {
	line := event.At.Local().Format(timestampLayout)
	if event.Type == api.EventGap && event.Reason == api.ReasonDisconnected {
		return line + " events may be missing: the connection to a place was lost; `trl session list` shows the sessions"
	}
	if event.Type == api.EventGap {
		return line + fmt.Sprintf(" %d events are missing: they came too fast; `trl session list` shows the sessions", event.Missed)
	}
	if event.Type == api.EventSnapshotEnd {
		return line + " these were the sessions that there are; what happens follows"
	}
	name := "-"
	if event.Name != "" {
		name = printable.Word(event.Name)
	}
	return line + " " + visible(event.SessionID) + " " + name + " " + eventText(event)
}

// eventText says in a few words what happened.
func eventText(event *api.SessionEvent) string {
	text := visible(string(event.Type))
	switch {
	case event.Type == api.EventState || event.Type == api.EventSnapshot:
		return joined(string(event.State), event.ExecID, event.ExecLabel)
	case event.Type == api.EventExecEnded && event.ExitCode != nil:
		return joined("ended", event.ExecID, event.ExecLabel) + fmt.Sprintf(" (%s, exit code %d)", visible(string(event.Outcome)), *event.ExitCode)
	case event.Type == api.EventExecEnded:
		return joined("ended", event.ExecID, event.ExecLabel) + " (" + visible(string(event.Outcome)) + ")"
	case event.Type == api.EventExecStarted:
		return joined("started", event.ExecID, event.ExecLabel)
	case event.Type == api.EventWaiting && event.Waiting != nil:
		return joined("waits for", string(event.Waiting.For), event.ExecID, event.ExecLabel)
	case event.Type == api.EventWaitingEnded:
		return joined("goes on", event.ExecID, event.ExecLabel)
	case event.Type == api.EventNetworkDenied && event.Denied != nil:
		return denialText(event.Denied)
	case event.Type == api.EventDestroyed:
		return text + " (" + visible(event.Reason) + ")"
	case event.Type == api.EventHeld:
		return text + " by " + visible(event.Holder)
	case event.Type == api.EventResized && event.TTY != nil:
		return text + fmt.Sprintf(" to %dx%d", event.TTY.Rows, event.TTY.Cols)
	default:
		return text
	}
}

// joined returns the words that are not empty, in one line.
func joined(words ...string) string {
	return visible(strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " "))
}
