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

// host is the daemon of a tour. It is owned by Run.
type daemon struct {
	socket string
	pid    int
	exited chan struct{}
	err    error // of its end; read after exited
}

// start starts a daemon and waits until it serves.
func start(ctx context.Context, program, dir string) (*daemon, error) {
	d := &daemon{socket: filepath.Join(dir, "trl.sock"), exited: make(chan struct{})}
	cmd := exec.Command(program, "serve", "--socket", d.socket, "--config", os.DevNull, "--log-format", "json")
	cmd.Env = environment()
	// A key that ends the tour is not the daemon's, which is ended in order; if
	// the tour is killed, so is what it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started, ready := make(chan error, 1), make(chan error, 1)
	go func() {
		defer close(d.exited)
		// Of a parent's death the kernel tells when its thread has ended.
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

// awaitReady reads the daemon's log to its end, and tells once that it serves, or
// the last thing it said.
func awaitReady(log io.Reader, ready chan<- error) {
	var record struct{ Event, Msg, Error string }
	told := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if json.Unmarshal(lines.Bytes(), &record) != nil {
			record.Msg = lines.Text()
		}
		if record.Event == "ready" && !told {
			told = true
			ready <- nil
		}
	}
	if !told {
		ready <- fmt.Errorf("the daemon of the tour did not start: %s %s", record.Msg, record.Error)
	}
}

// end ends the daemon, and returns when it is gone with all its processes.
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
