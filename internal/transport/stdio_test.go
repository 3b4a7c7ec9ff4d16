package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

func TestStdioAnswersWhatWasPipedIn(t *testing.T) {
	var out bytes.Buffer
	s := NewServer(Config{Handler: tableWith(func(ctx context.Context, p api.ExecRunParams) (*api.ExecResult, error) {
		a, _ := access.From(ctx)
		if diff := cmp.Diff(access.Actor{UID: os.Geteuid(), PID: os.Getppid(), Transport: "stdio", Scope: access.ScopeAdmin}, a); diff != "" {
			t.Error(diff)
		}
		return &api.ExecResult{Stdout: p.Command}, nil
	})})
	in := strings.NewReader(runLine(1, "a") + runLine(2, "b") + "garbage\n" + pingLine)
	if err := s.ServeStdio(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		ids[string(decodeReply(t, line).ID)] = true
	}
	if diff := cmp.Diff(map[string]bool{"1": true, "2": true, "null": true, `"ping"`: true}, ids); diff != "" {
		t.Error(diff)
	}
}

// stdioServer serves over real pipes, as a parent process would hold them.
func stdioServer(t *testing.T, ctx context.Context, s *Server) (*os.File, *bufio.Reader, chan error) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(ctx, inR, outW) }()
	t.Cleanup(func() { inW.Close(); outR.Close() })
	return inW, bufio.NewReader(outR), served
}

func TestStdioShutdown(t *testing.T) {
	g := newGate()
	s := NewServer(Config{Handler: tableWith(g.run)})
	in, out, served := stdioServer(t, context.Background(), s)
	if _, err := in.WriteString(runLine(1, "x")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	close(g.open)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if r := decodeReply(t, line); r.Error != nil {
		t.Error(r.Error)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, ErrServerClosed) {
		t.Error(err)
	}
	if _, err := out.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the output stays open: %v", err)
	}
}

func TestStdioWithoutAReaderIsCancelled(t *testing.T) {
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g := newGate()
	served := make(chan error, 1)
	go func() {
		served <- NewServer(Config{Handler: tableWith(g.run)}).ServeStdio(context.Background(), inR, outW)
	}()
	if _, err := inW.WriteString(runLine(1, "x")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	inW.Close()
	outR.Close()
	<-g.cancelled
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestStdioEndsWithItsContext(t *testing.T) {
	g := newGate()
	ctx, cancel := context.WithCancel(context.Background())
	in, _, served := stdioServer(t, ctx, NewServer(Config{Handler: tableWith(g.run)}))
	if _, err := in.WriteString(runLine(1, "x")); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	cancel()
	<-g.cancelled
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
