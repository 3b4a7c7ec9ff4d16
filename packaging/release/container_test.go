package release_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/client"
	"github.com/terminal-runtime/trl/internal/trltest"
)

// The image under test, and another that is built from it.
const (
	image  = "localhost/trl-release-test"
	copied = image + "-copied"
)

// builder is a program that builds and runs images.
type builder struct {
	name string
	// build builds an image; run starts trl in a container of it.
	build func(tag, recipe, place string) *exec.Cmd
	run   func(args ...string) *exec.Cmd
}

// findBuilder returns Docker if its daemon answers, or buildah, which needs
// none.
func findBuilder(t *testing.T) builder {
	t.Helper()
	if exec.Command("docker", "info", "--format", "{{.ServerVersion}}").Run() == nil && exec.Command("docker", "ps").Run() == nil {
		t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "--force", image, copied).Run() })
		return builder{
			"docker",
			func(tag, recipe, place string) *exec.Cmd {
				return exec.Command("docker", "build", "--tag", tag, "--file", recipe, place)
			},
			func(args ...string) *exec.Cmd {
				return exec.Command("docker", append([]string{"run", "--rm", "--interactive", "--network=none", image}, args...)...)
			},
		}
	}
	if _, err := exec.LookPath("buildah"); err != nil || os.Geteuid() != 0 {
		trltest.Need(t, errors.New("Docker does not answer, and buildah is missing or not run as root"))
	}
	store := t.TempDir()
	// Separate storage, without features that a kernel or a machine may lack.
	buildah := func(args ...string) *exec.Cmd {
		return exec.Command("buildah", append([]string{"--root", store + "/root", "--runroot", store + "/run", "--storage-driver", "vfs"}, args...)...)
	}
	return builder{
		"buildah",
		func(tag, recipe, place string) *exec.Cmd {
			return buildah("bud", "--isolation", "chroot", "--tag", tag, "--file", recipe, place)
		},
		func(args ...string) *exec.Cmd {
			container, err := buildah("from", "--pull-never", image).Output()
			if err != nil {
				t.Fatal(err)
			}
			// buildah run ignores the entry point.
			return buildah(append([]string{"run", "--isolation", "chroot", strings.TrimSpace(string(container)), "--", "/trl"}, args...)...)
		},
	}
}

// The image has no shell, no library and no file but the binary; it prints its
// version, runs the doctor, and serves sessions of one command.
func TestContainer(t *testing.T) {
	r := openRelease(t)
	b := findBuilder(t)
	t.Logf("built and run with %s", b.name)
	files, _ := r.unpack(t, hostPlatform())
	place := t.TempDir()
	if err := os.WriteFile(filepath.Join(place, "trl"), files["trl"], 0o755); err != nil {
		t.Fatal(err)
	}
	recipe, err := filepath.Abs("../container/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	output(t, b.build(image, recipe, place))
	if got := output(t, b.run("version")); got != "trl v"+r.version+"\n" {
		t.Errorf("the version is %q", got)
	}

	// Other images can copy the binary.
	recipe = filepath.Join(place, "Dockerfile")
	if err := os.WriteFile(recipe, []byte("FROM scratch\nCOPY --from="+image+" /trl /usr/local/bin/trl\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, b.build(copied, recipe, place))

	// The doctor finds no shell, and exits with an error.
	examined, err := b.run("doctor").CombinedOutput()
	if err == nil || !bytes.Contains(examined, []byte("found no shell that a session can use")) ||
		!bytes.Contains(examined, []byte("processes can be seen")) || bytes.Contains(examined, []byte("/tmp: no such file")) {
		t.Errorf("%v\n%s", err, examined)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, "stdio:"+strings.Join(b.run("serve", "--stdio", "--log-level", "warn").Args, " "))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.CreateSession(ctx, api.SessionCreateParams{Argv: []string{"/trl", "version"}})
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	for read := (&api.ExecOutputResult{}); !read.Closed; {
		read, err = c.Output(ctx, api.ExecOutputParams{ExecID: session.ExecID, From: read.Next, WaitMS: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range read.Chunks {
			written.WriteString(chunk.Data)
		}
	}
	if written.String() != "trl v"+r.version+"\n" {
		t.Errorf("a command in the container printed %q", written.String())
	}
}
