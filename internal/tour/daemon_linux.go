package tour

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// daemon is the daemon of a tour. Run owns it.
type daemon struct {
	socket string
	pid    int
	exited chan struct{}
	err    error // of Wait; read it after exited is closed
}

// start starts a daemon and waits until it serves.
func start(ctx context.Context, program, dir string) (*daemon, error) {
	d := &daemon{socket: filepath.Join(dir, "trl.sock"), exited: make(chan struct{})}
	cmd := exec.Command(program, "serve", "--socket", d.socket, "--config", os.DevNull, "--log-format", "json")
	cmd.Env = environment()
	// Ctrl-C must not reach the daemon, which the tour stops in order. If the tour is
	// killed, the daemon gets SIGTERM.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started, ready := make(chan error, 1), make(chan error, 1)
	go func() {
		defer close(d.exited)
		// The kernel sends Pdeathsig when the parent's thread ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			awaitReady(log, ready)
			d.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	d.pid = cmd.Process.Pid
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, d.end())
	}
	return d, nil
}

// awaitReady reads the daemon's log to its end. It sends nil once the daemon serves,
// or an error with the last record if it never does.
func awaitReady(log io.Reader, ready chan<- error) {
	var record struct{ Event, Msg, Error string }
	reported := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if json.Unmarshal(lines.Bytes(), &record) != nil {
			record.Msg = lines.Text()
		}
		if record.Event == "ready" && !reported {
			reported = true
			ready <- nil
		}
	}
	if !reported {
		ready <- fmt.Errorf("the tour's daemon did not start: %s %s", record.Msg, record.Error)
	}
}

// end stops the daemon, and returns when it and all its processes are gone.
func (d *daemon) end() error {
	select {
	case <-d.exited:
	default:
		if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
			return err
		}
		<-d.exited
	}
	return d.err
}
