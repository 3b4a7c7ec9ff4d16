package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// startReading starts a command that reads its stdin.
func startReading(t *testing.T, p *Pool, command string) (exec string) {
	t.Helper()
	s := create(t, p, api.SessionCreateParams{})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: command, StdinOpen: true}, YieldMS: 1})
	return r.ExecID
}

// startReadingLater starts a command that reads its stdin when start is called.
func startReadingLater(t *testing.T, p *Pool, command string) (exec string, read func()) {
	t.Helper()
	sign := filepath.Join(t.TempDir(), "read")
	if err := unix.Mkfifo(sign, 0o600); err != nil {
		t.Fatal(err)
	}
	exec = startReading(t, p, ": <"+sign+"; "+command)
	return exec, func() {
		t.Helper()
		f, err := os.OpenFile(sign, os.O_WRONLY, 0) // blocks until the command has opened it
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// said waits for the end of a command and returns its output.
func said(t *testing.T, p *Pool, exec string) string {
	t.Helper()
	_, e, err := p.exec(exec)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Done():
	case <-time.After(trltest.Patience):
		t.Fatal("the command does not end")
	}
	r, err := e.ResultWithOutput(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout
}

func offset(n int64) *int64 { return &n }

// TestInputOnce: an input is written once, however often it is sent, if its key or
// its offset shows that it is the same.
func TestInputOnce(t *testing.T) {
	p := newPool(t, Config{})
	exec := startReading(t, p, "cat")
	for i, c := range []struct {
		params api.ExecInputParams
		bytes  int
		next   int64
		refuse string // part of the error
	}{
		{params: api.ExecInputParams{Data: "one\n", Key: "1"}, bytes: 4, next: 4},
		{params: api.ExecInputParams{Data: "one\n", Key: "1"}, bytes: 4, next: 4},
		{params: api.ExecInputParams{Data: "two\n", Key: "1"}, refuse: "the key was used with other params"},
		{params: api.ExecInputParams{Data: "one\n", Key: "1", EOF: true}, refuse: "the key was used with other params"},
		{params: api.ExecInputParams{Data: "two\n", At: offset(4)}, bytes: 4, next: 8},
		{params: api.ExecInputParams{Data: "two\n", At: offset(4)}, bytes: 4, next: 8},
		{params: api.ExecInputParams{Data: "o\nthree\n", At: offset(6), Whole: true}, bytes: 8, next: 14},
		{params: api.ExecInputParams{Data: "lost\n", At: offset(15)}, refuse: "input before this offset is missing"},
		{params: api.ExecInputParams{Data: "lost\n", At: offset(-1)}, refuse: "at must not be negative"},
		{params: api.ExecInputParams{Data: "lost\n", Key: "a\nb"}, refuse: "a key must be"},
		{params: api.ExecInputParams{Data: "four\n", Key: "4", At: offset(14)}, bytes: 5, next: 19},
		{params: api.ExecInputParams{Data: "five\n", Key: "5", Whole: true}, bytes: 5, next: 24},
		{params: api.ExecInputParams{Data: "one\n", Key: "1"}, bytes: 4, next: 4},
		{params: api.ExecInputParams{}, bytes: 0, next: 24},
		{params: api.ExecInputParams{Data: "six\n", Key: "6", EOF: true}, bytes: 4, next: 28},
		{params: api.ExecInputParams{Data: "six\n", Key: "6", EOF: true}, bytes: 4, next: 28},
	} {
		c.params.ExecID = exec
		r, err := p.Input(t.Context(), c.params)
		switch {
		case c.refuse != "":
			if !api.IsCode(err, api.CodeInvalidParams) || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("%d: %v", i, err)
			}
		case err != nil:
			t.Errorf("%d: %v", i, err)
		case r.Bytes != c.bytes || r.Next == nil || *r.Next != c.next || r.Written != "":
			t.Errorf("%d: %+v, next %d", i, r, *r.Next)
		}
	}
	if got := said(t, p, exec); got != "one\ntwo\nthree\nfour\nfive\nsix\n" {
		t.Errorf("the command read %q", got)
	}
	// The command has ended, and a repeat gets the same answer.
	if r, err := p.Input(t.Context(), api.ExecInputParams{ExecID: exec, Data: "six\n", Key: "6", EOF: true}); err != nil || *r.Next != 28 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: exec, Data: "seven\n", Key: "7"}); !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("a command that has ended takes input: %v", err)
	}
}

// TestInputWhole: an input with whole is accepted at once even if the command does
// not read; without room, or without whole, the call waits.
func TestInputWhole(t *testing.T) {
	const buffer = 300 << 10
	p := newPool(t, Config{InputBuffer: buffer})
	exec, read := startReadingLater(t, p, "wc -l")
	large := strings.Repeat("a line of some length\n", 10_000) // 220 KB
	input := func(ctx context.Context, params api.ExecInputParams) error {
		params.ExecID = exec
		_, err := p.Input(ctx, params)
		return err
	}
	if err := input(t.Context(), api.ExecInputParams{Data: large, Whole: true, Key: "1"}); err != nil {
		t.Fatal(err)
	}
	err := input(t.Context(), api.ExecInputParams{Data: large + large, Whole: true, Key: "2"})
	if !api.IsCode(err, api.CodeInputFull) || api.AsError(err).Details["input_buffer_bytes"] != int64(buffer) {
		t.Errorf("larger than the buffer: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := input(gone, api.ExecInputParams{Data: large, Whole: true, Key: "3"}); !errors.Is(err, context.Canceled) {
		t.Errorf("it fits, though there is no room: %v", err)
	}
	// There is room for a part of this one. A repeat adds the rest.
	if err := input(gone, api.ExecInputParams{Data: large, Key: "4"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a command that does not read has taken %v", err)
	}
	read()
	for _, params := range []api.ExecInputParams{{Data: large, Key: "4"}, {Data: large, Whole: true, Key: "3", EOF: true}} {
		if err := input(t.Context(), params); err != nil {
			t.Error(params.Key, err)
		}
	}
	if got := strings.TrimSpace(said(t, p, exec)); got != "30000" {
		t.Errorf("the command read %s lines", got)
	}
}

// TestInputThatWasNotTaken: input that a command did not take before it ended
// counts as not sent when it is repeated.
func TestInputThatWasNotTaken(t *testing.T) {
	p := newPool(t, Config{})
	exec, end := startReadingLater(t, p, "true")
	large := strings.Repeat("x", 200_000)
	input := func(params api.ExecInputParams) (int, error) {
		params.ExecID = exec
		r, err := p.Input(t.Context(), params)
		if err != nil {
			return 0, err
		}
		return r.Bytes, nil
	}
	if n, err := input(api.ExecInputParams{Data: "small", Key: "small"}); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := input(api.ExecInputParams{Data: large, Key: "kept", Whole: true}); n != len(large) || err != nil {
		t.Fatal(n, err)
	}
	first := make(chan error)
	go func() {
		_, err := input(api.ExecInputParams{Data: large, Key: "late"})
		first <- err
	}()
	end()
	if err := <-first; !api.IsCode(err, api.CodeInvalidParams) {
		t.Errorf("a command that ends has taken it: %v", err)
	}
	said(t, p, exec)
	if n, err := input(api.ExecInputParams{Data: "small", Key: "small"}); n != 5 || err != nil {
		t.Errorf("answer for input that was taken: %d, %v", n, err)
	}
	for _, params := range []api.ExecInputParams{{Data: large, Key: "kept", Whole: true}, {Data: large, Key: "late"}} {
		if n, err := input(params); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("answer for input that was not taken: %d, %v", n, err)
		}
	}
}

// TestSmallInputs: many small inputs to a command that does not read block no
// sooner than they would in a pipe, and arrive complete and in order.
func TestSmallInputs(t *testing.T) {
	p := newPool(t, Config{})
	exec, read := startReadingLater(t, p, "cat")
	var want strings.Builder
	for i := range 1000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: exec, Data: line}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: exec, EOF: true}); err != nil {
		t.Fatal(err)
	}
	if got := said(t, p, exec); got != want.String() {
		t.Errorf("of %d bytes the command read %d", want.Len(), len(got))
	}
}

// TestTypeOnce: on a terminal a repeat types nothing.
func TestTypeOnce(t *testing.T) {
	p := newPool(t, Config{})
	s := create(t, p, api.SessionCreateParams{Shell: "bash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	r := run(t, p, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "read a; read b; echo =$a$b="}, YieldOnInput: true})
	for _, params := range []api.ExecInputParams{
		{Data: "one", Keys: []string{"enter"}, Key: "1"},
		{Data: "one", Keys: []string{"enter"}, Key: "1"},
		{Data: "two\n", Key: "2"},
	} {
		params.ExecID = r.ExecID
		got, err := p.Input(t.Context(), params)
		if err != nil || got.Bytes != 4 || got.Next != nil || got.Written != "" {
			t.Errorf("%+v: %+v, %v", params, got, err)
		}
	}
	for field, params := range map[string]api.ExecInputParams{"at": {At: offset(0)}, "whole": {Whole: true}} {
		params.ExecID, params.Data = r.ExecID, "x"
		if _, err := p.Input(t.Context(), params); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("a terminal takes %s: %v", field, err)
		}
	}
	if got := said(t, p, r.ExecID); !strings.Contains(got, "=onetwo=") {
		t.Errorf("the terminal showed %q", got)
	}
	if _, err := p.Input(t.Context(), api.ExecInputParams{ExecID: r.ExecID, Data: "two\n", Key: "2"}); err != nil {
		t.Errorf("a repeat after the end: %v", err)
	}
}
