package engines

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// The images. Their command sleeps for a day.
const (
	Busybox = "trl-busybox" // nothing but busybox, with its shell
	// BusyboxUser is Busybox with a user that has no rights and no home directory.
	BusyboxUser = "trl-busybox-user"
	Scratch     = "trl-scratch" // no shell, no directories: only the program that sleeps
	Debian      = "trl-debian"  // the small Debian that trltest.NewSystem unpacks
)

// How each image is made: its files and its settings.
var recipes = map[string]struct {
	files   func() (io.ReadCloser, error)
	changes []string
}{
	Busybox:     {busyboxRoot, []string{`CMD ["/bin/sleep", "86400"]`}},
	BusyboxUser: {busyboxRoot, []string{`CMD ["/bin/sleep", "86400"]`, "USER 1000:1000"}},
	Scratch:     {scratchRoot, []string{`CMD ["/sleep", "86400"]`}},
	Debian:      {debianRoot, []string{`CMD ["/bin/sleep", "86400"]`}},
}

func (e *Engine) importImage(image string) error {
	recipe, ok := recipes[image]
	if !ok {
		return fmt.Errorf("no image named %s in this package", image)
	}
	files, err := recipe.files()
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	defer files.Close()
	args := []string{"import"}
	for _, change := range recipe.changes {
		args = append(args, "--change", change)
	}
	cmd := exec.Command(e.Program, append(args, "-", image)...)
	cmd.Env = append(cmd.Environ(), Env()...)
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s import of %s: %w\n%s", e.Program, image, err, out)
	}
	return nil
}

func debianMissing() error {
	if os.Getenv(trltest.SystemVariable) == "" {
		return errors.New(trltest.SystemVariable + " is not set to a Debian archive: create one with mmdebstrap --variant=apt")
	}
	return nil
}

func debianRoot() (io.ReadCloser, error) { return os.Open(os.Getenv(trltest.SystemVariable)) }

// busybox returns the program and the names of its applets.
var busybox = sync.OnceValues(func() (b struct {
	program []byte
	applets []string
}, err error,
) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return b, err
	}
	list, err := exec.Command(path, "--list").Output()
	if err != nil {
		return b, err
	}
	b.applets = strings.Fields(string(list))
	b.program, err = os.ReadFile(path)
	return b, err
})

func busyboxRoot() (io.ReadCloser, error) {
	b, err := busybox()
	if err != nil {
		return nil, err
	}
	var a archive
	for _, dir := range []string{"bin", "dev", "etc", "proc", "root", "sys"} {
		a.add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	a.add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/nonexistent:/bin/sh\n"))
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nguest:x:1000:\n"))
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, b.program)
	for _, applet := range b.applets {
		if applet != "busybox" {
			a.add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"}, nil)
		}
	}
	return a.read()
}

// scratchRoot has busybox under the name of one applet, so it can do nothing else.
func scratchRoot() (io.ReadCloser, error) {
	b, err := busybox()
	if err != nil {
		return nil, err
	}
	var a archive
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: "sleep", Mode: 0o755}, b.program)
	return a.read()
}

// archive is a tar archive in memory.
type archive struct {
	buf bytes.Buffer
	tar *tar.Writer
	err error // first error
}

func (a *archive) add(header tar.Header, content []byte) {
	if a.tar == nil {
		a.tar = tar.NewWriter(&a.buf)
	}
	if a.err != nil {
		return
	}
	header.Size = int64(len(content))
	if a.err = a.tar.WriteHeader(&header); a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

func (a *archive) read() (io.ReadCloser, error) {
	return io.NopCloser(&a.buf), errors.Join(a.err, a.tar.Close())
}
