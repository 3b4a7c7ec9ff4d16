package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

type inputArguments struct {
	Exec    string   `json:"exec,omitempty" jsonschema:"id of the running command"`
	Session string   `json:"session,omitempty" jsonschema:"instead: what runs in this session; default main"`
	Text    string   `json:"text,omitempty" jsonschema:"what to type; a newline is the enter key on a terminal"`
	Secret  string   `json:"secret,omitempty" jsonschema:"name of a secret whose value is typed, followed by enter"`
	Keys    []string `json:"keys,omitempty" jsonschema:"on a terminal, after text: enter, tab, escape, up, down, ctrl-c, f1 ..."`
	EOF     bool     `json:"eof,omitempty" jsonschema:"end its input after that"`
	WaitS   *float64 `json:"wait_s,omitempty" jsonschema:"0..50: seconds to wait for what it does then, default 2"`
}

// defaultReaction is how long a program is given to react to what was typed.
const defaultReaction = 2 * time.Second

// settled is how long an output is quiet when a program has reacted.
const settled = 300 * time.Millisecond

func (s *server) input(ctx context.Context, c *call, a inputArguments) (*report, error) {
	if a.Text == "" && a.Secret == "" && len(a.Keys) == 0 && !a.EOF {
		return nil, api.Errorf(api.CodeInvalidParams, "input: nothing to type").WithHint("give text, keys, secret or eof")
	}
	if a.Secret != "" && a.Text != "" {
		return nil, api.Errorf(api.CodeInvalidParams, "input: give either text or secret")
	}
	e, err := s.target(ctx, a.Exec, a.Session)
	if err != nil {
		return nil, err
	}
	exec := e.ExecID
	params := api.ExecInputParams{ExecID: exec, Data: a.Text, Keys: a.Keys, EOF: a.EOF}
	if e.TTY != nil {
		params.Data = strings.ReplaceAll(a.Text, "\n", "\r") // as the enter key does
	}
	if a.Secret != "" {
		if params.Data, err = s.typedSecret(ctx, a.Secret, e); err != nil {
			return nil, err
		}
	}
	before := e.StdoutBytes + e.StderrBytes
	if _, err := ask[api.ExecInputResult](ctx, s, api.MethodExecInput, params); err != nil {
		if e.State == api.ExecExited && api.IsCode(err, api.CodeInvalidParams) {
			return nil, api.Errorf(api.CodeInvalidRequest, "nothing runs there to type into: %s has ended (%s)", exec, status(e)).
				WithHint("run starts a command; one with open_stdin: true, or with tty: true, can be typed into")
		}
		return nil, err
	}
	wait := clock(a.WaitS, defaultReaction)
	if _, err := s.follow(ctx, c, exec, goal{idle: min(settled, max(wait, time.Millisecond)), from: before, tty: e.TTY != nil}, wait); err != nil {
		return nil, err
	}
	if e, err = s.look(ctx, exec); err != nil {
		return nil, err
	}
	r, err := s.standing(ctx, e)
	if err != nil {
		return nil, err
	}
	if full, err := s.drawn(ctx, r, e); full || err != nil {
		r.goOn()
		return r, err
	}
	o, err := s.page(ctx, exec, "", before, r.Size, c.room)
	if err != nil {
		return nil, err
	}
	r.show(o)
	r.goOn()
	return r, nil
}

// typedSecret is what to type for a secret. On a terminal it is typed only where
// it is not shown: what a terminal shows is kept.
func (s *server) typedSecret(ctx context.Context, name string, e *api.ExecResult) (string, error) {
	value, err := s.secret(name)
	if err != nil {
		return "", err
	}
	if e.TTY == nil {
		return value + "\n", nil
	}
	session, err := ask[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
	if err != nil {
		return "", err
	}
	if session.Waiting == nil || session.Waiting.For != api.WaitingPassword || session.ExecID != e.ExecID {
		return "", api.Errorf(api.CodeInvalidRequest, "the secret is not typed: the command does not wait for a password, and the terminal would show it").
			WithHint("wait until the tool output says that it waits for a password")
	}
	return value + "\r", nil
}

func (s *server) secret(name string) (string, error) {
	if value, ok := s.Secrets[name]; ok {
		return value, nil
	}
	err := api.Errorf(api.CodeInvalidParams, "there is no secret %q here", name)
	if len(s.Secrets) == 0 {
		return "", err.WithHint("a person adds one as the variable TRL_SECRET_%s in the environment of `trl mcp`", name)
	}
	return "", err.WithHint("there are %s", strings.Join(slices.Sorted(maps.Keys(s.Secrets)), ", "))
}

// environment is the variables of a command, with secrets under their names.
func (s *server) environment(env map[string]string, secrets []string) (map[string]string, error) {
	if len(secrets) == 0 {
		return env, nil
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	for _, name := range secrets {
		value, err := s.secret(name)
		if err != nil {
			return nil, err
		}
		env[name] = value
	}
	return env, nil
}

// minRedacted is how long a secret must be to be taken out of replies: a shorter
// one stands everywhere by chance.
const minRedacted = 4

// forms are the ways a secret is spelled in a text: as it is, and as it is when
// somebody else's text with the secret in it is shown or quoted.
func forms(secret string) []string {
	quoted := printable.Word(" " + secret) // the blank makes sure of the quotes
	return []string{secret, printable.Text(secret), quoted[len(`" `) : len(quoted)-len(`"`)]}
}

// redact takes the values of secrets out of a text for a model.
func (s *server) redact(text string) string {
	for name, value := range s.Secrets {
		if len(value) < minRedacted {
			continue
		}
		for _, form := range forms(value) {
			text = strings.ReplaceAll(text, form, "[secret "+name+"]")
		}
	}
	return text
}

// showsSecret reports whether a screen's text contains a secret, in however many
// rows: neither the ends of rows nor blanks count.
func (s *server) showsSecret(screen string) bool {
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), "") }
	screen = squeeze(screen)
	for _, value := range s.Secrets {
		for _, form := range forms(value) {
			if form = squeeze(form); len(form) >= minRedacted && strings.Contains(screen, form) {
				return true
			}
		}
	}
	return false
}

// redactJSON does so in JSON, where a value is escaped.
func (s *server) redactJSON(raw []byte) []byte {
	for name, value := range s.Secrets {
		if len(value) < minRedacted {
			continue
		}
		label, _ := json.Marshal("[secret " + name + "]")
		for _, form := range forms(value) {
			quoted, _ := json.Marshal(form) // a string: can't fail
			raw = bytes.ReplaceAll(raw, quoted[1:len(quoted)-1], label[1:len(label)-1])
		}
	}
	return raw
}
