package conformance

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:embed torture.json
var tortureJSON []byte

// Table is the complete set of cases.
type Table struct {
	Version     int               `json:"version"`
	GeneratedBy string            `json:"generated_by"`
	Semantics   map[string]string `json:"semantics"`
	Cases       []Case            `json:"cases"`
}

// Case is one command, what must hold for its result, and a follow-up that
// proves that the session survived it with its state.
type Case struct {
	Name      string   `json:"name"`
	Category  string   `json:"category"`
	Shells    []string `json:"shells"`
	Setup     []string `json:"setup"` // each a separate exec.run; results are ignored
	Command   string   `json:"command"`
	TimeoutMS int64    `json:"timeout_ms"`
	Expect    Expect   `json:"expect"`
	Repeat    *Repeat  `json:"repeat,omitempty"`
	Followup  Step     `json:"followup"`
	// FollowupDegraded is tried when the follow-up fails: the session survived,
	// but was rolled back or lost its jobs. A case without it can't be
	// degraded.
	FollowupDegraded *Step  `json:"followup_degraded,omitempty"`
	Late             *Late  `json:"late,omitempty"`
	Note             string `json:"note,omitempty"`
}

// Repeat makes a long command: Token in the command is replaced by Count times
// Text.
type Repeat struct {
	Token string `json:"token"`
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// Step is a command and what must hold for its result.
type Step struct {
	Command string `json:"command"`
	Expect  Expect `json:"expect"`
}

// Late is what the first command's stdout must be some time after everything
// else: output of its background processes is still its output.
type Late struct {
	WaitMS int64  `json:"wait_ms"`
	Stdout string `json:"stdout"`
}

// Expect is what must hold for a result. Judge checks every field that is
// present.
type Expect struct {
	ExitCode          *int    `json:"exit_code,omitempty"`
	ExitCodeIn        []int   `json:"exit_code_in,omitempty"`
	ExitNonzero       bool    `json:"exit_nonzero,omitempty"`
	TimedOut          *bool   `json:"timed_out,omitempty"`
	Stdout            *string `json:"stdout,omitempty"`
	StdoutB64         []byte  `json:"stdout_b64,omitempty"` // JSON carries bytes as base64
	StdoutContains    *string `json:"stdout_contains,omitempty"`
	StdoutLen         *int64  `json:"stdout_len,omitempty"`
	StdoutMaxLen      *int64  `json:"stdout_max_len,omitempty"`
	Stderr            *string `json:"stderr,omitempty"`
	StderrContains    *string `json:"stderr_contains,omitempty"`
	StderrNotContains *string `json:"stderr_not_contains,omitempty"`
	StderrLen         *int64  `json:"stderr_len,omitempty"`
	MaxMS             *int64  `json:"max_ms,omitempty"`
}

// notOnTerminal lists the cases that require something that a terminal does not
// provide, or for which the guarantee is weaker there, with the reason.
var notOnTerminal = map[string]string{
	"no_controlling_tty": "a terminal session has one",
	"stdin_is_eof_cat":   "a terminal has no end of input until it is typed",
	"stdin_is_eof_read":  "a terminal has no end of input until it is typed",
	"exec_stdin_closed":  "its follow-up reads to the end of stdin",
	"exec_stdin_file":    "its follow-up reads to the end of stdin",
	"big_stdout_200M":    "the kernel processes each character of a terminal's output: it takes longer than the timeout",
	"kill_9_0":           "the standby is in the process group that is killed: only bash can put it elsewhere",
}

// OnTerminal reports whether the case applies to a session on a terminal.
func (c Case) OnTerminal() bool { return notOnTerminal[c.Name] == "" }

// onTerminal returns the case for a session on a terminal. stdout and stderr
// are one stream there, so each is searched for in the combined output; and a
// terminal changes bytes, so lengths and binary output are not compared.
func (c Case) onTerminal() Case {
	c = c.mapExpect(Expect.onTerminal)
	c.Late = nil
	return c
}

// mapExpect returns a copy of the case with fn applied to each of its
// expectations.
func (c Case) mapExpect(fn func(Expect) Expect) Case {
	c.Expect = fn(c.Expect)
	c.Followup.Expect = fn(c.Followup.Expect)
	if c.FollowupDegraded != nil {
		s := *c.FollowupDegraded
		s.Expect = fn(s.Expect)
		c.FollowupDegraded = &s
	}
	return c
}

func (e Expect) onTerminal() Expect {
	if e.Stdout != nil {
		e.StdoutContains, e.Stdout = e.Stdout, nil
	}
	if e.Stderr != nil {
		e.StderrContains, e.Stderr = e.Stderr, nil
	}
	e.StdoutB64, e.StdoutLen, e.StdoutMaxLen, e.StderrLen = nil, nil, nil, nil
	return e
}

// merged returns the case for commands that run with merge: stdout carries both
// streams, in write order. If stderr must be empty, stdout must still match
// exactly; otherwise each is searched for in the combined output.
func (c Case) merged() Case { return c.mapExpect(Expect.merged) }

func (e Expect) merged() Expect {
	if e.Stderr != nil && *e.Stderr == "" {
		e.Stderr = nil
		return e
	}
	if e.Stdout != nil {
		e.StdoutContains, e.Stdout = e.Stdout, nil
	}
	if e.Stderr != nil {
		e.StderrContains, e.Stderr = e.Stderr, nil
	}
	if e.StderrLen != nil && e.StdoutLen != nil {
		both := *e.StdoutLen + *e.StderrLen
		e.StdoutLen = &both
	}
	e.StderrLen, e.StdoutMaxLen = nil, nil
	return e
}

// Load returns the torture table.
func Load() (*Table, error) { return parse(tortureJSON) }

// parse rejects unknown fields: they would be expectations that are never
// checked.
func parse(data []byte) (*Table, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var table Table
	if err := decoder.Decode(&table); err != nil {
		return nil, fmt.Errorf("torture table: %w", err)
	}
	if table.Version != 1 {
		return nil, fmt.Errorf("torture table: version %d, this runner knows 1", table.Version)
	}
	if len(table.Cases) == 0 {
		return nil, errors.New("torture table: no cases")
	}
	seen := map[string]bool{}
	for _, c := range table.Cases {
		if seen[c.Name] || c.Name == "" {
			return nil, fmt.Errorf("torture table: case name %q is empty or used twice", c.Name)
		}
		seen[c.Name] = true
	}
	return &table, nil
}

// Shells returns the shells that the table names, each once.
func (t *Table) Shells() []string {
	var shells []string
	for _, c := range t.Cases {
		for _, shell := range c.Shells {
			if !slices.Contains(shells, shell) {
				shells = append(shells, shell)
			}
		}
	}
	return shells
}

// AppliesTo reports whether the case is meant for the shell.
func (c Case) AppliesTo(shell string) bool { return slices.Contains(c.Shells, shell) }

// placeholder is replaced by the token in every string of a case.
const placeholder = "{{N}}"

// With returns the case as it is sent in one run: with {{N}} replaced by the
// token, a decimal number that is unique to the run, and with the repetition
// expanded.
func (c Case) With(token string) (Case, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return Case{}, err
	}
	var filled Case
	if err := json.Unmarshal(bytes.ReplaceAll(data, []byte(placeholder), []byte(token)), &filled); err != nil {
		return Case{}, err
	}
	if r := filled.Repeat; r != nil {
		filled.Command = strings.ReplaceAll(filled.Command, r.Token, strings.Repeat(r.Text, r.Count))
		filled.Repeat = nil
	}
	return filled, nil
}
