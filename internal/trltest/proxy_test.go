package trltest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestProxyCutsStallsAndRestores(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	p, err := NewProxy("tcp", "127.0.0.1:0", echo.Addr().String(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// exchange sends a byte and waits for it to come back.
	exchange := func(conn net.Conn, wait time.Duration) error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(wait))
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	conn := dial()
	if err := exchange(conn, Patience); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	for _, c := range []net.Conn{conn, dial()} {
		if err := exchange(c, 20*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("on a stalled link: %v", err)
		}
	}
	p.Restore()
	// The byte that was stalled arrives first.
	conn.SetReadDeadline(time.Now().Add(Patience))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	for _, c := range []net.Conn{conn, dial()} {
		if err := exchange(c, Patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("on a cut link: %v", err)
		}
	}
	if p.Cuts() != 2 {
		t.Errorf("%d connections were cut, want 2", p.Cuts())
	}
	p.Restore()
	if err := exchange(dial(), Patience); err != nil {
		t.Fatal(err)
	}
	p.Stall() // Close must not wait for Restore
}
