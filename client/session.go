package client

import (
	"context"

	"github.com/terminal-runtime/trl/api"
)

// Session is a handle to one session. It holds no connection and need not be
// closed: the session lives until Destroy. It is safe for concurrent use.
//
// Its methods call those of Client with the id of the session; whatever
// SessionID their params have is replaced.
type Session struct {
	client *Client
	id     string
}

// NewSession starts a session, as CreateSession does, and returns a handle to
// it.
func (c *Client) NewSession(ctx context.Context, p api.SessionCreateParams) (*Session, error) {
	created, err := c.CreateSession(ctx, p)
	if err != nil {
		return nil, err
	}
	return c.Session(created.SessionID), nil
}

// Session returns a handle to an existing session. It does not call the daemon.
func (c *Client) Session(id string) *Session { return &Session{client: c, id: id} }

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Run runs a command and returns how it ended, with its output.
func (s *Session) Run(ctx context.Context, command string) (*api.ExecResult, error) {
	return s.RunWith(ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{Command: command}})
}

// RunWith is Run with all params.
func (s *Session) RunWith(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
	p.SessionID = s.id
	return s.client.Run(ctx, p)
}

// Stream runs a command and follows its output. ctx bounds the stream, not the
// command.
func (s *Session) Stream(ctx context.Context, command string) (*Stream, error) {
	return s.StreamWith(ctx, api.ExecStreamParams{ExecCommand: api.ExecCommand{Command: command}})
}

// StreamWith is Stream with all params.
func (s *Session) StreamWith(ctx context.Context, p api.ExecStreamParams) (*Stream, error) {
	p.SessionID = s.id
	return s.client.Stream(ctx, p)
}

// Start starts a command and returns a handle to it at once. The session is
// busy until the command ends.
func (s *Session) Start(ctx context.Context, command string) (*Exec, error) {
	return s.StartWith(ctx, api.ExecCommand{Command: command})
}

// StartWith is Start with all params.
func (s *Session) StartWith(ctx context.Context, p api.ExecCommand) (*Exec, error) {
	p.SessionID = s.id
	if p.Key == "" {
		p.Key = newKey() // by which Wait finds the command again
	}
	const atOnce = 1 // 0 would mean never
	none := int64(0)
	r, err := s.client.Run(ctx, api.ExecRunParams{ExecCommand: p, YieldMS: atOnce, MaxOutputBytes: &none})
	if err != nil {
		return nil, err
	}
	return &Exec{client: s.client, id: r.ExecID, started: &p}, nil
}

// Info returns the session with its commands and processes.
func (s *Session) Info(ctx context.Context) (*api.SessionInfo, error) {
	return s.client.SessionInfo(ctx, api.SessionParams{SessionID: s.id})
}

// Execs lists the commands of the session, oldest first, without output.
func (s *Session) Execs(ctx context.Context) ([]api.ExecResult, error) {
	list, err := s.client.ExecList(ctx, api.SessionParams{SessionID: s.id})
	if err != nil {
		return nil, err
	}
	return list.Execs, nil
}

// Screen returns the contents of the session's terminal as text.
func (s *Session) Screen(ctx context.Context) (*api.SessionScreenResult, error) {
	return s.client.Screen(ctx, api.SessionScreenParams{SessionID: s.id})
}

// Watch follows the events of the session from now on.
func (s *Session) Watch(ctx context.Context) (*Events, error) {
	return s.client.Watch(ctx, api.SessionWatchParams{SessionID: s.id})
}

// Cancel stops the running command, and returns when it is gone.
func (s *Session) Cancel(ctx context.Context) error {
	_, err := s.client.Cancel(ctx, api.ExecCancelParams{SessionID: s.id})
	return err
}

// Destroy ends the session, and returns when its processes are gone. A session
// that has already ended is no error.
func (s *Session) Destroy(ctx context.Context) error {
	_, err := s.client.DestroySession(ctx, api.SessionDestroyParams{SessionID: s.id})
	if api.IsCode(err, api.CodeSessionTerminated) || api.IsCode(err, api.CodeSessionNotFound) {
		return nil
	}
	return err
}
