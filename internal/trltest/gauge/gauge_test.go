package gauge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// echo answers each line of a connection with itself, and closes it after "end".
func echo(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil || string(line) == "end\n" {
				return
			}
			for _, half := range [][]byte{line[:len(line)/2], line[len(line)/2:]} {
				if _, err := conn.Write(half); err != nil {
					return
				}
			}
		}
	}()
	return socket
}

func TestDirect(t *testing.T) {
	d, err := DialDirect(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, text := range []string{"a", "", strings.Repeat("long", 100_000), "b"} {
		line := []byte(text + "\n")
		if got, err := d.Ask(line); err != nil || !bytes.Equal(got, line) {
			t.Fatalf("%d bytes for a line of %d, %v", len(got), len(line), err)
		}
	}
	if _, err := d.Ask([]byte("end\n")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the end: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(d.fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("its socket is in non-blocking mode (%#x, %v)", flags, err)
	}
}

func TestDirectToNothing(t *testing.T) {
	if d, err := DialDirect(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("connected")
		d.Close()
	}
}
