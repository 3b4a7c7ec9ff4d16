package place

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// engine is a command line for containers: docker or podman.
type engine struct {
	program string
	env     []string
}

// run runs a command of the engine. Its errors are *refusal, or that of ctx.
func (e engine) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	out, err := run(ctx, e.env, append([]string{e.program}, args...), stdin)
	if err != nil && ctx.Err() == nil {
		err = explain(e, err)
	}
	return out, err
}

// unpause is the hint for a container that is paused.
const unpause = "run `%s unpause %s`"

// complaint is what engines say when a command can't reach a container.
type complaint struct {
	words  []string // one of them, in lower case
	reason reason
	text   string // what it means
	hint   string
}

// complaints of docker 20 to 28 and podman 4 and 5, the most special first.
var complaints = []complaint{
	{[]string{"permission denied while trying to connect"}, noAccess, "may not use the engine's socket", "add the daemon's user to the group of the socket, or choose another engine with DOCKER_HOST or `docker context`"},
	{[]string{"cannot connect to the docker daemon", "is the docker daemon running", "error during connect", "unable to connect to podman"}, noEngine, "the engine does not answer", "start it: `systemctl start docker`"},
	{[]string{"is paused"}, paused, "the container is paused", unpause},
	{[]string{"no such container", "no container with name"}, notRunning, "there is no such container", "list containers with `%s ps -a`"},
	{[]string{"is restarting"}, notRunning, "the container is restarting", "see `%s logs %s`"},
	{[]string{"is not running", "on running containers", "container state improper"}, notRunning, "the container is not running", "run `%s start %s`"},
	{[]string{"no such image", "unable to find image", "pull access denied", "image not known", "manifest unknown", "initializing source", "short-name"}, refused, "the engine has no such image", "pull it: `%s pull IMAGE`"},
	{[]string{"exec format error"}, noArch, "the program is of another architecture", "use the trl of that architecture"},
	{[]string{`": permission denied`}, noExec, "the container's user may not run the program", "run the container with a directory in which its user may run programs, such as `--tmpfs /run:exec`"},
	{[]string{"executable file", `exec: "`, "command that was not found"}, noShell, "the container has no shell", "use an image with a shell"},
	{[]string{"read-only"}, noExec, "the container's root is read-only", "give it a writable directory in which programs may run, such as `--tmpfs /run:exec`"},
	{[]string{"no space left"}, noSpace, "there is no space left", "make room: `%s system df`"},
}

func (e engine) explain(err error, stderr string) *refusal { return e.explainFor("", err, stderr) }

// explainFor explains the failure of a command for a container.
func (e engine) explainFor(name string, err error, stderr string) *refusal {
	said := strings.ToLower(err.Error() + " " + stderr) // some engines complain on standard output
	for _, c := range complaints {
		for _, words := range c.words {
			if !strings.Contains(said, words) {
				continue
			}
			hint := c.hint
			switch strings.Count(hint, "%s") {
			case 1:
				hint = fmt.Sprintf(hint, e.program)
			case 2:
				hint = fmt.Sprintf(hint, e.program, name)
			}
			return &refusal{reason: c.reason, message: c.text + ": " + err.Error(), hint: hint}
		}
	}
	return &refusal{reason: unknown, message: err.Error(), hint: fmt.Sprintf("try `%s exec -i %s sh`", e.program, name)}
}

// because reports whether err is a refusal for this reason.
func because(err error, r reason) bool {
	why, ok := errors.AsType[*refusal](err)
	return ok && why.reason == r
}

// put copies the program and its directory into the root of a container, running or
// not, with the container's user as owner. It needs nothing in the container.
func (e engine) put(ctx context.Context, name string, directory string, p *program) error {
	uid, err := e.userOf(ctx, name)
	if err != nil {
		return err
	}
	archive := produced(func(to io.Writer) error {
		w := tar.NewWriter(to)
		err := errors.Join(
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o700, Uid: uid}),
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: directory + "/trl", Mode: 0o700, Uid: uid, Size: p.size}),
		)
		if err == nil {
			err = p.send(w, false)
		}
		return errors.Join(err, w.Close())
	})
	defer archive.Close()
	_, err = e.run(ctx, archive, "cp", "-", name+":/")
	return err
}

// userOf returns the number of a container's user.
func (e engine) userOf(ctx context.Context, name string) (int, error) {
	out, err := e.run(ctx, nil, "inspect", "--type", "container", "--format", "{{.Config.User}}", name)
	if err != nil {
		return 0, err
	}
	user, _, _ := strings.Cut(strings.TrimSpace(out), ":")
	if user == "" {
		return 0, nil
	}
	if uid, err := strconv.ParseUint(user, 10, 31); err == nil {
		return int(uid), nil
	}
	out, err = e.run(ctx, nil, "cp", "-L", name+":/etc/passwd", "-")
	if err != nil {
		return 0, err
	}
	passwd := tar.NewReader(strings.NewReader(out))
	if _, err = passwd.Next(); err == nil {
		for lines := bufio.NewScanner(passwd); lines.Scan(); {
			fields := strings.Split(lines.Text(), ":")
			if uid, err := strconv.ParseUint(fields[min(2, len(fields)-1)], 10, 31); err == nil && fields[0] == user {
				return int(uid), nil
			}
		}
	}
	return 0, &refusal{reason: refused, message: fmt.Sprintf("the container's user %q is not in its /etc/passwd", user), hint: "name the user of the container by its number"}
}

// archOf returns the architecture of a container's image.
func (e engine) archOf(ctx context.Context, name string) (string, error) {
	image, err := e.run(ctx, nil, "inspect", "--type", "container", "--format", "{{.Image}}", name)
	if err != nil {
		return "", err
	}
	arch, err := e.run(ctx, nil, "image", "inspect", "--format", "{{.Architecture}}", strings.TrimSpace(image))
	return strings.TrimSpace(arch), err
}
