package daemon

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxLogBytes is the size at which a log file is started anew: months of a busy
// daemon at level info. With its predecessor a log takes at most twice as much, and
// one record more.
const maxLogBytes = 10 << 20

// OldLog is the suffix of the file with the records before those in a log file.
const OldLog = ".old"

// LogFile returns the file that a daemon on socket logs to if it is started in the
// background. Each socket has its own, which must not depend on the other
// variables of the caller: a socket that is the default of a login is none for a
// job of cron.
func (e Environment) LogFile(socket string) string { return e.stateFile("daemon", socket, "log") }

// placesFile returns the file with the notes of the places of a daemon on socket.
func (e Environment) placesFile(socket string) string { return e.stateFile("places", socket, "json") }

// stateFile returns the file of one kind for a daemon on socket.
func (e Environment) stateFile(kind, socket, suffix string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == '/':
			return '-'
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, strings.TrimPrefix(socket, "/"))
	name = name[max(0, len(name)-maxLogName):]
	sum := sha256.Sum256([]byte(socket)) // names alone may collide
	return filepath.Join(e.stateDir(), fmt.Sprintf("%s-%s-%x.%s", kind, name, sum[:4], suffix))
}

// maxLogName is how many characters of a socket's path the name of its log has; a
// file name may have 255.
const maxLogName = 100

// boundedLog writes a daemon's log to its stderr. If that is the log file at path,
// boundedLog keeps its size within max bytes: it moves the records to a second file
// and begins anew. Any other file belongs to the user, who may have plans for it.
//
// Writes must not be concurrent; a logger makes them one after the other.
type boundedLog struct {
	file *os.File
	path string
	max  int64
}

func newBoundedLog(stderr *os.File, path string) *boundedLog {
	return &boundedLog{file: stderr, path: path, max: maxLogBytes}
}

// Write writes one whole log record.
func (b *boundedLog) Write(record []byte) (int, error) {
	if info, err := b.file.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+int64(len(record)) > b.max {
		b.rotate(info)
	}
	return b.file.Write(record)
}

// rotate copies the log and truncates it. It can't rename it: the holder and the
// cleaner have the file open too, and their records must come to the same place. A
// record that they write meanwhile is lost, and so is the copy if the disk is full.
func (b *boundedLog) rotate(open os.FileInfo) {
	named, err := os.Stat(b.path)
	if err != nil || !os.SameFile(open, named) {
		return
	}
	if err := copyFile(b.path, b.path+OldLog); err != nil {
		_ = os.Remove(b.path + OldLog) // half of a copy would take the space that is missing
	}
	_ = b.file.Truncate(0) // if it fails, the log keeps growing
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close() // err says more
		return err
	}
	return out.Close()
}
