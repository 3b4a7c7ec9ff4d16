package pty

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := Open(Size{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	return master, slave
}

func TestBytesGoThrough(t *testing.T) {
	master, slave := open(t)
	if _, err := slave.WriteString("out\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := master.Read(buf)
	if err != nil || string(buf[:n]) != "out\r\n" { // as the line discipline writes it
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := master.WriteString("in\n"); err != nil {
		t.Fatal(err)
	}
	n, err = slave.Read(buf)
	if err != nil || string(buf[:n]) != "in\n" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestDeadlineAndCloseUnblockRead(t *testing.T) {
	master, _ := open(t)
	buf := make([]byte, 1)
	if err := master.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := master.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := master.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := master.Read(buf)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond) // pace: it reads now, or will find it closed; both must end
	master.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSize(t *testing.T) {
	master, slave := open(t)
	want := Size{Rows: 50, Cols: 132}
	if err := SetSize(master, want); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{master, slave} {
		if got, err := GetSize(f); err != nil || got != want {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, bad := range []Size{{}, {-1, 80}, {24, 0}, {1 << 16, 80}} {
		if err := SetSize(master, bad); !errors.Is(err, ErrSize) {
			t.Errorf("%v: %v", bad, err)
		}
		if _, _, err := Open(bad); !errors.Is(err, ErrSize) {
			t.Errorf("open %v: %v", bad, err)
		}
	}
}

// A slave can be a controlling terminal: a program on it finds it as /dev/tty,
// gets its size changes, and gets SIGHUP when it closes.
func TestControllingTerminal(t *testing.T) {
	master, slave := open(t)
	cmd := exec.Command("sh", "-c", `trap 'stty size; exit 7' WINCH; echo here >/dev/tty; while :; do sleep 0.01; done`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	if err := master.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := master.Read(buf)
	if err != nil || string(buf[:n]) != "here\r\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if err := SetSize(master, Size{Rows: 30, Cols: 90}); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(master) // it ends with EIO on Linux: the last slave is closed
	if !strings.Contains(string(rest), "30 90") {
		t.Errorf("%q, %v", rest, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Error(err)
	}
}
