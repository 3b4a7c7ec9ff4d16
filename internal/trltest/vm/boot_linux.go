package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxBoots is how often a guest is booted until its tests begin. A kernel may be
	// confused by the emulation, rarely.
	maxBoots = 3
	// bootPatience is how long a guest may take until its tests begin. It takes 3 to
	// 8 seconds, and 30 on a machine with 20 other things to do.
	bootPatience = 90 * time.Second
	// endPatience is how long a guest may take to end after its tests, or after it
	// has told them that they take too long.
	endPatience = 15 * time.Second
	// consoleLines is how much of the kernel's messages is shown after a failure.
	consoleLines = 25
)

// kernelOptions make booting fast and quiet. An emulated processor has no flaws that
// would need mitigations, and its clock can be relied on.
const kernelOptions = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check random.trust_cpu=on"

// guest is a guest that boots until its tests have begun.
type guest struct {
	tools tools
	cfg   Config
	dir   string // for its files
	image string
	token string // begins the lines that init writes between those of the tests
	log   func(line string)

	begun, ended bool
	result       result
}

// boot starts the guest and returns after its end.
func (g *guest) boot(ctx context.Context) error {
	console := filepath.Join(g.dir, "console")
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-nodefaults", "-no-reboot", "-display", "none",
		"-smp", strconv.Itoa(g.cfg.CPUs), "-m", strconv.Itoa(g.cfg.MemoryMiB),
		"-kernel", g.tools.kernel, "-initrd", g.image, "-append", kernelOptions,
		// The kernel writes to the first, the tests to the second.
		"-serial", "file:" + console, "-serial", "stdio",
	}
	for _, dir := range g.tools.firmware {
		args = append(args, "-L", dir)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, g.tools.qemu, args...)
	cmd.WaitDelay = time.Second
	var complaints strings.Builder
	cmd.Stderr = &complaints
	// The guest ends with this process, however that ends; the death of this thread
	// would count too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(bootPatience, func() { cancel(fmt.Errorf("its tests have not begun after %s", bootPatience)) })
	readErr := g.read(output, start, func() {
		late.Stop()
		late = time.AfterFunc(g.cfg.Timeout+endPatience, func() { cancel(fmt.Errorf("its tests have not ended after %s", g.cfg.Timeout)) })
	})
	late.Stop()
	if g.ended {
		cancel(nil) // nothing more is expected of it
		_ = cmd.Wait()
		return nil
	}
	err = errors.Join(readErr, context.Cause(ctx), cmd.Wait())
	return fmt.Errorf("the guest ended before its tests: %w\n%s\n%s", err, complaints.String(), tail(console))
}

// read reads the output of the tests until init reports their end. It calls begun
// when they begin.
func (g *guest) read(output io.Reader, start time.Time, begun func()) error {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		report, ok := strings.CutPrefix(line, g.token+" ")
		switch {
		case ok && report == "begin":
			g.begun, g.result.booted = true, time.Since(start)
			begun()
		case ok:
			g.result.ran = time.Since(start) - g.result.booted
			g.result.status, err = strconv.Atoi(strings.TrimPrefix(report, "end "))
			g.ended = err == nil
			return err
		case g.begun && line != "":
			g.result.note(line)
			g.log(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// tail returns the end of the kernel's messages.
func tail(console string) string {
	text, err := os.ReadFile(console)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "\r", "")), "\n")
	return strings.Join(lines[max(0, len(lines)-consoleLines):], "\n")
}
