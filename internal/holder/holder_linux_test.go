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
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// The tests run this binary as a holder, which runs it as a daemon, which plays
// a scene. The scene's lines come back through the inherited stdout.
const (
	roleVar     = "HOLDER_TEST_ROLE"
	scenarioVar = "HOLDER_TEST_SCENE"
	countVar    = "HOLDER_TEST_LIVES" // a file with a byte for each life of the daemon
	// programVar is the program that a holder becomes, and againWord its argument.
	programVar = "HOLDER_TEST_PROGRAM"
	resumeArg  = "again"
)

// withRole is the environment of a process that plays a part. The variable is in
// it once: of two, the first would count, and a daemon would be a holder again.
func withRole(role string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, roleVar+"=") })
	return append(env, roleVar+"="+role)
}

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
	case "undertaker":
		runTestCleaner()
	case "":
		os.Exit(m.Run())
	}
	os.Exit(2)
}

// stage is where a scene is played, in the daemon.
type testDaemon struct {
	*Client
	start int // which daemon of this holder it is, from 1
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
		check(fmt.Errorf("life %d, hello %+v", s.start, c.Hello()))
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

// die is what the tests are about.
func (s testDaemon) die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (s testDaemon) stopHolder(code int) {
	check(s.AnnounceExit(code, Stop))
	os.Exit(99) // which must not be the holder's
}

// fork starts a child of the holder. Its stdin ends when this process does.
func (s testDaemon) fork(text string) int {
	var in [2]int
	check(unix.Pipe2(in[:], unix.O_CLOEXEC))
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", text}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{uintptr(in[0]), 1, 2},
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT},
	})
	check(err)
	check(unix.Close(in[0]))
	return pid
}

// exits makes what is watched a channel.
func (s testDaemon) exits() <-chan Exit {
	all := make(chan Exit, 10000)
	s.Watch(func(e Exit) { all <- e })
	return all
}

// held is a holder under test.
type testHolder struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	log   bytes.Buffer
}

func startHolder(t *testing.T, scene string) *testHolder {
	t.Helper()
	return startHolderCmd(t, scene, exec.Command("/proc/self/exe"))
}

// holdBy is hold by another command, which becomes this program.
func startHolderCmd(t *testing.T, scene string, cmd *exec.Cmd) *testHolder {
	t.Helper()
	h := &testHolder{cmd: cmd}
	h.cmd.Env = append(withRole("holder"), scenarioVar+"="+scene, countVar+"="+filepath.Join(t.TempDir(), "lives"))
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

// line returns the next line of the scene.
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
		t.Errorf("unexpected: %s", h.lines.Text())
	}
	_ = h.cmd.Wait()
	if got := h.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("the holder ended with %d, want %d; log: %s", got, code, h.log.String())
	}
}

var scenarios map[string]func(testDaemon)

func init() { // the scenes refer to themselves through play
	scenarios = map[string]func(testDaemon){
		"flood": flood, "exits": exits, "late": late, "storm": storm, "garbage": garbage, "burst": burst,
		"many": many, "signals": signals, "deaf": deaf, "kept": kept, "group": group, "crash": crash, "size": size,
		"renewed": renewed, "stays": stays, "woken": woken, "watched": watched, "obedient": obedient,
		"stale": stale, "impossible": impossible, "crowded": crowded, "regenerated": regenerated,
	}
}

// connected is a client with a holder's table in this process: what it keeps is
// here too.
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
		t.Errorf("slot %v is the same as before", slot)
	}
}

// What was sent is kept, however soon after it the daemon is killed.
func TestWhatWasSentIsKept(t *testing.T) {
	for _, moment := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, time.Second} {
		h := startHolder(t, "flood")
		pid, err := strconv.Atoi(h.line(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.line(t) == "sending" {
			time.Sleep(moment) // pace: some place within the flood, or after its last packet
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
		select {} // until it is killed, with all that it sent on the way
	}
	root, err := s.Take(Root)
	check(err)
	_, page := counterPage(root)
	sent := int(binary.LittleEndian.Uint32(page))
	if kept := len(s.Hello().Slots) - 1; kept < sent || kept > sent+1 { // one may have been sent and not counted
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

// An exit is told to each daemon until it is forgotten, and the holder ends with
// the code of the last.
func TestExitsAreToldUntilForgotten(t *testing.T) {
	h := startHolder(t, "exits")
	for _, want := range []string{"told 7", "told 7", "told nothing"} {
		if got := h.line(t); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	h.end(t, 5)
}

func exits(s testDaemon) {
	if s.start == 1 {
		check(s.Track(s.fork("read x; exit 7"))) // it ends when we do
		s.die()
	}
	all := s.exits()
	switch s.start {
	case 2, 3:
		exit := <-all // in the hello, or when it happens
		fmt.Println("told", exit.Status.ExitStatus())
		if s.start == 3 {
			s.Forget(exit.PID)
		}
		s.die()
	default:
		check(s.Sync())
		if len(all) > 0 || len(s.Hello().Tracked) > 0 {
			check(fmt.Errorf("%d exits, tracked %v", len(all), s.Hello().Tracked))
		}
		fmt.Println("told nothing")
		s.stopHolder(5)
	}
}

// A child that is dead and reaped before it is tracked has a status all the same.
func TestLateTrack(t *testing.T) {
	h := startHolder(t, "late")
	if got := h.line(t); got != "3" {
		t.Errorf("status %s", got)
	}
	h.end(t, 0)
}

func late(s testDaemon) {
	all := s.exits()
	pid := s.fork("exit 3")
	for unix.Kill(pid, 0) == nil {
		time.Sleep(100 * time.Microsecond) // poll: until it is reaped; the test ends a stage that hangs
	}
	check(s.Track(pid))
	fmt.Println((<-all).Status.ExitStatus())
	s.Forget(pid)
	// It was told once: a later process with its number would not get it.
	check(s.Track(pid))
	if exit := <-all; exit.Status != lostStatus {
		check(fmt.Errorf("an old status was told again: %v", exit))
	}
	s.stopHolder(0)
}

// Each of many exits is told once, with its own status.
func TestManyExits(t *testing.T) {
	h := startHolder(t, "storm")
	if got := h.line(t); got != "all" {
		t.Error(got)
	}
	h.end(t, 0)
}

func storm(s testDaemon) {
	all := s.exits()
	want := map[int]int{}
	for i := range 300 {
		pid := s.fork("exit " + strconv.Itoa(i%200))
		want[pid] = i % 200
		check(s.Track(pid))
	}
	for range 300 {
		exit := <-all
		if code, ok := want[exit.PID]; !ok || code != exit.Status.ExitStatus() {
			check(fmt.Errorf("%+v, want %d", exit, code))
		}
		delete(want, exit.PID)
		s.Forget(exit.PID)
	}
	if orphans, err := s.Orphans(); orphans != 0 || err != nil {
		check(fmt.Errorf("%d orphans, %w", orphans, err))
	}
	fmt.Println("all")
	s.stopHolder(0)
}

// Nonsense ends the daemon that says it, and nothing else.
func TestNonsense(t *testing.T) {
	for scene, reason := range map[string]string{"garbage": "no whole number of records", "burst": "a descriptor was lost"} {
		h := startHolder(t, scene)
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

// Signals are the daemon's; when it ends, so does the holder.
func TestSignalsArePassedOn(t *testing.T) {
	h := startHolder(t, "signals")
	h.line(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if err := h.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got, want := h.line(t), sig.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	h.end(t, 4)
}

func signals(s testDaemon) {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("ready")
	for sig := range got {
		fmt.Println(sig)
		if sig == syscall.SIGTERM {
			s.stopHolder(4)
		}
	}
}

// A daemon that dies of a request to end is not started again, and nothing of
// its sessions stays.
func TestDeathByRequest(t *testing.T) {
	h := startHolder(t, "deaf")
	grandchild, child := h.line(t), h.line(t)
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.end(t, 1)
	for _, pid := range []string{grandchild, child} {
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s is left: %v", pid, err)
		}
	}
}

func deaf(s testDaemon) {
	s.fork("setsid sleep 1000 & echo $!; echo $$; exec sleep 1000")
	select {}
}

// A daemon that leaves its sessions behind is not started again, and what is
// left ends with the holder.
func TestLeftBehind(t *testing.T) {
	h := startHolder(t, "kept")
	pid, err := strconv.Atoi(h.line(t))
	if err != nil {
		t.Fatal(err)
	}
	trltest.Eventually(t, "the daemon is gone", func() bool { return unix.Kill(pid, 0) != nil })
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.end(t, 0)
	if !strings.Contains(h.log.String(), "has left its sessions") {
		t.Errorf("log: %s", h.log.String())
	}
}

func kept(s testDaemon) {
	fmt.Println(os.Getpid())
	s.fork("exec sleep 1000 <&2")
	check(s.AnnounceExit(0, Detach))
	os.Exit(0)
}

const (
	renewals = 5
	dying    = 60
)

func TestGroup(t *testing.T) {
	h := startHolder(t, "group")
	if got := h.line(t); got != "moved" {
		t.Error(got)
	}
	h.end(t, 0)
}

func group(s testDaemon) {
	file := os.Getenv(countVar) + ".pid"
	// A process that has not executed anything since its fork can be moved.
	all := s.exits()
	parent := s.fork("mkfifo " + file + ".fifo; (read x <>" + file + ".fifo) & echo $! >" + file)
	check(s.Track(parent))
	<-all
	text, err := os.ReadFile(file)
	check(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(err)
	check(s.Group(pid))
	if pgid, err := unix.Getpgid(pid); pgid != pid || err != nil {
		check(fmt.Errorf("group %d of %d, %w", pgid, pid, err))
	}
	if err := s.Group(1); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPERM) {
		check(fmt.Errorf("moved init: %w", err))
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	fmt.Println("moved")
	s.stopHolder(0)
}

// A daemon that crashes is started at once, and then with pauses.
func TestCrash(t *testing.T) {
	h := startHolder(t, "crash")
	if got := h.line(t); got != "3" {
		t.Error(got)
	}
	h.end(t, 0)
	if n := strings.Count(h.log.String(), "started again"); n != 2 {
		t.Errorf("%d lines about it: %s", n, h.log.String())
	}
	var pauses []time.Duration
	for n := range 7 {
		pauses = append(pauses, restartDelay(n, false))
	}
	want := []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, time.Minute, time.Minute}
	if !slices.Equal(pauses, want) {
		t.Errorf("pauses %v", pauses)
	}
}

func crash(s testDaemon) {
	if s.start < 3 {
		panic("a bug in the daemon")
	}
	fmt.Println(s.start)
	s.stopHolder(0)
}

// The holder of a thousand sessions is small. What counts is what it alone has:
// pages of the binary are the daemon's too.
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

// raceDetector reports whether this binary has it, which needs more memory than
// all the rest.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func size(s testDaemon) {
	for range 8 * 1000 {
		_, err := s.Keep(0)
		check(err)
	}
	for pid := range 3 * 1000 { // numbers that are no child's cost the same
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
