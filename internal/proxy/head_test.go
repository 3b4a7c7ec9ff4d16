package proxy

import (
	"errors"
	"testing"
)

// These are checked here, not only by net/http behind them.
func TestHead(t *testing.T) {
	const line = "GET http://a.example/ HTTP/1.1\r\n"
	for _, c := range []struct {
		text string
		want error
	}{
		{line + "Host: a.example\r\n\r\n", nil},
		{line + "\r\n", nil},
		{line + "Content-Length: 5\r\n\r\n", nil},
		{line + "transfer-encoding: Chunked\r\n\r\n", nil},
		{line + "Host: a\r\nHost: a\r\n\r\n", errHosts},
		{line + "Content-Length: +5\r\n\r\n", errFraming},
		{line + "Content-Length:\r\n\r\n", errFraming},
		{line + "Content-Length: 5, 5\r\n\r\n", errFraming},
		{line + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", errFraming},
		{line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", errFraming},
		{line + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", errFraming},
		{line + "Transfer-Encoding: identity\r\n\r\n", errFraming},
		{line + "Host : a\r\n\r\n", errFieldName},
		{line + " Host: a\r\n\r\n", errFieldName},
		{line + "Host\r\n\r\n", errFieldName},
		{line + ": a\r\n\r\n", errFieldName},
		{line + "X: a\rHost: b\r\n\r\n", errLineEnd},
		{line + "X: a\r\r\n\r\n", errLineEnd},
		{line + "X: a\n\r\n", errLineEnd},
		{line + "X: \x00\r\n\r\n", errControl},
		{line + "X: \x7f\r\n\r\n", errControl},
		{"GET  http://a.example/ HTTP/1.1\r\n\r\n", errFirstLine},
		{"GET http://a.example/ HTTP/1.1 \r\n\r\n", errFirstLine},
		{"GET http://a.example/ HTTP/2.0\r\n\r\n", errFirstLine},
		{"G(T http://a.example/ HTTP/1.1\r\n\r\n", errFirstLine},
		{"\r\n\r\n", errFirstLine},
	} {
		end, err := headEnd([]byte(c.text), 0)
		if err == nil && end != len(c.text) {
			t.Errorf("%q ends at %d", c.text, end)
		}
		if err == nil {
			_, err = parseHead([]byte(c.text)[:end])
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.text, err, c.want)
		}
	}
}

// A message that is too long is refused before all of it has come.
func TestHelloIsBounded(t *testing.T) {
	for _, text := range []string{
		"\x16\x03\x01\x00\x04\x01\x0f\xff\xff",     // its length says so
		"\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00", // the record continues after it
	} {
		var h hello
		if _, err := h.add([]byte(text)); !errors.Is(err, errBadHello) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Records of one byte each, of a message of an allowed length.
	message := append([]byte{messageHello, 0, 0x7f, 0xf0}, make([]byte, 0x7ff0)...)
	var h hello
	for _, b := range message {
		if _, err := h.add([]byte{recordHandshake, tlsMajorVersion, 1, 0, 1, b}); err != nil {
			if len(h.raw) > maxHelloRaw+6 {
				t.Errorf("%d bytes are held, want about %d", len(h.raw), maxHelloRaw)
			}
			return
		}
	}
	t.Errorf("%d bytes are held, want at most %d", len(h.raw), maxHelloRaw)
}
