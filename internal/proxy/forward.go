package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// hopByHop are the headers that concern one connection only, besides those that
// Connection names.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect",
}

func removeHopByHop(header http.Header) {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		header.Del(name)
	}
}

// forward sends one checked request on a connection of its own, and passes on the
// answer. It reports whether the client's connection can be used for another request.
func (c *conn) forward(req *http.Request, t target, server *meter) bool {
	defer server.Close()
	body := &watchedBody{from: req.Body}
	closing, old := req.Close, !req.ProtoAtLeast(1, 1)
	expects := req.Header.Get("Expect")
	removeHopByHop(req.Header)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "") // keeps net/http from adding its own
	}
	req.Close, req.Body, req.Trailer = true, body, nil
	if req.ContentLength == 0 {
		req.Body = http.NoBody
		body.ended.Store(true)
	}
	if expects != "" && !old {
		if _, err := io.WriteString(c.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = req.Write(server) // if it fails, so does reading the answer, or the answer explains it
	}()
	resp, err := readAnswer(server, req)
	if err != nil {
		server.Close()
		c.fail(http.StatusBadGateway, fmt.Sprintf("TRL got no valid HTTP answer from %s.\n", t.host))
	} else {
		chunked := resp.ContentLength < 0 && !old
		closing = closing || old || !body.ended.Load() || resp.ContentLength < 0 && old
		err = c.answer(resp, chunked, closing)
		resp.Body.Close()
		server.Close()
	}
	if err == nil && !closing && body.ended.Load() {
		<-sent
		return true
	}
	if err != nil && resp != nil {
		c.client.reset() // part of the answer is missing
		c.cancel()
		<-sent
		return false
	}
	// The client may still be sending: it reads the answer first.
	if c.client.CloseWrite() == nil {
		_ = c.client.SetReadDeadline(time.Now().Add(lingerTime)) // fails only on a closed connection
	}
	<-sent // ends at the deadline, or with the closed server
	c.linger(c.in)
	return false
}

// watchedBody remembers whether the body of a request has been read to its end.
type watchedBody struct {
	from  io.ReadCloser
	ended atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		b.ended.Store(true)
	}
	return n, err
}

// Close does not close the body: net/http would read what is left of it.
func (b *watchedBody) Close() error { return nil }

// readAnswer reads the head of the final answer.
func readAnswer(server io.Reader, req *http.Request) (*http.Response, error) {
	limited := &io.LimitedReader{R: server, N: maxAnswerHead}
	in := bufio.NewReader(limited)
	for {
		resp, err := http.ReadResponse(in, req)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server changed the protocol unasked")
		case resp.StatusCode >= 200:
			limited.N = 1<<63 - 1
			return resp, nil
		}
	}
}

// answer writes an answer to the client.
func (c *conn) answer(resp *http.Response, chunked, closing bool) error {
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %s\r\n", strings.TrimSpace(resp.Status))
	removeHopByHop(resp.Header)
	empty := resp.Request.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if chunked && !empty {
		resp.Header.Set("Transfer-Encoding", "chunked")
		resp.Header.Del("Content-Length")
	}
	if !empty && resp.ContentLength >= 0 {
		resp.Header.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	if closing {
		resp.Header.Set("Connection", "close")
	}
	if err := resp.Header.Write(&head); err != nil {
		return err
	}
	head.WriteString("\r\n")
	if _, err := c.client.Write(head.Bytes()); err != nil || empty {
		return err
	}
	if !chunked {
		return copyAll(c.client, resp.Body)
	}
	out := bufio.NewWriter(c.client)
	pieces := httputil.NewChunkedWriter(out)
	if err := copyAll(flushing{pieces, out}, resp.Body); err != nil {
		return err
	}
	if err := pieces.Close(); err != nil {
		return err
	}
	if _, err := out.WriteString("\r\n"); err != nil { // there are no trailers
		return err
	}
	return out.Flush()
}

// flushing writes each piece at once: an answer may be a stream of events.
type flushing struct {
	to  io.Writer
	out *bufio.Writer
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if err == nil {
		err = f.out.Flush()
	}
	return n, err
}

// fail sends an answer of the proxy itself, after which the connection ends.
func (c *conn) fail(status int, text string) {
	_, _ = fmt.Fprintf(c.client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text) // the connection ends either way
}
