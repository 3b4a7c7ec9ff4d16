package vm

import (
	"bytes"
	"fmt"
	"os"
	"path"
)

// archive is a cpio archive in the format that the kernel unpacks at boot. It is not
// compressed: unpacking is slow in a guest.
type archive struct {
	buf   bytes.Buffer
	names map[string]bool // of what it has
	inode int
	err   error // first error
}

// Types of files, as in a mode.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// entry adds an entry, unless there is one of this name.
func (a *archive) entry(name string, mode int, content []byte) {
	if a.names == nil {
		a.names = map[string]bool{}
	}
	if a.names[name] {
		return
	}
	a.names[name] = true
	if parent := path.Dir(name); parent != "." {
		a.entry(parent, typeDir|0o755, nil) // the kernel makes no missing ones
	}
	a.inode++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.buf.Write(content)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

func (a *archive) add(name string, mode int, content []byte) { a.entry(name, typeFile|mode, content) }
func (a *archive) addDir(name string)                        { a.entry(name, typeDir|0o755, nil) }
func (a *archive) addLink(name, target string)               { a.entry(name, typeLink|0o777, []byte(target)) }

// addFile adds a file of this machine.
func (a *archive) addFile(name, path string) {
	info, err := os.Stat(path)
	if err == nil {
		var content []byte
		if content, err = os.ReadFile(path); err == nil {
			a.add(name, int(info.Mode().Perm()), content)
		}
	}
	if a.err == nil {
		a.err = err
	}
}

// write ends the archive and writes it to a file.
func (a *archive) write(file string) error {
	a.entry("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	return os.WriteFile(file, a.buf.Bytes(), 0o600)
}
