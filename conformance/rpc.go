package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
)

// caller is a connection that carries one request at a time.
type caller struct {
	conn net.Conn
	r    *bufio.Reader
	id   int
}

func dial(ctx context.Context, socket string) (*caller, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &caller{conn: conn, r: bufio.NewReader(conn)}, nil
}

func (c *caller) close() { c.conn.Close() }

type request struct {
	JSONRPC string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

type response struct {
	ID     *int            `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// call sends one request and reads until its answer, skipping notifications.
// The context's deadline limits it; after an error the connection is unusable.
func (c *caller) call(ctx context.Context, method string, params, result any) error {
	c.id++
	line, err := json.Marshal(request{JSONRPC: "2.0", ID: c.id, Method: method, Params: params})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	deadline, _ := ctx.Deadline() // without a deadline this is the zero time, which means none
	if err := c.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		line, err := c.r.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%s: no answer: %w", method, err)
		}
		var answer response
		if err := json.Unmarshal(line, &answer); err != nil {
			return fmt.Errorf("%s: answer is not JSON: %w", method, err)
		}
		switch {
		case answer.ID == nil || *answer.ID != c.id:
			continue
		case answer.Error != nil:
			return fmt.Errorf("%s: error %.300s", method, answer.Error)
		case answer.Result == nil:
			return fmt.Errorf("%s: answer has neither result nor error: %.300s", method, line)
		}
		if err := json.Unmarshal(answer.Result, result); err != nil {
			return fmt.Errorf("%s: result: %w", method, err)
		}
		return nil
	}
}
