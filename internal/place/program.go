package place

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// programs has this program for each architecture. It is safe for concurrent use.
type programs struct {
	executable string // path of this program, without symbolic links
	readable   string // path by which it can be read, even after it was replaced

	mu    sync.Mutex
	known map[string]*program // by architecture
}

// program is this program for one architecture.
type program struct {
	arch   string
	digest string // SHA-256, in hex
	size   int64
	path   string
	packed bool // the file at path is compressed by gzip
}

// newPrograms returns the programs that were installed together with this one.
func newPrograms() *programs {
	executable, _ := os.Executable() // "" finds nothing below
	return programsOf(executable)
}

// programsOf returns the programs that were installed together with the one at a
// path, which may be a symbolic link, such as those that Homebrew makes.
func programsOf(executable string) *programs {
	if resolved, err := filepath.EvalSymlinks(executable); err == nil {
		executable = resolved
	}
	p := &programs{executable: executable, readable: executable, known: map[string]*program{}}
	if runtime.GOOS == "linux" {
		p.readable = "/proc/self/exe"
	}
	return p
}

// machines has the architecture for each machine name of uname.
var machines = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm", "armv6l": "arm",
	"i386": "386", "i586": "386", "i686": "386", "riscv64": "riscv64", "ppc64le": "ppc64le", "s390x": "s390x", "loongarch64": "loong64",
}

// archOf returns the architecture for a machine name of uname, or the name itself.
func archOf(machine string) string {
	if arch := machines[machine]; arch != "" {
		return arch
	}
	return machine
}

// of returns the program for an architecture of Linux.
func (p *programs) of(arch string) (*program, *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[arch]; known != nil {
		return known, nil
	}
	found := &program{arch: arch, path: p.readable}
	if runtime.GOOS != "linux" || arch != runtime.GOARCH {
		found.path = filepath.Join(p.libexec(), "trl-linux-"+filepath.Base(arch)+".gz")
		found.packed = true
	}
	hash := sha256.New()
	size, err := found.copyTo(hash)
	if err != nil {
		return nil, &refusal{
			reason:  noArch,
			message: fmt.Sprintf("there is no program for Linux on %s to deliver: %v", arch, err),
			hint:    "install trl for that architecture as " + found.path,
		}
	}
	found.size, found.digest = size, hex.EncodeToString(hash.Sum(nil))
	p.known[arch] = found
	return found, nil
}

// libexec returns the directory of the programs for other machines: next to the
// directory bin, or, if this program is elsewhere, as in an unpacked archive, in its
// own directory. It never looks beside another directory: in /tmp that would be
// anyone's.
func (p *programs) libexec() string {
	dir := filepath.Dir(p.executable)
	if filepath.Base(dir) == "bin" {
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, "libexec", "trl")
}

// has reports whether one of the programs that were asked for has this digest.
func (p *programs) has(digest string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.known {
		if known.digest == digest {
			return true
		}
	}
	return false
}

// copyTo writes the program to w, and returns its size.
func (p *program) copyTo(w io.Writer) (int64, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if !p.packed {
		return io.Copy(w, f)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return 0, err
	}
	return io.Copy(w, z) //nolint:gosec // the file was installed with this program
}

// send writes the program to w, compressed or not. Nothing of it is kept: programs
// are large, and delivered rarely.
func (p *program) send(w io.Writer, compressed bool) error {
	if !compressed {
		_, err := p.copyTo(w)
		return err
	}
	if p.packed {
		f, err := os.Open(p.path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed) // half the size; the best level saves a tenth more and takes seconds
	if err != nil {
		return err
	}
	if _, err := p.copyTo(z); err != nil {
		return err
	}
	return z.Close()
}
