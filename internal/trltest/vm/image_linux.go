package vm

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // init.sh
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// initScript is the first process of a guest.
//
//go:embed init.sh
var initScript []byte

// root is where the files of the guest are in the image. The kernel can't make
// another directory the root in place of the image's own root, as confined processes
// have it done; so the first process makes this one the root.
const root = "guest/"

// locale is the one that every Debian has.
const locale = "/usr/lib/locale/C.utf8"

// image is an initramfs.
type image struct {
	file  string
	token string // see guest
}

// buildImage builds everything that a guest needs, in one file below dir.
func buildImage(ctx context.Context, dir string, cfg Config) (image, error) {
	trl, err := trltest.Binary()
	if err != nil {
		return image{}, err
	}
	tests := filepath.Join(dir, "tests")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-buildvcs=false", "-o", tests, cfg.Test)
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return image{}, fmt.Errorf("compile the tests of %s: %w\n%s", cfg.Test, err, out)
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", cfg.Test).Output()
	if err != nil {
		return image{}, fmt.Errorf("find %s: %w", cfg.Test, err)
	}
	img := image{file: filepath.Join(dir, "image"), token: "vm-" + strings.ToLower(rand.Text())}

	var a archive
	a.add("init", 0o755, initScript)
	for _, d := range []string{"dev", "etc", "home", "lib", "lib64", "proc", "root", "run", "sys", "tmp", "usr", "usr/lib", "var", "guest", "guest/bin", "bin"} {
		a.addDir(root + d)
	}
	for _, d := range []string{"sbin", "usr/bin", "usr/sbin"} {
		a.addLink(root+d, "/bin")
	}
	a.add(root+"init", 0o755, initScript)
	a.add(root+"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/bash\nguest:x:1000:1000:guest:/home/guest:/bin/bash\n"))
	a.add(root+"etc/group", 0o644, []byte("root:x:0:\nguest:x:1000:\n"))
	a.add(root+"etc/hosts", 0o644, []byte("127.0.0.1 localhost guest\n"))
	a.add(root+"guest/command", 0o755, command(cfg, img.token))
	a.addFile(root+"guest/tests", tests)
	a.addFile(root+"guest/bin/trl", trl)
	a.addTree(root+"guest/testdata", filepath.Join(strings.TrimSpace(string(source)), "testdata"))
	a.addTree(root+strings.TrimPrefix(locale, "/"), locale)
	if err := addPrograms(&a, append([]string{"bash", "dash"}, cfg.Programs...)); err != nil {
		return image{}, err
	}
	return img, a.write(img.file)
}

// addPrograms adds programs of this machine with their libraries, and busybox for
// every other name.
func addPrograms(a *archive, programs []string) error {
	have := map[string]bool{"busybox": true, "sh": true}
	a.addLink(root+"bin/sh", "dash")
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			return err
		}
		a.addFile(root+"bin/"+program, path)
		have[program] = true
		for _, library := range libraries(path) {
			a.addFile(root+strings.TrimPrefix(library, "/"), library)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	a.addFile(root+"bin/busybox", busybox)
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if !have[applet] {
			a.addLink(root+"bin/"+applet, "busybox")
		}
	}
	return nil
}

// libraries returns the files that the dynamic linker loads for a program, and the
// linker itself. A static program has none.
func libraries(path string) []string {
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil // it is static
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		for word := range strings.FieldsSeq(line) {
			if filepath.IsAbs(word) {
				found = append(found, word)
			}
		}
	}
	return found
}

// command returns the script that runs the tests. Its first lines are for init.
func command(cfg Config, token string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#!/bin/sh\n# %s %s\ncd /guest\n", cfg.User, token)
	home := "/root"
	if cfg.User != Root {
		home = "/home/" + cfg.User
	}
	env := append([]string{
		"PATH=/guest/bin:/bin", "HOME=" + home, "USER=" + cfg.User, "SHELL=/bin/bash", "TMPDIR=/tmp", "LC_ALL=C.UTF-8",
		"CI=true", // what a guest lacks must be added, not skipped
		insideVariable + "=" + cfg.Kernel, trltest.BinaryVariable + "=/guest/bin/trl",
	}, cfg.Env...)
	b.WriteString("exec env -i")
	for _, setting := range env {
		b.WriteString(" " + quote(setting))
	}
	b.WriteString(" ./tests -test.v")
	for _, flag := range [][2]string{{"timeout", cfg.Timeout.String()}, {"run", cfg.Run}, {"skip", cfg.Skip}} {
		if flag[1] != "" {
			b.WriteString(" " + quote("-test."+flag[0]+"="+flag[1]))
		}
	}
	b.WriteString("\n")
	return b.Bytes()
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// addTree adds a directory of this machine, if it exists.
func (a *archive) addTree(name, dir string) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == dir && os.IsNotExist(err) {
				return nil
			}
			return err
		}
		inside := name + strings.TrimPrefix(path, dir)
		if entry.IsDir() {
			a.addDir(inside)
		} else {
			a.addFile(inside, path)
		}
		return nil
	})
	if a.err == nil {
		a.err = err
	}
}
