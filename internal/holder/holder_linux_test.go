package holder

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests run this binary as a holder, which runs it as a daemon, which runs
// a scenario. The scenario's output comes back through the inherited stdout.
const (
	roleVar     = "HOLDER_TEST_ROLE"
	scenarioVar = "HOLDER_TEST_SCENE"
	countVar    = "HOLDER_TEST_LIVES" // a file with a byte for each start of the daemon
	// programVar is the program that a holder re-executes, and resumeArg its
	// argument.
	programVar = "HOLDER_TEST_PROGRAM"
	resumeArg  = "again"
)

// withRole returns the environment of a process with a role. The variable must
// occur only once: the first of two would win, and a daemon would be a holder
// again.
func withRole(role string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, roleVar+"=") })
	return append(env, roleVar+"="+role)
}

func init() { runtime.LockOSThread() } // a holder runs on the main thread

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "holder":
		program := os.Getenv(programVar)
		code, err := Run(Config{
			Argv: os.Args[:1], Env: withRole("daemon"), Cleaner: testCleaner(),
			Program: program, ResumeArgv: []string{program, resumeArg}, Resume: len(os.Args) > 1 && os.Args[1] == resumeArg,
			Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	case "daemon":
		runTestDaemon()
	case "cleaner":
		runTestCleaner()
	case "":
		os.Exit(m.Run())
	}
	os.Exit(2)
}

// testDaemon runs a scenario in the daemon process.
type testDaemon struct {
	*Client
	start int // how many daemons this holder has started, from 1
}

func runTestDaemon() {
	count, err := os.OpenFile(os.Getenv(countVar), os.O_APPEND|os.O_RDWR|os.O_CREATE, 0o600)
	check(err)
	_, err = count.Write([]byte{'.'})
	check(err)
	info, err := count.Stat()
	check(err)
	c, err := Connect(FD)
	check(err)
	s := testDaemon{c, int(info.Size())}
	if c.Hello().Restarted != (s.start > 1) || c.Hello().PID != os.Getppid() {
		check(fmt.Errorf("start %d, hello %+v", s.start, c.Hello()))
	}
	scenarios[os.Getenv(scenarioVar)](s)
	select {} // until it is killed
}

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
		os.Exit(1)
	}
}

// die kills the daemon as a crash would.
func (s testDaemon) die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (s testDaemon) stopHolder(code int) {
	check(s.AnnounceExit(code, Stop))
	os.Exit(99) // must not become the holder's exit code
}

// fork starts a child of the holder. Its stdin ends when this process does.
func (s testDaemon) fork(script string) int {
	var in [2]int
	check(unix.Pipe2(in[:], unix.O_CLOEXEC))
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{uintptr(in[0]), 1, 2},
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT},
	})
	check(err)
	check(unix.Close(in[0]))
	return pid
}

// exits returns the exits passed to Watch as a channel.
func (s testDaemon) exits() <-chan Exit {
	all := make(chan Exit, 10000)
	s.Watch(func(e Exit) { all <- e })
	return all
}

// testHolder is a holder under test.
type testHolder struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	log   bytes.Buffer
}

func startHolder(t *testing.T, scenario string) *testHolder {
	t.Helper()
	return startHolderCmd(t, scenario, exec.Command("/proc/self/exe"))
}

// startHolderCmd is startHolder with a command that executes this program.
func startHolderCmd(t *testing.T, scenario string, cmd *exec.Cmd) *testHolder {
	t.Helper()
	h := &testHolder{cmd: cmd}
	h.cmd.Env = append(withRole("holder"), scenarioVar+"="+scenario, countVar+"="+filepath.Join(t.TempDir(), "lives"))
	h.cmd.Stderr = &h.log
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.lines = bufio.NewScanner(out)
	end := time.AfterFunc(50*time.Second, func() { _ = h.cmd.Process.Kill() })
	t.Cleanup(func() { end.Stop(); _ = h.cmd.Process.Kill() })
	return h
}

// line returns the next line that the scenario printed.
func (h *testHolder) line(t *testing.T) string {
	t.Helper()
	if !h.lines.Scan() {
		t.Fatalf("no more lines; log: %s", h.log.String())
	}
	if strings.HasPrefix(h.lines.Text(), "FAIL") {
		t.Fatalf("%s; log: %s", h.lines.Text(), h.log.String())
	}
	return h.lines.Text()
}

// end waits for the holder and compares its exit code.
func (h *testHolder) end(t *testing.T, code int) {
	t.Helper()
	for h.lines.Scan() {
		t.Errorf("unexpected line: %s", h.lines.Text())
	}
	_ = h.cmd.Wait()
	if got := h.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("holder exit code %d, want %d; log: %s", got, code, h.log.String())
	}
}

var scenarios map[string]func(testDaemon)

func init() { // not in the declaration: scenarios refer to the map through runTestDaemon
	scenarios = map[string]func(testDaemon){
		"flood": flood, "exits": exits, "late": late, "storm": storm, "garbage": garbage, "burst": burst,
		"many": many, "signals": signals, "deaf": deaf, "kept": kept, "group": group, "crash": crash, "size": size,
		"renewed": renewed, "opened": opened, "stays": stays, "woken": woken, "watched": watched, "obedient": obedient,
		"stale": stale, "impossible": impossible, "crowded": crowded, "regenerated": regenerated,
		"detaching": handOffOnSignal(Detach), "restarting": handOffOnSignal(Restart),
	}
}

// connected returns a client of a holder table in this process: its kept
// descriptors are in this process too.
func connected(t *testing.T) *Client {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	h, out := &holder{table: newTable()}, newSendQueue(pair[0])
	h.table.connect(out, record{kind: gotHello, num: int32(os.Getpid())})
	go out.run()
	ended := make(chan error, 1)
	go func() { ended <- h.serveDaemon(pair[0], make(chan struct{})) }()
	c, err := Connect(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-ended, unix.Close(pair[0])); err != nil {
			t.Error(err)
		}
		out.close()
		for slot := range h.table.slots {
			_ = unix.Close(slot)
		}
	})
	return c
}

func TestClientIsAKeeper(t *testing.T) { keeperTests(t, connected(t)) }

func TestSlotsAreUsedAgain(t *testing.T) {
	c := connected(t)
	var slots []Slot
	for range 3 {
		slot, err := c.Keep(0)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	for i, slot := range slots {
		if slot.Number() != int(Root)+1+i {
			t.Errorf("slots %v", slots)
		}
	}
	c.Drop(slots[1])
	slot, err := c.Keep(0)
	if slot.Number() != slots[1].Number() || err != nil {
		t.Errorf("slot %v, %v; %v was free", slot, err, slots[1])
	}
	if slot == slots[1] {
		t.Errorf("slot %v was assigned twice", slot)
	}
}

// Descriptors that were sent are kept, however soon afterwards the daemon is
// killed.
func TestWhatWasSentIsKept(t *testing.T) {
	for _, moment := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, time.Second} {
		h := startHolder(t, "flood")
		pid, err := strconv.Atoi(h.line(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.line(t) == "sending" {
			time.Sleep(moment) // pace: some point within the flood, or after its last packet
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		line := h.line(t)
		t.Log(line)
		if !strings.HasPrefix(line, "kept ") {
			t.Error(line)
		}
		h.end(t, 0)
	}
}

const floods = 2000

func flood(s testDaemon) {
	if s.start == 1 {
		root, page := counterPage(-1)
		check(s.Replace(Root, root))
		check(s.Sync())
		fmt.Println(os.Getpid())
		fmt.Println("sending")
		for i := range uint32(floods) {
			fd, err := unix.MemfdCreate("numbered", unix.MFD_CLOEXEC)
			check(err)
			_, err = unix.Write(fd, binary.LittleEndian.AppendUint32(nil, i))
			check(err)
			slot, err := s.Keep(fd)
			check(err)
			if slot.Number() != int(Root)+1+int(i) {
				check(fmt.Errorf("slot %v for %d", slot, i))
			}
			check(unix.Close(fd))
			binary.LittleEndian.PutUint32(page, i+1)
		}
		select {} // until it is killed, with packets still in flight
	}
	root, err := s.Take(Root)
	check(err)
	_, page := counterPage(root)
	sent := int(binary.LittleEndian.Uint32(page))
	if kept := len(s.Hello().Slots) - 1; kept < sent || kept > sent+1 { // one may have been sent but not counted
		check(fmt.Errorf("sent %d, kept %d", sent, kept))
	}
	slots := slices.Clone(s.Hello().Slots)
	slices.SortFunc(slots, func(a, b Slot) int { return a.Number() - b.Number() })
	for i := range uint32(sent) {
		fd, err := s.Take(slots[1+i]) // the first is the root
		check(err)
		var b [4]byte
		_, err = unix.Pread(fd, b[:], 0)
		check(err)
		if got := binary.LittleEndian.Uint32(b[:]); got != i {
			check(fmt.Errorf("slot %d has %d", i, got))
		}
		check(unix.Close(fd))
	}
	fmt.Println("kept", sent)
	s.stopHolder(0)
}

// counterPage maps a page that outlives this process.
func counterPage(fd int) (int, []byte) {
	if fd < 0 {
		var err error
		fd, err = unix.MemfdCreate("counter", unix.MFD_CLOEXEC)
		check(err)
		check(unix.Ftruncate(fd, 4096))
	}
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(err)
	return fd, page
}

// A malformed message kills the daemon that sent it, and nothing else.
func TestNonsense(t *testing.T) {
	for scenario, reason := range map[string]string{"garbage": "not a whole number of records", "burst": "a descriptor was lost"} {
		h := startHolder(t, scenario)
		if got := h.line(t); got != "again" {
			t.Error(got)
		}
		h.end(t, 0)
		if log := h.log.String(); !strings.Contains(log, reason) || !strings.Contains(log, "killed by SIGKILL") {
			t.Errorf("the log does not say %q: %s", reason, log)
		}
	}
}

func garbage(s testDaemon) {
	if s.start == 1 {
		_, err := unix.Write(s.conn, []byte("nonsense"))
		check(err)
		select {}
	}
	fmt.Println("again")
	s.stopHolder(0)
}

func burst(s testDaemon) {
	if s.start == 1 {
		packet := record{kind: wantKeep, num: int32(Root + 1)}.append(nil)
		check(unix.Sendmsg(s.conn, packet, unix.UnixRights(make([]int, 40)...), nil, 0))
		select {}
	}
	fmt.Println("again")
	s.stopHolder(0)
}

func TestTenThousandSlots(t *testing.T) {
	h := startHolder(t, "many")
	t.Log(h.line(t))
	h.end(t, 0)
}

func many(s testDaemon) {
	const slots = 10000
	if s.start == 1 {
		for range slots {
			_, err := s.Keep(0)
			check(err)
		}
		s.die()
	}
	begin := time.Now()
	if got := len(s.Hello().Slots); got != slots {
		check(fmt.Errorf("%d slots", got))
	}
	for _, slot := range s.Hello().Slots {
		fd, err := s.Take(slot)
		check(err)
		check(unix.Close(fd))
		s.Drop(slot)
	}
	check(s.Sync())
	files, err := os.ReadDir("/proc/" + strconv.Itoa(s.Hello().PID) + "/fd")
	check(err)
	if len(files) > 30 {
		check(fmt.Errorf("%d descriptors are left in the holder", len(files)))
	}
	fmt.Println(slots, "taken and dropped in", time.Since(begin))
	s.stopHolder(0)
}

// The holder of a thousand sessions is small. Only memory that it does not
// share counts: it shares the pages of the binary with the daemon.
func TestSize(t *testing.T) {
	h := startHolder(t, "size")
	line := h.line(t)
	t.Log(line)
	var kilobytes int
	if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kilobytes); err != nil || kilobytes > 5<<10 && !raceDetector() {
		t.Errorf("%s, %v", line, err)
	}
	h.end(t, 0)
}

// raceDetector reports whether this binary has the race detector, which needs
// more memory than everything else.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func size(s testDaemon) {
	for range 8 * 1000 {
		_, err := s.Keep(0)
		check(err)
	}
	for pid := range 3 * 1000 { // pids that are not children cost the same
		check(s.Track(1<<22 + pid))
	}
	for range 100 * 1000 { // a day's work leaves nothing behind
		slot, err := s.Keep(0)
		check(err)
		s.Drop(slot)
	}
	check(s.Sync())
	text, err := os.ReadFile("/proc/" + strconv.Itoa(s.Hello().PID) + "/status")
	check(err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "RssAnon:") {
			fmt.Print(line)
		}
	}
	s.stopHolder(0)
}
