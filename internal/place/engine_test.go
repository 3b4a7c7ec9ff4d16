package place

import (
	"errors"
	"strings"
	"testing"
)

// TestComplaints has what engines say: docker 20.10 and 28, podman 4.
func TestComplaints(t *testing.T) {
	for _, c := range []struct {
		said string
		want reason
		hint string
	}{
		{"permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get \"http://%2Fvar%2Frun%2Fdocker.sock/v1.24/containers/web/json\": dial unix /var/run/docker.sock: connect: permission denied", noAccess, "group"},
		{"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", noEngine, "start"},
		{"Error response from daemon: No such container: web", notRunning, "docker ps -a"},
		{"Error: no container with name or ID \"web\" found: no such container", notRunning, "docker ps -a"},
		{"Error response from daemon: Container 4f is not running", notRunning, "docker start web"},
		{"Error: can only create exec sessions on running containers: container state improper", notRunning, "docker start web"},
		{"Error response from daemon: Container web is paused, unpause the container before exec", paused, "docker unpause web"},
		{"Error response from daemon: Container 4f is restarting, wait until the container is running", notRunning, "docker logs web"},
		{"OCI runtime exec failed: exec failed: unable to start container process: exec: \"sh\": executable file not found in $PATH: unknown", noShell, "shell"},
		{"Error: crun: executable file `sh` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found", noShell, "shell"},
		{"OCI runtime exec failed: exec failed: unable to start container process: exec: \"/.trl-place-k7-X/trl\": permission denied: unknown", noExec, "--tmpfs"},
		{"exec /bin/sh: exec format error", noArch, "architecture"},
		{"Error response from daemon: container rootfs is marked read-only", noExec, "--tmpfs"},
		{"write /.trl-place-k7-X/trl: no space left on device", noSpace, "docker system df"},
		{"Error response from daemon: No such image: nosuch:latest", refused, "docker pull"},
		{"trl: cannot reach a daemon on /run/s.sock: no such file or directory", unknown, "docker exec"},
	} {
		got := engine{program: "docker"}.explainFor("web", errors.New("docker failed"), c.said)
		if got.reason != c.want || !strings.Contains(got.hint, c.hint) {
			t.Errorf("%s\n%+v, want %s and a hint with %q", c.said, got, c.want, c.hint)
		}
	}
}
