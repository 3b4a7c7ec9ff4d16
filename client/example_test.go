package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
)

// A session is a shell: its state persists from one command to the next.
func Example() {
	if err := greet(context.Background(), "unix:/run/user/1000/trl/trl.sock"); err != nil {
		log.Fatal(err)
	}
}

func greet(ctx context.Context, addr string) error {
	c, err := client.Dial(ctx, addr)
	if errors.Is(err, client.ErrNoDaemon) {
		return fmt.Errorf("start the daemon first: %w", err)
	}
	if err != nil {
		return err
	}
	defer c.Close()

	session, err := c.CreateSession(ctx, api.SessionCreateParams{Cwd: "/tmp"})
	if err != nil {
		return err
	}
	defer c.DestroySession(ctx, api.SessionDestroyParams{SessionID: session.SessionID})

	for _, command := range []string{"greeting=hello", "echo $greeting"} {
		result, err := c.Run(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: session.SessionID, Command: command}})
		if api.IsCode(err, api.CodeSessionBusy) {
			return fmt.Errorf("another command runs in this session: %w", err)
		}
		if err != nil {
			return err
		}
		fmt.Print(result.Stdout)
	}
	return nil
}
