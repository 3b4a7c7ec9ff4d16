package must

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// lossKinds describe twenty sessions; the last of them is idle.
func lossKinds() []*witnessKind {
	kinds := witnessKinds()
	for i, n := range []int{4, 3, 2, 2, 2, 2, 2, 3} {
		kinds[i].n = n
	}
	return kinds
}

// TestMustKeepOneSessionsLossToItself makes the state of one session among twenty
// unreadable while no daemon is running. The next daemon must continue the other
// nineteen and report the one, which must not be forgotten.
func TestMustKeepOneSessionsLossToItself(t *testing.T) {
	t.Run("running", func(t *testing.T) { loseOne(t, 0) })
	t.Run("idle", func(t *testing.T) { loseOne(t, -1) })
}

func loseOne(t *testing.T, victim int) {
	r := start(t, "--grace-ms", "1000")
	all, end := r.beginWitnesses(lossKinds())
	if err := r.checkWitnesses(all, positions(all)); err != nil {
		t.Fatal(err)
	}
	lost := all[(victim+len(all))%len(all)]
	others := slices.DeleteFunc(slices.Clone(all), func(w *witness) bool { return w == lost })
	was := positions(others)
	r.whileDead(func() {
		if err := r.changeLedger(func(l *ledger.Ledger) error {
			return l.Put(sessionKey(t, l, lost.session), unreadableValue)
		}); err != nil {
			t.Fatal(err)
		}
	})
	if err := r.checkWitnesses(others, was); err != nil {
		t.Fatal(err)
	}
	r.reconnect()
	if err := r.reports(lost.session); err != nil {
		t.Error(err)
	}
	// Another daemon must not forget it either.
	was = positions(others)
	r.killDaemon()
	if err := errors.Join(r.checkWitnesses(others, was), r.reports(lost.session)); err != nil {
		t.Error(err)
	}
	end()
	size, err := r.finishWitnesses(others)
	if err != nil {
		t.Error(err)
	}
	gauge.Figures(t, "one of %d sessions could not be read: it is reported, and the others continued (%d KiB, every byte once)", len(all), size>>10)
	r.stop()
}

// TestMustRefuseWhatItCantRead makes state unreadable while the daemon is
// running, which therefore still knows its content. An upgrade would lose the
// session, so it must be refused, with the daemon still serving.
func TestMustRefuseWhatItCantRead(t *testing.T) {
	// A value that no program can decode, and one that is not what was written.
	t.Run("undecodable", func(t *testing.T) { refuseRecord(t, true) })
	t.Run("damaged", func(t *testing.T) { refuseRecord(t, false) })
}

func refuseRecord(t *testing.T, whole bool) {
	r, binary := startInstalled(t, "--grace-ms", "1000")
	all, end := r.beginWitnesses(lossKinds())
	if err := r.checkWitnesses(all, positions(all)); err != nil {
		t.Fatal(err)
	}
	pid := daemonOf(r.PID)
	if err := r.overwriteRecord(all[len(all)-1].session, whole); err != nil {
		t.Fatal(err)
	}
	r.install(true, binary)
	was := positions(all)
	out, err := r.command(binary, "upgrade").CombinedOutput()
	if err == nil || daemonOf(r.PID) != pid {
		t.Errorf("trl upgrade says %s (%v), and the daemon's pid is %d, was %d; want it refused", out, err, daemonOf(r.PID), pid)
	}
	if err := r.checkWitnesses(all, was); err != nil {
		t.Fatal(err)
	}
	end()
	size, err := r.finishWitnesses(all)
	if err != nil {
		t.Error(err)
	}
	gauge.Figures(t, "an upgrade that could not read one of %d sessions was refused, and all continued (%d KiB, every byte once): %s",
		len(all), size>>10, strings.TrimSpace(string(out)))
	r.reconnect()
	r.stop()
}

// TestMustConfuseNobody changes the ledger while no daemon is running so that the
// state of one session is that of another, as after a page that was lost or
// written twice. Neither session may get the other's data: it continues as it
// was, or it is reported. All others continue.
func TestMustConfuseNobody(t *testing.T) {
	for _, of := range []struct {
		name string
		key  func(*witness) string
	}{
		{"session", func(w *witness) string { return "s/" + w.session }},
		{"tree", func(w *witness) string { return "t/" + w.session }},
		{"shell", func(w *witness) string { return "h/" + w.session }},
		{"command", func(w *witness) string { return "x/" + w.exec }},
	} {
		t.Run(of.name+" swapped", func(t *testing.T) { swapStates(t, of.key, true) })
		t.Run(of.name+" twice", func(t *testing.T) { swapStates(t, of.key, false) })
	}
}

// swapStates replaces the state of the second session by that of the first, and
// if swapped also the other way round.
func swapStates(t *testing.T, key func(*witness) string, swapped bool) {
	r := start(t, "--grace-ms", "1000")
	kinds := lossKinds()[:1] // which copy their input
	all, end := r.beginWitnesses(kinds)
	if err := r.checkWitnesses(all, positions(all)); err != nil {
		t.Fatal(err)
	}
	a, b, others := all[0], all[1], all[2:]
	was := positions(others)
	r.whileDead(func() {
		if err := r.changeLedger(func(l *ledger.Ledger) error {
			first, ok1 := l.Get(key(a))
			second, ok2 := l.Get(key(b))
			if !ok1 || !ok2 {
				return fmt.Errorf("the ledger does not have %s and %s: keys have changed; update this test", key(a), key(b))
			}
			err := l.Put(key(b), first)
			if swapped {
				err = errors.Join(err, l.Put(key(a), second))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
	if err := r.checkWitnesses(others, was); err != nil {
		t.Error(err)
	}
	r.reconnect()
	end()
	if _, err := r.finishWitnesses(others); err != nil {
		t.Error(err)
	}
	for _, w := range all[:2] {
		if _, err := w.checkNotMixed(); err != nil {
			t.Errorf("%s: %v", w, err)
		}
	}
	r.stop()
}

// TestMustNoticeAStalePage restores the earlier content of a ledger page while no
// daemon is running. What is lost by it must be reported, and no session may get
// another's data.
func TestMustNoticeAStalePage(t *testing.T) {
	for part := range 3 {
		t.Run(fmt.Sprint(part), func(t *testing.T) { restoreStalePage(t, part) })
	}
}

// restoreStalePage restores the last page of the ledger as it was when some of
// the commands had begun.
func restoreStalePage(t *testing.T, part int) {
	const page = 4 << 10
	r := start(t, "--grace-ms", "1000")
	var early [][]byte // the ledger while the commands began
	var wg sync.WaitGroup
	begun := make(chan struct{})
	wg.Go(func() {
		for {
			file, content, err := r.openKept()
			if err != nil {
				t.Error(err)
				return
			}
			file.Close()
			early = append(early, content)
			select {
			case <-begun:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	all, end := r.beginWitnesses(lossKinds()[:2]) // which copy their input
	close(begun)
	wg.Wait()
	if err := r.checkWitnesses(all, positions(all)); err != nil {
		t.Fatal(err)
	}
	before := early[len(early)*(1+part)/4]
	at := len(bytes.TrimRight(before, "\x00")) / page * page
	r.whileDead(func() {
		file, _, err := r.openKept()
		if err == nil {
			_, err = file.WriteAt(before[at:min(at+page, len(before))], int64(at))
			file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	r.reconnect()
	end()
	lost := 0
	for _, w := range all {
		reported, err := w.checkNotMixed()
		if err != nil && w.forgotten() && strings.Contains(r.Log(), "ledger_damaged") {
			reported, err = true, nil
		}
		if err != nil {
			t.Errorf("%s: %v", w, err)
		}
		if reported {
			lost++
		}
	}
	if lost == 0 {
		t.Errorf("nothing is lost: the page held no relevant state")
	}
	gauge.Figures(t, "a stale page of the ledger was restored: %d of %d commands are lost and reported, no output is another command's", lost, len(all))
	r.stop()
}

// checkNotMixed checks that a witness got nothing that another wrote, and that
// its session continues or is reported.
func (w *witness) checkNotMixed() (reported bool, err error) {
	if res, err := w.rig.client.Output(w.ctx, api.ExecOutputParams{ExecID: w.exec}); err == nil {
		for _, chunk := range res.Chunks {
			if err := w.checkForeign(chunk.Data); err != nil {
				return false, err
			}
		}
	}
	ended := w.kind.finish(w)
	if err := w.checkForeign(w.got.String()); ended == nil || err != nil {
		return false, err
	}
	err = w.reports(w.session)
	return err == nil, err
}

// forgotten reports whether the daemon answers that the command is unknown.
func (w *witness) forgotten() bool {
	_, err := w.rig.client.ExecInfo(w.ctx, api.ExecParams{ExecID: w.exec})
	return api.IsCode(err, api.CodeExecNotFound)
}

// checkForeign returns an error for output that another witness wrote.
func (w *witness) checkForeign(output string) error {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, w.id) {
			return fmt.Errorf("it got %q", line)
		}
	}
	return nil
}

// reports checks that a session that could not be taken over is reported, with
// its id, by session.info, in the log and by trl doctor.
func (r *rig) reports(session string) error {
	var info struct {
		State      api.State
		Unreadable string
		Terminated *api.Terminated
	}
	if err := r.client.Call(r.ctx, api.MethodSessionInfo, api.SessionParams{SessionID: session}, &info); err != nil {
		return fmt.Errorf("session.info of an unreadable session: %w", err)
	}
	if info.Unreadable == "" && (info.Terminated == nil || info.Terminated.Reason != api.ReasonLost) {
		return fmt.Errorf("session.info of an unreadable session says %s (%+v), and not why", info.State, info.Terminated)
	}
	if !slices.ContainsFunc(unexpectedWarnings(r.Log()), func(line string) bool { return strings.Contains(line, session) }) {
		return fmt.Errorf("the log does not name %s, which is unreadable", session)
	}
	binary, err := trltest.Binary()
	if err != nil {
		return err
	}
	out, _ := r.command(binary, "doctor").CombinedOutput() // its status depends on other findings too
	if !bytes.Contains(out, []byte(session)) {
		return fmt.Errorf("trl doctor does not name %s, which is unreadable: %s", session, out)
	}
	return nil
}

// whileDead kills the daemon and calls fn before the holder starts another.
func (r *rig) whileDead(fn func()) {
	r.t.Helper()
	pid := daemonOf(r.PID)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Kill(r.PID, unix.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = unix.Kill(r.PID, unix.SIGCONT) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		r.t.Fatal(err)
	}
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); err != nil && !errors.Is(err, unix.EINTR) {
		r.t.Fatal(err)
	}
	r.client.Close()
	fn()
}

// What follows is all that these tests know about persisted state: it is a ledger
// in the slot holder.Root, in which a session has the key s/ID.

// unreadableValue is invalid in all of the encodings: it begins as a varint that
// does not end.
var unreadableValue = bytes.Repeat([]byte{0xff}, 40)

// sessionKey returns the ledger key of a session.
func sessionKey(t *testing.T, l *ledger.Ledger, session string) string {
	t.Helper()
	key := "s/" + session
	if _, ok := l.Get(key); !ok {
		t.Fatalf("the ledger has no %s: keys have changed; update this test", key)
	}
	return key
}

// openKept opens the memory of the ledger.
func (r *rig) openKept() (*os.File, []byte, error) {
	file, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", r.PID, holder.Root), os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<40))
	return file, content, err
}

// copyLedger opens a ledger with that content.
func copyLedger(content []byte) (*ledger.Ledger, holder.Keeper, error) {
	fd, err := unix.MemfdCreate("copy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		return nil, nil, err
	}
	keep := holder.NewLocalKeeper()
	if err := keep.Replace(holder.Root, fd); err != nil {
		return nil, nil, err
	}
	l, err := ledger.Open(keep)
	return l, keep, err
}

// changeLedger changes the ledger while no daemon uses it: it changes a copy and
// writes the differences back.
func (r *rig) changeLedger(change func(*ledger.Ledger) error) error {
	file, before, err := r.openKept()
	if err != nil {
		return err
	}
	defer file.Close()
	l, keep, err := copyLedger(before)
	if err != nil {
		return err
	}
	if err := errors.Join(change(l), l.Close()); err != nil {
		return err
	}
	after, err := keptContent(keep)
	keep.Drop(holder.Root)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(after, 0)
	return err
}

// overwriteRecord overwrites the ledger record of a session in place with one
// that has an unreadable value. If it is not whole, only the value is
// overwritten, and the checksum does not match.
func (r *rig) overwriteRecord(session string, whole bool) error {
	file, content, err := r.openKept()
	if err != nil {
		return err
	}
	defer file.Close()
	l, keep, err := copyLedger(content)
	if err != nil {
		return err
	}
	key := sessionKey(r.t, l, session)
	value, _ := l.Get(key)
	keep.Drop(holder.Root)
	if err := l.Close(); err != nil {
		return err
	}
	is, err1 := encodeRecord(key, value)
	bad, err2 := encodeRecord(key, bytes.Repeat(unreadableValue[:1], len(value)))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	at := bytes.LastIndex(content, is)
	if at < 0 || len(is) != len(bad) {
		return fmt.Errorf("the record of %s was not found in the ledger", session)
	}
	if !whole {
		skip := len(bad) - len(value)
		bad, at = bad[skip:], at+skip
	}
	_, err = file.WriteAt(bad, int64(at))
	return err
}

// encodeRecord returns a record as the ledger writes it: the only one of a new
// ledger.
func encodeRecord(key string, value []byte) ([]byte, error) {
	keep := holder.NewLocalKeeper()
	defer keep.Drop(holder.Root)
	l, err := ledger.New(keep)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := l.Put(key, value); err != nil {
		return nil, err
	}
	content, err := keptContent(keep)
	if err != nil {
		return nil, err
	}
	at := bytes.Index(content, append([]byte(key), value...))
	if at < recordHeader {
		return nil, errors.New("the ledger does not contain the record just put")
	}
	return content[at-recordHeader : at+len(key)+len(value)], nil
}

// recordHeader is the number of bytes that the ledger writes before a key.
const recordHeader = 11

// keptContent reads the memory of a ledger.
func keptContent(keep holder.Keeper) ([]byte, error) {
	fd, err := keep.Take(holder.Root)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "ledger")
	defer file.Close()
	return io.ReadAll(io.NewSectionReader(file, 0, 1<<40))
}
