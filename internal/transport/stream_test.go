package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/notify"
	"github.com/terminal-runtime/trl/internal/service"
)

// feeds is a handler with one method, open, whose stream a test feeds. The real
// table serves stream.close.
type feeds struct {
	table *service.Table
	feed  notify.Feed
	n     int
}

func (f *feeds) Call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != "open" {
		return f.table.Call(ctx, method, params)
	}
	f.n++
	id := fmt.Sprintf("st-%d", f.n)
	return &service.OpenedStream{Result: map[string]string{"stream_id": id}, StreamID: id, Feed: f.feed}, nil
}

func startFeeds(t *testing.T, feed notify.Feed) (*Server, string) {
	t.Helper()
	return start(t, Config{Handler: &feeds{table: tableWith(nil), feed: feed}}, nil)
}

func numberedChunk(n int) notify.Notification {
	return &api.Chunk{Type: api.ChunkStdout, Offset: int64(n), Data: strings.Repeat("x", 1000)}
}

const openLine = `{"jsonrpc":"2.0","id":1,"method":"open"}` + "\n"

// lineWith reads lines until one contains part.
func lineWith(t *testing.T, r *bufio.Reader, part string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v, waiting for %s", err, part)
		}
		if strings.Contains(line, part) {
			return line
		}
	}
}

func TestAnswerComesBeforeItsStream(t *testing.T) {
	_, path := startFeeds(t, func(_ context.Context, send func(notify.Notification) error) error {
		for i := range 3 {
			if err := send(numberedChunk(i)); err != nil {
				return err
			}
		}
		return nil
	})
	c := dial(t, path)
	r := bufio.NewReader(c)
	for range 50 {
		if _, err := c.Write([]byte(openLine)); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{`"result"`, `"offset":0`, `"offset":1`, `"offset":2`} {
			line, err := r.ReadString('\n')
			if err != nil || !strings.Contains(line, want) {
				t.Fatalf("line %d is %.80s, %v", i, line, err)
			}
		}
	}
}

// A client that does not read keeps its stream, far beyond the write timeout of
// answers.
func TestStalledReaderKeepsItsStream(t *testing.T) {
	const notes = 5000
	done := make(chan error, 1)
	feed := func(_ context.Context, send func(notify.Notification) error) error {
		for i := range notes {
			if err := send(numberedChunk(i)); err != nil {
				done <- err
				return err
			}
		}
		done <- nil
		return nil
	}
	_, path := start(t, Config{Handler: &feeds{table: tableWith(nil), feed: feed}, WriteTimeout: 100 * time.Millisecond}, nil)
	c := dial(t, path)
	if _, err := c.Write([]byte(openLine)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the feed did not wait for its reader: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	lineWith(t, bufio.NewReader(c), fmt.Sprintf(`"offset":%d,`, notes-1))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCloseStream(t *testing.T) {
	ended := make(chan struct{})
	_, path := startFeeds(t, func(ctx context.Context, send func(notify.Notification) error) error {
		defer close(ended)
		for i := 0; ; i++ {
			if err := send(numberedChunk(i)); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	})
	c := dial(t, path)
	r := bufio.NewReader(c)
	if _, err := c.Write([]byte(openLine)); err != nil {
		t.Fatal(err)
	}
	lineWith(t, r, `"offset":0`)
	closing := `{"jsonrpc":"2.0","id":2,"method":"stream.close","params":{"stream_id":"st-1"}}` + "\n"
	if _, err := c.Write([]byte(closing)); err != nil {
		t.Fatal(err)
	}
	if line := lineWith(t, r, `"id":2`); !strings.Contains(line, `"closed":true`) {
		t.Error(line)
	}
	<-ended
	// No more notifications follow, and it can't be closed twice.
	if _, err := c.Write([]byte(closing)); err != nil {
		t.Fatal(err)
	}
	line, err := r.ReadString('\n')
	if err != nil || !strings.Contains(line, `"closed":false`) {
		t.Error(line, err)
	}
}

// A stream ends with its connection, and the connection of a client that sends
// no more requests ends with its last stream.
func TestStreamAndConnectionEnd(t *testing.T) {
	ended := make(chan struct{}, 1)
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	_, path := startFeeds(t, func(ctx context.Context, send func(notify.Notification) error) error {
		begun <- struct{}{}
		defer func() { ended <- struct{}{} }()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-finish:
			return send(numberedChunk(7))
		}
	})
	c := dial(t, path)
	if _, err := c.Write([]byte(openLine)); err != nil {
		t.Fatal(err)
	}
	<-begun
	c.Close()
	<-ended

	half := dial(t, path)
	if _, err := half.Write([]byte(openLine)); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(finish)
	r := bufio.NewReader(half)
	lineWith(t, r, `"offset":7`)
	if line, err := r.ReadString('\n'); err == nil {
		t.Errorf("%s after the end", line)
	}
	<-ended
}

func TestTooManyStreams(t *testing.T) {
	_, path := startFeeds(t, func(ctx context.Context, _ func(notify.Notification) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	c := dial(t, path)
	r := bufio.NewReader(c)
	for range maxStreams {
		if _, err := c.Write([]byte(openLine)); err != nil {
			t.Fatal(err)
		}
		lineWith(t, r, `"stream_id"`)
	}
	if _, err := c.Write([]byte(openLine)); err != nil {
		t.Fatal(err)
	}
	lineWith(t, r, `"max_streams":1024`)
}
