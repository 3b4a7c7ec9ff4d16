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

// stdioLine is the maximum length of a request on stdio: the same as of one to the
// daemon.
const stdioLine = 8 << 20

// ServeStdio serves a client on standard input and output until it disconnects or
// ctx is done.
func ServeStdio(ctx context.Context, cfg Config) error {
	out := &lockedWriter{to: os.Stdout}
	err := New(cfg).Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(newMessageReader(os.Stdin, out)), Writer: out, MaxLineLength: -1})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lockedWriter serializes the writes of the server and of messageReader, which each
// write a line.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (o *lockedWriter) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(line)
}

func (o *lockedWriter) Close() error { return nil }

// messageReader reads the lines of a client that are messages. It answers all other
// lines itself: the first of them would end the server, and so the agent's tools.
type messageReader struct {
	in   *bufio.Reader
	out  io.Writer
	line []byte // unread part of a message
}

func newMessageReader(in io.Reader, out io.Writer) *messageReader {
	return &messageReader{in: bufio.NewReader(in), out: out}
}

func (m *messageReader) Read(p []byte) (int, error) {
	for len(m.line) == 0 {
		line, err := m.next()
		if err != nil {
			return 0, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		message, problem := parseMessages(line)
		if problem != nil {
			if err := m.replyError(problem); err != nil {
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

// next returns the next line with its newline. It returns only the start of a line
// that is too long; that start is too long as well.
func (m *messageReader) next() (line []byte, err error) {
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

// parseMessages returns the message in a line, or what is wrong with it. It splits
// an array of messages, which old clients may send, into one message a line: newer
// versions of the protocol have no arrays, and one would end the server.
func parseMessages(line []byte) ([]byte, *jsonrpc.Error) {
	if len(line) > stdioLine {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the message is longer than %d bytes", stdioLine)}
	}
	if !json.Valid(line) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the line is not JSON: send one JSON-RPC message per line"}
	}
	all := []json.RawMessage{line}
	if bytes.TrimSpace(line)[0] == '[' {
		_ = json.Unmarshal(line, &all) // can't fail: it is valid
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

// replyError answers a line that is not a message, with a null id because the id is
// unknown.
func (m *messageReader) replyError(problem *jsonrpc.Error) error {
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
