package engines

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// dockerHost is the address of dockerd: the usual one, in a /run of our own.
const dockerHost = "unix:///run/docker.sock"

// DockerEngine is a dockerd. Containers outlive it.
type DockerEngine struct {
	Engine
	server
	driver string // the storage driver that works
}

var docker = DockerEngine{Engine: Engine{Program: "docker"}, server: server{log: dir + "/dockerd.log"}}

// firstDocker starts dockerd for the first time.
var firstDocker = sync.OnceValue(func() error {
	for _, program := range []string{"dockerd", "docker", "containerd", "runc", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	// Not the machine's own configuration.
	if err := os.WriteFile(dir+"/daemon.json", []byte("{}"), 0o600); err != nil {
		return err
	}
	var failures []error
	for _, docker.driver = range []string{"overlay2", "vfs"} {
		err := docker.start()
		if err == nil {
			err = docker.works()
		}
		if err == nil {
			return nil
		}
		failures = append(failures, err, docker.end(unix.SIGTERM))
	}
	return errors.Join(failures...)
})

// Docker returns the dockerd of this test process. It runs.
func Docker(t testing.TB) *DockerEngine {
	t.Helper()
	need(t)
	trltest.Need(t, firstDocker())
	docker.Start(t)
	return &docker
}

// Start starts dockerd if it does not run.
func (d *DockerEngine) Start(t testing.TB) {
	t.Helper()
	if d.running() {
		return
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
}

// Restart stops dockerd and starts it again.
func (d *DockerEngine) Restart(t testing.TB) {
	t.Helper()
	if err := d.end(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.Start(t)
}

// Kill ends dockerd at once.
func (d *DockerEngine) Kill(t testing.TB) {
	t.Helper()
	if err := d.end(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (d *DockerEngine) start() error {
	ready := func() error {
		_, err := d.Try("version")
		return err
	}
	return d.server.start(ready, "dockerd", "--config-file", dir+"/daemon.json", "--host", dockerHost,
		"--data-root", filepath.Join(dir, "docker-"+d.driver), "--exec-root", "/run/docker", "--pidfile", "/run/docker.pid",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
		"--storage-driver", d.driver, "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+os.Getenv(cgroupVariable),
		"--live-restore")
}
