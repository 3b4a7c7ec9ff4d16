package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/relay"
)

// connectWait is how long `trl connect --wait` waits for a daemon that is being
// started.
const connectWait = 10 * time.Second

func (a *app) connectCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Relay stdin and stdout to the daemon's socket",
		Long: "Relay JSON-RPC between standard input and output and the daemon's socket, so that\n" +
			"a client elsewhere can use the daemon through any command that gives a pipe. The\n" +
			"first line says which TRL answers; empty lines are heartbeats. The daemon and its\n" +
			"sessions outlive the connection, unlike those of `trl serve --stdio`.",
		Example: "  ssh box trl connect\n" +
			"  trl --address 'exec:[\"ssh\",\"box\",\"trl\",\"connect\"]' ps",
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait up to 10s for a daemon that is being started")
	cmd.RunE = action(exactArgs(), func(ctx context.Context, _ []string) error { return a.relay(ctx, wait) })
	return cmd
}

func (a *app) relay(ctx context.Context, wait bool) error {
	in, out, ok := a.files()
	if !ok {
		return errors.New("connect needs a standard input and a standard output")
	}
	path, err := a.localSocket("connect")
	if err != nil {
		return err
	}
	cfg := relay.Config{Socket: path, Stdin: in, Stdout: out}
	if wait {
		cfg.Wait = connectWait
	}
	err = relay.Run(ctx, cfg)
	if err == nil || api.IsCode(err, api.CodeUnauthorized) {
		return err
	}
	return a.noDaemonError(path, err)
}

// files returns standard input and output as files.
func (a *app) files() (in, out *os.File, ok bool) {
	in, isIn := a.stdin.(*os.File)
	out, isOut := a.stdout.(*os.File)
	return in, out, isIn && isOut
}
