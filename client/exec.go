package client

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// Exec is a handle to one command. It holds no connection and need not be
// closed; the command does not depend on it. It is safe for concurrent use.
//
// Its methods call those of Client with the id of the command; whatever ExecID
// their params have is replaced.
type Exec struct {
	client  *Client
	id      string
	started *api.ExecCommand // with its key, exec.run returns the same exec again; nil: not known
}

// Exec returns a handle to an existing command. It does not call the daemon.
func (c *Client) Exec(id string) *Exec { return &Exec{client: c, id: id} }

// ID returns the id of the command.
func (e *Exec) ID() string { return e.id }

// Wait waits until the command has ended, and returns how. The result has the
// command's output, as that of Session.Run, if the handle comes from
// Session.Start; otherwise it has none, and Output returns it.
func (e *Exec) Wait(ctx context.Context) (*api.ExecResult, error) {
	if e.started != nil {
		return e.client.Run(ctx, api.ExecRunParams{ExecCommand: *e.started})
	}
	r, err := e.Info(ctx)
	if err != nil || !r.Running() {
		return r, err
	}
	stream, err := e.Follow(ctx, r.StdoutBytes+r.StderrBytes)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for _, err := range stream.Chunks() {
		if err != nil {
			return nil, err
		}
	}
	return stream.Result(), nil
}

// Info returns how the command ended, or that it still runs, without its
// output.
func (e *Exec) Info(ctx context.Context) (*api.ExecResult, error) {
	return e.client.ExecInfo(ctx, api.ExecParams{ExecID: e.id})
}

// Output reads the command's output, starting at an offset.
func (e *Exec) Output(ctx context.Context, p api.ExecOutputParams) (*api.ExecOutputResult, error) {
	p.ExecID = e.id
	return e.client.Output(ctx, p)
}

// Follow streams the command's output, starting at an offset.
func (e *Exec) Follow(ctx context.Context, from int64) (*Stream, error) {
	return e.client.Attach(ctx, api.ExecAttachParams{ExecID: e.id, From: from})
}

// Input writes to the command's standard input, which must have been left open
// by StdinOpen or be a terminal.
func (e *Exec) Input(ctx context.Context, p api.ExecInputParams) (*api.ExecInputResult, error) {
	p.ExecID = e.id
	return e.client.Input(ctx, p)
}

// Signal signals the command's processes, also those that it left running.
func (e *Exec) Signal(ctx context.Context, signal string) error {
	_, err := e.client.Signal(ctx, api.ExecSignalParams{ExecID: e.id, Signal: signal})
	return err
}

// Kill stops the command, and returns when it is gone: SIGTERM, and after the
// daemon's grace period SIGKILL. If the command has ended, Kill kills the
// processes that it left running.
func (e *Exec) Kill(ctx context.Context) error {
	r, err := e.client.Cancel(ctx, api.ExecCancelParams{ExecID: e.id})
	if err != nil || r.Cancelled {
		return err
	}
	return e.Signal(ctx, "KILL")
}
