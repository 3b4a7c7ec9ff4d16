package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdioLine is the longest request that is read on stdio: as long as one to the
// daemon may be.
const stdioLine = 8 << 20

// ServeStdio serves the client at standard input and output until it hangs up, or
// until ctx is done.
func ServeStdio(ctx context.Context, cfg Config) error {
	out := &output{to: os.Stdout}
	err := New(cfg).Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(newMessages(os.Stdin, out)), Writer: out, MaxLineLength: -1})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// output is written to by the server and by messages, a line at a time.
type output struct {
	mu sync.Mutex
	to io.Writer
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(line)
}

func (o *output) Close() error { return nil }

// messages are the lines of a client that are messages. The others it answers
// itself: the server would end with the first of them, and the agent's tools with it.
type messages struct {
	in   *bufio.Reader
	out  io.Writer
	line []byte // of a message, what has not been read yet
}

func newMessages(in io.Reader, out io.Writer) *messages {
	return &messages{in: bufio.NewReader(in), out: out}
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.line) == 0 {
		line, err := m.next()
		if err != nil {
			return 0, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		message, problem := messageIn(line)
		if problem != nil {
			if err := m.refuse(problem); err != nil {
				return 0, err
			}
			continue
		}
		m.line = message
	}
	n := copy(p, m.line)
	m.line = m.line[n:]
	return n, nil
}

// next returns the next line with its newline. Of one that is too long it returns
// the begin alone, which is too long too.
func (m *messages) next() (line []byte, err error) {
	for {
		part, err := m.in.ReadSlice('\n')
		if len(line) <= stdioLine {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return append(line, '\n'), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// messageIn returns the message of a line, or what is wrong with it. Several in an
// array, as old clients may send them, become one in each line: newer versions of the
// protocol have no arrays, and the server ends with the first of those too.
func messageIn(line []byte) ([]byte, *jsonrpc.Error) {
	if len(line) > stdioLine {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("a message is longer than %d bytes", stdioLine)}
	}
	if !json.Valid(line) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the line is not JSON: MCP is one JSON-RPC message in each line"}
	}
	all := []json.RawMessage{line}
	if bytes.TrimSpace(line)[0] == '[' {
		_ = json.Unmarshal(line, &all) // it is valid
	}
	var messages []byte
	for _, one := range all {
		if _, err := jsonrpc.DecodeMessage(one); err != nil {
			messages = nil
			break
		}
		messages = append(append(messages, bytes.TrimSpace(one)...), '\n')
	}
	if messages == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the line is not a JSON-RPC 2.0 message"}
	}
	return messages, nil
}

// refuse answers a line that is no message. Nobody knows its id.
func (m *messages) refuse(problem *jsonrpc.Error) error {
	line, err := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      any            `json:"id"`
		Error   *jsonrpc.Error `json:"error"`
	}{"2.0", nil, problem})
	if err == nil {
		_, err = m.out.Write(append(line, '\n'))
	}
	return err
}
