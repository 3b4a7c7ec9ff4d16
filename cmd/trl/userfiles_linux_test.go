package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// A process is signalled only if it is the holder, whatever the lock says.
func TestWhatALockNamesIsVerified(t *testing.T) {
	for name, uid := range victims {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			dir := m.mkdir(uid, 0o755, "own")
			bystander := m.as(uid, "sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = bystander.Wait()
			}()
			t.Cleanup(func() {
				_ = bystander.Process.Kill() // it may have ended
				<-ended
			})
			text := lockText(hostOf(bystander.Process.Pid), startOf(t, bystander.Process.Pid), m.binary)

			// without a daemon
			alone := filepath.Join(dir, "alone")
			m.write(uid, 0o600, alone+".lock", text)
			const not = "it does not hold the sessions of this socket"
			m.mustRefuse(uid, not, "--socket", alone, "stop")
			m.mustRefuse(uid, not, "--socket", alone, "stop", "--keep")
			m.mustRefuse(uid, not, "serve", "--socket", alone)
			// where a daemon seems to be awaited
			m.write(uid, 0o600, alone+".lock", strings.Replace(text, " 2 1 1\n", " 2 0 0\n", 1))
			m.mustRefuse(uid, not, "--socket", alone, "stop")
			m.mustRefuse(uid, not, "serve", "--socket", alone)

			// with a daemon
			socket := filepath.Join(dir, "s")
			s := m.serve(uid, m.binary, socket)
			m.write(uid, 0o600, socket+".lock", text)
			m.mustRefuse(uid, not, "--socket", socket, "stop")
			m.mustRefuse(uid, not, "--socket", socket, "stop", "--keep")
			select {
			case <-ended:
				t.Error("an unrelated process was signalled")
			case <-s.exited:
				t.Error("the daemon has ended")
			default:
			}
		})
	}
}

// A lock that names a live host as dead does not end its sessions.
func TestLivingHostIsNotEnded(t *testing.T) {
	for name, uid := range victims {
		for _, cgroup := range []string{"auto", "off"} {
			t.Run(name+"/cgroup "+cgroup, func(t *testing.T) {
				m := newMachine(t)
				dir := m.mkdir(uid, 0o755, "own")
				socket, other := filepath.Join(dir, "s"), filepath.Join(dir, "other")
				s := m.serve(uid, m.binary, socket, "--cgroup", cgroup)
				lock, err := os.ReadFile(socket + ".lock")
				if err != nil {
					t.Fatal(err)
				}
				host := strings.Fields(string(lock))[1]
				began := startOf(t, s.Process.Pid)
				for i, started := range []int64{began, 1} {
					words := []string{"it does not hold the sessions of this socket", "nothing was killed"}[i]
					// Without a session it can be recognised only by its number
					// and its cleaner.
					m.write(uid, 0o600, other+".lock", lockText(host, started, m.binary))
					m.mustRefuse(uid, words, "serve", "--socket", other, "--cgroup", cgroup)
					id := m.mustRun(uid, "--socket", socket, "session", "create")
					m.mustRun(uid, "--socket", socket, "run", "-s", id, "--", fmt.Sprintf("n=%d", i))
					m.write(uid, 0o600, other+".lock", lockText(host, started, m.binary))
					m.mustRefuse(uid, words, "serve", "--socket", other, "--cgroup", cgroup)
					if said := m.mustRun(uid, "--socket", socket, "run", "-s", id, "--", "echo $n"); said != strconv.Itoa(i) {
						t.Errorf("the session printed %q", said)
					}
				}
				m.mustRun(uid, "--socket", socket, "run", "--", "true")
			})
		}
	}
}

// The directories above the socket and the configuration file are checked as
// well.
func TestPathsOfOthers(t *testing.T) {
	for name, uid := range victims {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.mkdir(mallory, 0o755, "theirs")
			below := m.mkdir(uid, 0o700, "theirs", "sub")
			m.mustRefuse(uid, "belongs to another user (uid 64002)", "serve", "--socket", filepath.Join(below, "s"))
			m.mkdir(root, 0o777, "open")
			below = m.mkdir(uid, 0o700, "open", "sub")
			m.mustRefuse(uid, "others may write", "serve", "--socket", filepath.Join(below, "s"))
			sticky := m.mkdir(root, 0o777|fs.ModeSticky, "sticky")
			below = m.mkdir(uid, 0o700, "sticky", "sub")
			if err := errors.Join(os.Symlink(below, filepath.Join(sticky, "link")), os.Lchown(filepath.Join(sticky, "link"), mallory, mallory)); err != nil {
				t.Fatal(err)
			}
			m.mustRefuse(uid, "belongs to another user (uid 64002)", "serve", "--socket", filepath.Join(sticky, "link", "s"))

			own := m.mkdir(uid, 0o700, "own")
			socket := filepath.Join(own, "s")
			for config, words := range map[string]string{
				m.write(uid, 0o666, filepath.Join(own, "all.toml"), "max_sessions = 3\n"):          "others may write",
				m.write(mallory, 0o644, filepath.Join(own, "mallorys.toml"), "max_sessions = 3\n"): "belongs to another user (uid 64002)",
			} {
				m.mustRefuse(uid, words, "serve", "--socket", socket, "--config", config)
			}
			m.serve(uid, m.binary, filepath.Join(below, "s"), "--config", m.write(root, 0o644, filepath.Join(own, "roots.toml"), "max_sessions = 3\n"))
			m.mustRun(uid, "--socket", filepath.Join(below, "s"), "run", "--", "true")
		})
	}
}

// An upgrade runs the program at the path from which the holder was started, if
// no one else could have put it there, and never one that a file names.
func TestProgramOfAnUpgrade(t *testing.T) {
	for name, uid := range victims {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			dir, bin := m.mkdir(uid, 0o755, "own"), m.mkdir(uid, 0o755, "bin")
			socket, binary := filepath.Join(dir, "s"), filepath.Join(bin, "trl")
			if err := errors.Join(trltest.Install(m.binary, binary), os.Chown(binary, uid, uid)); err != nil {
				t.Fatal(err)
			}
			m.serve(uid, binary, socket)
			program, ran := m.maliciousProgram()
			pid := func() string {
				_, rest, _ := strings.Cut(m.mustRun(uid, "--socket", socket, "--json", "info"), `"pid": `)
				return strings.Split(rest, ",")[0]
			}
			for i := range 2 { // also after the holder has executed another program
				before := pid()
				lock, err := os.ReadFile(socket + ".lock")
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := strings.Cut(string(lock), "\n")
				m.write(uid, 0o600, socket+".lock", first+"\n"+program+"\n")
				if said := m.mustRun(uid, "--socket", socket, "upgrade"); !strings.Contains(said, "has taken over") || ran() {
					t.Errorf("upgrade %d: %s; the program named in the lock ran: %t", i, said, ran())
				}
				if now := pid(); now == before {
					t.Errorf("upgrade %d: the daemon is the same", i)
				}
			}
			before := pid()
			unsafe := func(words, path string, mode fs.FileMode, owner int) {
				t.Helper()
				info, err := os.Stat(path)
				if err := errors.Join(err, os.Chown(path, owner, owner), os.Chmod(path, mode)); err != nil {
					t.Fatal(err)
				}
				m.mustRefuse(uid, words, "--socket", socket, "upgrade", "--timeout", "10s")
				if now := pid(); now != before {
					t.Errorf("%s: the daemon was replaced anyway", words)
				}
				if err := errors.Join(os.Chown(path, uid, uid), os.Chmod(path, info.Mode())); err != nil {
					t.Fatal(err)
				}
			}
			unsafe("others may write to "+binary, binary, 0o757, uid)
			unsafe("belongs to another user (uid 64002)", binary, 0o755, mallory)
			unsafe("others may write to "+bin, bin, 0o757, uid)
			unsafe("others may write to "+bin, bin, 0o777|fs.ModeSticky, uid)
			unsafe("belongs to another user (uid 64002)", bin, 0o755, mallory)
			m.mustRun(uid, "--socket", socket, "upgrade")
		})
	}
}
