package must

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

const (
	diskSize = 48 << 20
	diskFree = 6 << 20 // while it is full; the command's output uses this up
	diskKept = 8 << 20 // written when there is room again
)

// disk is a small file system for the output of commands. Its test owns it.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts a small file system with diskFree bytes free.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	if err := unix.Mount("must", d.dir, "tmpfs", 0, fmt.Sprint("size=", diskSize)); err != nil {
		trltest.Need(t, fmt.Errorf("mount a small file system (needs root): %w", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.fill()
	return d
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill allocates all free space except for diskFree.
func (d *disk) fill() {
	d.t.Helper()
	var st unix.Statfs_t
	f, err := os.Create(d.filler())
	if err == nil {
		defer f.Close()
		err = unix.Statfs(d.dir, &st)
	}
	if room := int64(st.Bavail)*st.Bsize - diskFree; err == nil && room > 0 {
		// Concurrent spilling may have been faster.
		if err = unix.Fallocate(int(f.Fd()), 0, 0, room); err == unix.ENOSPC {
			err = nil
		}
	}
	if err != nil {
		d.t.Error(err)
	}
}

// free frees the space again.
func (d *disk) free() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Error(err)
	}
}

// TestMustOutliveAFullDisk was seen to fail with a journal that did not continue
// its file when there was room again.
func TestMustOutliveAFullDisk(t *testing.T) {
	t.Run("full", diskFull)
	t.Run("storm", diskStorm)
}

// keptOutput describes which part of a command's output is kept: all but the
// bytes from gap up to end.
type keptOutput struct{ gap, end, size int64 }

// readKept reads all output of an exec, and compares what is kept of it with the
// file that it repeats.
func (r *rig) readKept(c *client.Client, exec string, file []byte) (h keptOutput, err error) {
	most := int64(1 << 20)
	for {
		res, err := c.Output(r.ctx, api.ExecOutputParams{ExecID: exec, From: h.size, MaxBytes: &most})
		if err != nil {
			return h, err
		}
		for _, chunk := range res.Chunks {
			if chunk.Offset != h.size {
				return h, fmt.Errorf("a chunk at %d, want it at %d", chunk.Offset, h.size)
			}
			h.size = chunk.Next
			if chunk.Type == api.ChunkGap {
				if h.end != 0 {
					return h, fmt.Errorf("a second gap at %d", chunk.Offset)
				}
				h.gap, h.end = chunk.Offset, chunk.Next
				continue
			}
			data, err := chunk.Content()
			if err != nil {
				return h, err
			}
			for at := chunk.Offset; len(data) > 0; {
				n := min(len(data), len(file)-int(at%int64(len(file))))
				if want := file[at%int64(len(file)):][:n]; !bytes.Equal(data[:n], want) {
					return h, fmt.Errorf("wrong bytes between %d and %d", at, at+int64(n))
				}
				data, at = data[n:], at+int64(n)
			}
		}
		if len(res.Chunks) == 0 {
			return h, nil
		}
	}
}

// diskFull fills the disk under a command, which continues when there is room
// again, after the daemon was killed while there was none.
func diskFull(t *testing.T) {
	d := newDisk(t)
	r := startWith(t, trltest.Config{Args: []string{"--spill-dir", d.dir}})
	name, _ := randomFile(t, seeded(t), diskKept)
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	c := r.patientClient()
	other := r.create(api.SessionCreateParams{})
	s := r.create(api.SessionCreateParams{})
	// Write more than what is free, then again on request, and a moment later:
	// the daemon does not check for room all the time.
	many, full := strings.Repeat(" "+name, 8), filepath.Join(t.TempDir(), "full")
	began := time.Now()
	res, err := c.Run(r.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, StdinOpen: true, Command: "cat" + many + "; : >" + full + "; read go; sleep 0.5; cat " + name + " " + name},
		YieldMS:     1,
	})
	if err != nil {
		t.Fatal(err)
	}
	// No other session notices.
	var slowest time.Duration
	for written := false; !written; {
		began := time.Now()
		if res, err := r.client.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: other.SessionID, Command: "echo on"}}); err != nil || res.Stdout != "on\n" {
			t.Fatal(res, err)
		}
		slowest = max(slowest, time.Since(began))
		_, err := os.Stat(full)
		written = err == nil
	}
	took := time.Since(began)
	if err := unix.Kill(daemonOf(r.PID), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if h, err := r.readKept(c, res.ExecID, file); err != nil || h.size > 8*diskKept || h.end == 0 {
		t.Fatalf("while there is no room: %+v, %v", h, err)
	}
	d.free()
	if _, err := c.Input(r.ctx, api.ExecInputParams{ExecID: res.ExecID, Data: "go\n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Wait: true}}); err != nil {
		t.Fatal(err)
	}
	h, err := r.readKept(c, res.ExecID, file)
	if err != nil {
		t.Fatal(err)
	}
	if h.size != 10*diskKept || h.gap == 0 || h.end > 8*diskKept {
		t.Errorf("all %d bytes are kept except those from %d to %d, want the last %d", h.size, h.gap, h.end, 2*diskKept)
	}
	whole, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "cat " + name}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := r.readKept(c, whole.ExecID, file)
	if err != nil || after.size != diskKept || after.end != 0 {
		t.Errorf("the next command has %+v, %v", after, err)
	}
	if !strings.Contains(r.Log(), "no space left on device") {
		t.Error("the log does not say that the disk is full")
	}
	gauge.Figures(t, "a command wrote %d MiB where %d fit, in %v, and another session's commands took at most %v; the daemon was killed; all of the %d MiB written when there was room again are kept; the gap is %.1f of %d MiB",
		8*diskKept>>20, diskFree>>20, took.Round(time.Millisecond), slowest.Round(time.Millisecond), 2*diskKept>>20, mib(h.end-h.gap), h.size>>20)
	c.Close()
	r.reconnect()
	r.stop()
}

// diskStorm repeatedly fills and frees the disk and kills the daemon while a
// command writes.
func diskStorm(t *testing.T) {
	kills := 25
	if os.Getenv("TRL_LONG") == "1" {
		kills = 400
	}
	rnd := seeded(t)
	d := newDisk(t)
	r := startWith(t, trltest.Config{Args: []string{"--spill-dir", d.dir, "--exec-quota-bytes", strconv.Itoa(diskSize / 2)}})
	name, _ := randomFile(t, rnd, diskKept)
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	c := r.patientClient()
	enough := filepath.Join(t.TempDir(), "enough")
	s := r.create(api.SessionCreateParams{})
	res, err := c.Run(r.ctx, api.ExecRunParams{
		ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: fmt.Sprintf("while ! test -e %s; do cat %s; done; exit 7", enough, name)},
		YieldMS:     1,
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := r.storm(d, rnd, kills)
	if err := os.WriteFile(enough, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(r.ctx, api.ExecRunParams{ExecCommand: api.ExecCommand{SessionID: s.SessionID, Command: "true", Wait: true}}); err != nil {
		t.Fatal(err)
	}
	info, err := c.ExecInfo(r.ctx, api.ExecParams{ExecID: res.ExecID})
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.readKept(c, res.ExecID, file)
	if err != nil {
		t.Fatal(err)
	}
	if *info.ExitCode != 7 || h.size != info.StdoutBytes || h.size%diskKept != 0 || h.end == 0 {
		t.Errorf("%d bytes are reported, %d can be read, %d at a time were written; exit code %d; gap %d", info.StdoutBytes, h.size, diskKept, *info.ExitCode, h.end-h.gap)
	}
	gauge.Figures(t, "a command wrote %d MiB while the disk was filled and freed %d times and the daemon killed %d times: one gap, every other byte right, none twice",
		h.size>>20, changes, kills)
	c.Close()
	r.reconnect()
	r.stop()
}

// storm kills daemons, and fills and frees the disk in between. It returns how
// often it changed the disk.
func (r *rig) storm(d *disk, rnd *rand.Rand, kills int) (changes int) {
	r.t.Helper()
	for n := 0; n < kills; {
		time.Sleep(time.Duration(rnd.IntN(80)) * time.Millisecond) // pace: a random moment
		if rnd.IntN(2) == 0 {
			if changes++; changes%2 == 1 {
				d.free()
			} else {
				d.fill()
			}
			continue
		}
		if pid := daemonOf(r.PID); pid != 0 && unix.Kill(pid, unix.SIGKILL) == nil {
			n++
		}
	}
	return changes
}

// patientClient returns a client that waits for a daemon to return.
func (r *rig) patientClient() *client.Client {
	r.t.Helper()
	c, err := client.DialWith(r.ctx, r.Socket, client.Options{Patience: time.Minute})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// reconnect replaces the client after the daemon was killed.
func (r *rig) reconnect() {
	r.t.Helper()
	r.client.Close()
	r.client = r.dial()
}
