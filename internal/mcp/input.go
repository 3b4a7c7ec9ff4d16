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
	"github.com/terminal-runtime/trl/internal/typing"
)

type inputArguments struct {
	Exec    string   `json:"exec,omitempty" jsonschema:"id of the running command"`
	Session string   `json:"session,omitempty" jsonschema:"instead of exec: the command running in this session; default main"`
	Text    string   `json:"text,omitempty" jsonschema:"text to type; a newline is the enter key on a terminal"`
	Secret  string   `json:"secret,omitempty" jsonschema:"name of a secret to type, followed by enter"`
	Keys    []string `json:"keys,omitempty" jsonschema:"on a terminal, after text: enter, tab, escape, up, down, ctrl-c, f1 ..."`
	EOF     bool     `json:"eof,omitempty" jsonschema:"then end its input"`
	WaitS   *float64 `json:"wait_s,omitempty" jsonschema:"0..50: seconds to wait for its reaction, default 2"`
}

// defaultInputWait is how long input waits for a program to react.
const defaultInputWait = 2 * time.Second

// settleTime is how long the output must be quiet for the reaction to be complete.
const settleTime = 300 * time.Millisecond

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
	params, err := typing.Input(e, []byte(a.Text), a.Keys)
	if err != nil {
		return nil, err
	}
	params.EOF = a.EOF
	if a.Secret != "" {
		if params.Data, err = s.typedSecret(ctx, a.Secret, e); err != nil {
			return nil, err
		}
	}
	before := e.StdoutBytes + e.StderrBytes
	if _, err := callMethod[api.ExecInputResult](ctx, s, api.MethodExecInput, params); err != nil {
		if e.State == api.ExecExited && api.IsCode(err, api.CodeInvalidParams) {
			return nil, api.Errorf(api.CodeInvalidRequest, "nothing runs there to type into: %s has ended (%s)", exec, status(e)).
				WithHint("start a command with run and open_stdin: true, or with tty: true, to type into it")
		}
		return nil, err
	}
	wait := secondsOr(a.WaitS, defaultInputWait)
	if _, err := s.follow(ctx, c, exec, goal{idle: min(settleTime, max(wait, time.Millisecond)), from: before, tty: e.TTY != nil}, wait); err != nil {
		return nil, asDone(err, "the input was typed", exec)
	}
	r, err := s.execReport(ctx, exec, func(size int64) (*shownOutput, error) {
		return s.page(ctx, exec, "", before, size, c.room)
	})
	return r, asDone(err, "the input was typed", exec)
}

// typedSecret returns the text to type for a secret. On a terminal it refuses
// unless the command reads a password: echoed text is stored in the output.
func (s *server) typedSecret(ctx context.Context, name string, e *api.ExecResult) (string, error) {
	value, err := s.secret(name)
	if err != nil {
		return "", err
	}
	if e.TTY == nil {
		return value + "\n", nil
	}
	session, err := callMethod[api.SessionInfo](ctx, s, api.MethodSessionInfo, api.SessionParams{SessionID: e.SessionID})
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
	err := api.Errorf(api.CodeInvalidParams, "no secret %q", name)
	if len(s.Secrets) == 0 {
		return "", err.WithHint("ask a person to set the variable TRL_SECRET_%s in the environment of `trl mcp`", name)
	}
	return "", err.WithHint("use one of %s", strings.Join(slices.Sorted(maps.Keys(s.Secrets)), ", "))
}

// environment returns the variables of a command, including secrets under their
// names.
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

// minRedacted is the minimum length of a secret that is removed from replies: a
// shorter one occurs everywhere by chance.
const minRedacted = 4

// secretForms returns the forms in which a secret can occur in a text: verbatim,
// and escaped or quoted as part of a text that package printable has formatted.
func secretForms(secret string) []string {
	quoted := printable.Word(" " + secret) // the space forces quotes
	return []string{secret, printable.Text(secret), quoted[len(`" `) : len(quoted)-len(`"`)]}
}

// redact replaces the values of secrets in a text for a model.
func (s *server) redact(text string) string {
	for name, value := range s.Secrets {
		if len(value) < minRedacted {
			continue
		}
		for _, form := range secretForms(value) {
			text = strings.ReplaceAll(text, form, "[secret "+name+"]")
		}
	}
	return text
}

// showsSecret reports whether a screen's text contains a secret, possibly wrapped
// over several rows: it ignores line ends and whitespace.
func (s *server) showsSecret(screen string) bool {
	squeeze := func(text string) string { return strings.Join(strings.Fields(text), "") }
	screen = squeeze(screen)
	for _, value := range s.Secrets {
		for _, form := range secretForms(value) {
			if form = squeeze(form); len(form) >= minRedacted && strings.Contains(screen, form) {
				return true
			}
		}
	}
	return false
}

// redactJSON is like redact for JSON, where values are escaped.
func (s *server) redactJSON(raw []byte) []byte {
	for name, value := range s.Secrets {
		if len(value) < minRedacted {
			continue
		}
		label, _ := json.Marshal("[secret " + name + "]")
		for _, form := range secretForms(value) {
			quoted, _ := json.Marshal(form) // a string: can't fail
			raw = bytes.ReplaceAll(raw, quoted[1:len(quoted)-1], label[1:len(label)-1])
		}
	}
	return raw
}
