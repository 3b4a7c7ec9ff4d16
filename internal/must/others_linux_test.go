package must

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/pty"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// drainVariable turns this test binary into a process that runs a command on a
// terminal and only reads from it.
const drainVariable = "MUST_DRAIN"

const (
	othersCommand = "yes | head -c %d"
	// Each round starts and ends two floods.
	othersRoundsLeast, othersRounds = 10, 60
	// othersSlower is how much longer a command may take than during the same
	// flood outside of the daemon. In both cases there are three busy processes;
	// in the daemon the reader also maintains a screen.
	othersSlower = 2.0
	// othersQuota is the quota for the flood's output, small enough to matter.
	othersQuota = 16 << 20
	// othersIndex is for the index of the kept output: arrival times, in a table
	// of at most 64 KiB, and where it begins.
	othersIndex = 64<<10 + 4<<10
)

// runDrain reads a terminal until the command on it has ended, and reports when
// the flood is in full progress.
func runDrain() {
	command := os.Getenv(drainVariable)
	if command == "" {
		return
	}
	if _, err := drain(command, func() { fmt.Println("at it") }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// drain returns how long a command takes on a terminal that is only read. It
// calls atIt once the command has written floodBegun bytes.
func drain(command string, atIt func()) (time.Duration, error) {
	master, slave, err := pty.Open(pty.Size{Rows: 24, Cols: 80})
	if err != nil {
		return 0, err
	}
	defer master.Close()
	cmd := exec.Command("dash", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	slave.Close()
	buf := make([]byte, 64<<10)
	for total, n := 0, 0; err == nil; total += n {
		n, err = master.Read(buf) // until EIO: the last process on it is gone
		if total < floodBegun && total+n >= floodBegun {
			atIt()
		}
	}
	err = cmd.Wait()
	return time.Since(began), err
}

// floodBegun is how much a flood has written once it is in full progress.
const floodBegun = 1 << 20

// TestMustNotSlowOthers floods a terminal, and runs commands in another session
// meanwhile.
func TestMustNotSlowOthers(t *testing.T) {
	r := start(t, "--exec-quota-bytes", strconv.Itoa(othersQuota))
	flooded := r.create(api.SessionCreateParams{Shell: "dash", TTY: &api.TTYSize{Rows: 24, Cols: 80}})
	s := r.create(api.SessionCreateParams{Shell: "dash"})
	l, line := r.dialLines(), gauge.RunLine(s.SessionID)
	runs := func() *gauge.Series { return &gauge.Series{N: 100, Do: func() error { return gauge.AskTrue(l, line) }} }
	alone, outside, inside := runs(), runs(), runs()
	var slower float64
	for i := range othersRounds {
		if err := errors.Join(alone.Round(), duringDrain(outside), r.duringFlood(flooded, inside)); err != nil {
			t.Fatal(err)
		}
		if slower = gauge.Ratio(inside.Best, outside.Best); i >= othersRoundsLeast && slower <= othersSlower {
			break
		}
	}
	gauge.Figures(t, "exec.run true during `%s` on a terminal p50 %v (in all rounds %v) = %.2f × during the same load outside %v (%v); alone %v",
		fmt.Sprintf(othersCommand, floodBytes), inside.Best, gauge.Median(inside.All), slower, outside.Best, gauge.Median(outside.All), alone.Best)
	if slower > othersSlower {
		t.Errorf("a command takes %.2f × as long as under the same load outside, want at most %.1f", slower, othersSlower)
	}
	r.checkQuota(flooded)
	r.client.Close()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// duringDrain runs a round while another process floods its own terminal.
func duringDrain(s *gauge.Series) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), drainVariable+"="+fmt.Sprintf(othersCommand, floodBytes))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	if _, err = out.Read(make([]byte, 1)); err == nil {
		err = s.Round()
	}
	_ = cmd.Process.Kill() // processes on its terminal get SIGHUP
	_ = cmd.Wait()         // the error says that it was killed
	return err
}

// duringFlood runs a round while a session floods its terminal.
func (r *rig) duringFlood(flooded *api.Session, s *gauge.Series) error {
	res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: flooded.SessionID, Command: fmt.Sprintf(othersCommand, floodBytes)}, YieldMS: 1})
	if err != nil {
		return err
	}
	for next := int64(0); err == nil && next < floodBegun; {
		var out *api.ExecOutputResult
		if out, err = r.client.Output(r.ctx, api.ExecOutputParams{ExecID: res.ExecID, From: next, WaitMS: 1000}); err == nil {
			next = out.Next
		}
	}
	if err == nil {
		err = s.Round()
	}
	_, cancelled := r.client.Cancel(r.ctx, api.ExecCancelParams{ExecID: res.ExecID})
	return errors.Join(err, cancelled)
}

// checkQuota lets a session write to the end. No terminal takes more than some
// ten megabytes of such lines per second, so only the long run writes the whole
// flood.
func (r *rig) checkQuota(flooded *api.Session) {
	r.t.Helper()
	size := int64(64 << 20)
	if os.Getenv("TRL_LONG") == "1" {
		size = floodBytes
	}
	before := r.stats()
	var res *api.ExecResult
	began := time.Now()
	most := r.peakMemory(func() { res = r.run(flooded, fmt.Sprintf(othersCommand, size)) })
	took, after := time.Since(began), r.stats()
	grown := most.bytes - before.Memory
	kept := after.JournalMemory + after.JournalSpilled - before.JournalMemory - before.JournalSpilled
	gauge.Figures(r.t, "%d MiB on the terminal in %v; of %d MiB that may be kept %.1f are; the daemon grew by %.1f MiB (%d samples)",
		res.StdoutBytes>>20, took.Round(time.Millisecond), othersQuota>>20, float64(kept)/(1<<20), float64(grown)/(1<<20), most.samples)
	// Every line is longer by a carriage return.
	if *res.ExitCode != 0 || res.StdoutBytes != size/2*3 {
		r.t.Errorf("exit code %d, %d bytes", *res.ExitCode, res.StdoutBytes)
	}
	if kept > othersQuota+othersIndex || grown > floodMemory {
		r.t.Errorf("%d bytes are kept, want at most %d; the daemon grew by %d, want at most %d", kept, othersQuota+othersIndex, grown, floodMemory)
	}
}
